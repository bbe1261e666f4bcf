"""What is granted and revoked, when, and what happens if the catalog refuses or is down."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import grants as grants_module
from headgate.catalog import register
from headgate.catalog.catalog import GrantCatalog, TableCatalog
from headgate.catalog.grants import (
    GrantsChanged,
    TableGrants,
    apply_grants,
    plan_grants,
    revoke_grants,
)
from headgate.catalog.recorded import Recorded
from headgate.catalog.register import CatalogFollowUp
from headgate.config import Catalog, Grant, Granted, PipelineConfig, Principal
from headgate.config.grants import declared_on
from headgate.engine.events import CatalogFailed, Event, PrivilegesGranted, TablesRegistered
from headgate.engine.follow_up import TableChanged
from headgate.errors import CatalogError, CatalogUnavailable, UsageError, extra_missing
from headgate.lake import ledger as ledger_module
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import CatalogEntry, GrantsEntry, TableEntry
from tests.catalog.fake_catalog import FakeCatalog
from tests.cli.conftest import Headgate
from tests.cli.conftest import headgate as headgate
from tests.inspect.small_lake import SmallLake

UNITY = Catalog(name="games", in_="main")
ANALYSTS, BOB = Principal("analysts"), Principal("bob")
SELECT, MODIFY = Granted(ANALYSTS, "SELECT"), Granted(BOB, "MODIFY")
ON_SILVER = Grant(to="analysts", tables="silver_*")
ON_CHESS = Grant(to="bob", tables="silver_chess", privileges=["MODIFY"])

principals = st.builds(
    Principal,
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1),
    st.sampled_from(["user", "group", "role"]),
) | st.builds(Principal, st.text("abc:` to", min_size=1).map(lambda text: f"x{text}"))
some = st.frozensets(
    st.builds(Granted, st.sampled_from([ANALYSTS, BOB]), st.sampled_from(["SELECT", "MODIFY"]))
)


@given(st.builds(Granted, principals, st.sampled_from(["SELECT", "ALL PRIVILEGES", "DELETE"])))
def test_grant_in_the_ledger_is_read_as_it_was(grant: Granted) -> None:
    assert Granted.parse(str(grant)) == grant


@given(some, some, some)
def test_every_grant_is_in_exactly_one_group(
    declared: frozenset[Granted], found: frozenset[Granted], ours: frozenset[Granted]
) -> None:
    table = TableGrants.compare("chess", declared, found, ours)
    groups = [*table.kept, *table.missing, *table.obsolete, *table.foreign]
    assert len(groups) == len({*groups})
    assert {*groups} == declared | found
    assert {*table.kept, *table.missing} == declared
    assert {*table.obsolete} == (found & ours) - declared
    assert table.is_as_declared == (declared == found)


def test_patterns_and_lists_add_up() -> None:
    grants = [ON_SILVER, ON_CHESS, Grant(to="analysts", tables=["gold_*", "silver_chess"])]
    assert declared_on(grants, "silver_chess") == {SELECT, MODIFY}
    assert declared_on(grants, "silver_go") == declared_on(grants, "gold_go") == {SELECT}
    assert declared_on(grants, "ledger") == frozenset()
    assert declared_on([Grant(to="bob")], "ledger") == {Granted(BOB, "SELECT")}


@dataclass
class Run:
    """The follow-up of a run, and all that it reported."""

    catalog: FakeCatalog
    recorded: Recorded = field(default_factory=lambda: Recorded(frozenset()))
    error: Exception | None = None
    """What opening the grants raises."""
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.follow_up = CatalogFollowUp(
            UNITY,
            "/lake",
            lambda: self.recorded,
            self.catalog.open,
            self.events.append,
            [ON_SILVER, ON_CHESS],
            self._open_grants,
        )

    def _open_grants(self, _: TableCatalog) -> AbstractContextManager[GrantCatalog]:
        if self.error is not None:
            raise self.error
        return self.catalog.open()

    def follow(self, *tables: str) -> list[GrantsEntry]:
        followed = self.follow_up.follow([TableChanged(table) for table in tables], 0)
        return [entry for entry in followed.entries if isinstance(entry, GrantsEntry)]

    def taken(self) -> list[str]:
        """The calls since the last time, without those that open."""
        calls, self.catalog.calls = self.catalog.calls, []
        return [call for call in calls if call != "open"]


def test_new_table_gets_its_grants_with_its_registration_and_costs_nothing_afterwards() -> None:
    run = Run(FakeCatalog())
    entries = run.follow("silver_chess", "ledger")
    assert entries == [
        GrantsEntry("silver_chess", "main.games", ("SELECT to analysts", "MODIFY to bob"))
    ]
    assert run.events == [
        TablesRegistered("games", ("ledger", "silver_chess")),
        PrivilegesGranted("games", 2, ("silver_chess",)),
    ]
    assert run.events[-1].text == "granted 2 privileges on 1 table in games: silver_chess"
    run.taken()
    assert run.follow("silver_chess", "ledger") == run.follow() == []
    assert run.taken() == []
    run.follow("silver_go")
    assert run.taken() == ["register silver_go", "grants silver_go", "grant silver_go analysts"]


def test_first_call_grants_only_what_the_ledger_does_not_have() -> None:
    entries = {table: f"file:/lake/{table}" for table in ("silver_chess", "silver_go")}
    recorded = Recorded(
        frozenset(entries), frozenset(entries), grants={"silver_go": frozenset({SELECT})}
    )
    run = Run(FakeCatalog(entries), recorded)
    assert [entry.table for entry in run.follow()] == ["silver_chess"]
    calls = ["grants silver_chess", "grant silver_chess analysts", "grant silver_chess bob"]
    assert run.taken() == ["tables", *calls]


def test_grant_that_exists_already_is_recorded_and_not_repeated() -> None:
    catalog = FakeCatalog(granted={"silver_go": {SELECT, MODIFY}})
    run = Run(catalog)
    assert run.follow("silver_go") == [
        GrantsEntry("silver_go", "main.games", ("SELECT to analysts",))
    ]
    assert run.taken() == ["tables", "register silver_go", "grants silver_go"]
    assert run.events == [TablesRegistered("games", ("silver_go",))]


def test_refused_grant_keeps_no_other_from_being_made_and_is_recorded_once() -> None:
    catalog = FakeCatalog(refused={"analysts"})
    run = Run(catalog)
    (entry,) = run.follow("silver_chess")
    assert entry.grants == ("MODIFY to bob",)
    assert entry.error == "SELECT to analysts: analysts is unknown"
    (failed,) = [event for event in run.events if isinstance(event, CatalogFailed)]
    assert (failed.subject, failed.code) == ("main.games.silver_chess", "grant-refused")
    assert run.follow("silver_chess") == []
    known = frozenset({"silver_chess"})
    recorded = Recorded(
        known,
        known,
        grants={"silver_chess": frozenset({MODIFY})},
        grant_errors={"silver_chess": entry.error},
    )
    again = Run(catalog, recorded)
    assert again.follow() == []
    assert len(again.events) == 1
    catalog.refused.clear()
    (entry,) = Run(catalog, recorded).follow()
    assert (entry.grants, entry.error) == (("SELECT to analysts", "MODIFY to bob"), None)


def test_same_refusal_on_many_tables_is_reported_once() -> None:
    run = Run(FakeCatalog(refused={"analysts"}))
    assert len(run.follow("silver_go", "silver_poker", "silver_tag")) == 3
    (failed,) = [event for event in run.events if isinstance(event, CatalogFailed)]
    assert failed.subject == "main.games.silver_go"
    assert failed.error.startswith("not granted, also on 2 more tables: SELECT to analysts")


def test_catalog_that_goes_down_between_registration_and_grants_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(register, "monotonic", lambda: now)
    run = Run(FakeCatalog(), error=CatalogUnavailable("catalog-unavailable", "no answer"))
    assert run.follow("silver_chess") == []
    registered, failed = run.events
    assert isinstance(registered, TablesRegistered)
    assert isinstance(failed, CatalogFailed)
    run.error = None
    assert run.follow() == []
    now += 10
    (entry,) = run.follow()
    assert (entry.table, entry.error) == ("silver_chess", None)
    assert run.catalog.entries.keys() == {"silver_chess"}


@pytest.mark.parametrize(
    "error",
    [
        CatalogError("grants-unsupported", "no grants here"),
        extra_missing("databricks", ["databricks-sdk"]),
    ],
)
def test_catalog_without_grants_is_reported_once_and_recorded_for_each_table(
    error: CatalogError,
) -> None:
    run = Run(FakeCatalog(), error=error)
    (entry,) = run.follow("silver_chess")
    assert entry.error == error.message
    (entry,) = run.follow("silver_go")
    assert (entry.table, entry.error) == ("silver_go", error.message)
    (failed,) = [event for event in run.events if isinstance(event, CatalogFailed)]
    assert (failed.subject, failed.code) == ("games", error.code)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> FakeCatalog:
    catalog = FakeCatalog()
    monkeypatch.setattr(grants_module, "open_grants", lambda *_: catalog.open())
    return catalog


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    declare(lake, "[{to: analysts, tables: silver_*}]")
    tables = ("silver_chess", "silver_go", "ledger")
    record(lake.pipeline, *(CatalogEntry(table, UNITY.identity) for table in tables))
    return lake


def declare(lake: SmallLake, grants: str) -> PipelineConfig:
    before = lake.file.read_text().partition("catalog:")[0]
    lake.file.write_text(f"{before}catalog: {{name: games, in: main}}\ngrants: {grants}\n")
    return lake.pipeline


def record(pipeline: PipelineConfig, *entries: CatalogEntry | GrantsEntry) -> None:
    Ledger(pipeline.lake, pipeline.ledger, pipeline.name).add(0, entries)


def test_applied_grants_are_in_the_ledger_also_in_its_totals(
    lake: SmallLake, catalog: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = lake.pipeline
    changed = apply_grants(pipeline)
    assert changed == [
        GrantsChanged("silver_chess", (SELECT,)),
        GrantsChanged("silver_go", (SELECT,)),
    ]
    before = Recorded.of(pipeline, UNITY)
    assert before.grants == {"silver_chess": {SELECT}, "silver_go": {SELECT}}
    monkeypatch.setattr(ledger_module, "_TOTALS_EVERY", 2)
    written = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
    for batch in (1, 2, 3):
        written.complete(batch, batch, [TableEntry("silver_go", 1, batch)], batch - 1)
    assert written.snapshot().totals_at == 2
    assert Recorded.of(pipeline, UNITY) == before
    assert apply_grants(pipeline) == []
    assert plan_grants(pipeline).is_as_declared


def test_only_what_headgate_granted_is_revoked_unless_exact(
    lake: SmallLake, catalog: FakeCatalog
) -> None:
    apply_grants(lake.pipeline)
    catalog.granted["ledger"] = {MODIFY}
    pipeline = declare(lake, "[{to: analysts, tables: silver_go}]")
    assert apply_grants(pipeline) == [GrantsChanged("silver_chess", revoked=(SELECT,))]
    assert apply_grants(pipeline, exact=True) == [GrantsChanged("ledger", revoked=(MODIFY,))]
    assert catalog.granted == {"silver_go": {SELECT}, "silver_chess": set(), "ledger": set()}
    assert Recorded.of(pipeline, UNITY).grants["silver_chess"] == frozenset()


def test_revoked_are_those_of_one_principal_and_not_those_of_others(
    lake: SmallLake, catalog: FakeCatalog
) -> None:
    pipeline = declare(lake, "[{to: analysts, tables: silver_*}, {to: bob, tables: ledger}]")
    apply_grants(pipeline)
    catalog.granted["silver_go"].add(MODIFY)
    assert revoke_grants(pipeline, "analysts") == [
        GrantsChanged("silver_chess", revoked=(SELECT,)),
        GrantsChanged("silver_go", revoked=(SELECT,)),
    ]
    assert revoke_grants(pipeline, "nosuch") == []
    catalog.granted["ledger"].clear()  # revoked by someone else
    assert revoke_grants(pipeline) == []
    assert catalog.granted["silver_go"] == {MODIFY}
    assert not any(Recorded.of(pipeline, UNITY).grants.values())


def test_table_without_an_entry_has_nothing_to_revoke_and_cannot_be_planned(
    lake: SmallLake, catalog: FakeCatalog
) -> None:
    apply_grants(lake.pipeline)
    catalog.dropped = {"silver_go"}
    (_, _, go) = plan_grants(lake.pipeline).tables
    assert (go.table, go.error) == ("silver_go", "main.games.silver_go is not in the catalog")
    (refused,) = apply_grants(lake.pipeline)
    assert (refused.table, refused.error) == ("silver_go", go.error)
    (revoked,) = revoke_grants(lake.pipeline)
    assert revoked == GrantsChanged("silver_chess", revoked=(SELECT,))
    assert not any(Recorded.of(lake.pipeline, UNITY).grants.values())


def test_what_was_done_before_the_catalog_went_down_is_recorded(
    lake: SmallLake, catalog: FakeCatalog
) -> None:
    def stop_answering(_: GrantsChanged) -> None:
        catalog.is_down = True

    with pytest.raises(CatalogUnavailable):
        apply_grants(lake.pipeline, on_table=stop_answering)
    assert Recorded.of(lake.pipeline, UNITY).grants == {"silver_chess": {SELECT}}


def test_pipeline_without_a_catalog_has_nothing_to_grant(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no catalog"):
        plan_grants(SmallLake(tmp_path).pipeline)


def test_commands_show_what_they_compare_change_and_ask(
    headgate: Headgate, lake: SmallLake, catalog: FakeCatalog
) -> None:
    planned = headgate("grants", "plan", lake.file)
    assert planned.code == 0
    assert "3 tables in main.games: 2 to grant" in planned.out
    assert "silver_chess\n  +  SELECT to analysts" in planned.out
    assert f"headgate grants apply {lake.file}" in planned.out
    assert headgate("grants", "plan", lake.file, "--strict").code == 1
    plan = headgate("plan", lake.file).out
    assert "+  2 tables such as silver_chess: the next run grants what is declared" in plan
    status = headgate("status", lake.file).out
    assert "2 tables such as silver_chess lack declared grants; the next run grants them" in status
    assert "2 privileges granted\n" in headgate("grants", "apply", lake.file).out
    assert "2 privileges" in headgate("status", lake.file).out
    declare(lake, "[{to: bob, tables: silver_go}]")
    assert (
        "2 tables such as silver_chess have grants that are not declared; headgate grants apply"
        in (headgate("status", lake.file).out)
    )
    assert "-  2 tables such as silver_chess" in headgate("plan", lake.file).out
    catalog.granted["ledger"] = {MODIFY}
    catalog.refused = {"bob"}
    failed = headgate("grants", "apply", lake.file)
    assert failed.code == 1
    assert "!  SELECT to bob: bob is unknown" in failed.out
    asked = headgate("grants", "revoke", lake.file)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert "Headgate has granted nothing" in headgate("grants", "revoke", lake.file, "--yes").out


def test_revoke_lists_everything_and_asks_once(
    headgate: Headgate, lake: SmallLake, catalog: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_grants(lake.pipeline)
    answers = [False, True]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _: answers.pop(0))
    kept = headgate("grants", "revoke", lake.file)
    assert "2 privileges on 2 tables:\n  silver_chess: SELECT to analysts\n" in kept.out
    assert "Nothing was revoked" in kept.out
    assert catalog.granted["silver_chess"] == {SELECT}
    assert "2 privileges revoked" in headgate("grants", "revoke", lake.file).out
    assert answers == []
    assert not any(catalog.granted.values())
