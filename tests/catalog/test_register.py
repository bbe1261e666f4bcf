"""What is registered, when, and what happens if the catalog refuses or is down."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from headgate.catalog import register
from headgate.catalog.catalog import is_same_location, location_of
from headgate.catalog.recorded import Recorded
from headgate.catalog.register import CatalogFollowUp
from headgate.catalog.spark_sql import text
from headgate.config import Catalog
from headgate.engine.events import CatalogFailed, Event, TablesRegistered
from headgate.engine.follow_up import TableChanged
from headgate.lake.ledger_entries import CatalogEntry
from headgate.sql.parse import quoted
from tests.catalog.fake_catalog import FakeCatalog

CATALOG = Catalog(name="games", in_="thrift://localhost:9083")
LAKE = "/data/lake"


@dataclass
class Run:
    """A follow-up of a run, and all that it reported."""

    catalog: FakeCatalog
    recorded: Recorded
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.follow_up = CatalogFollowUp(
            CATALOG, LAKE, lambda: self.recorded, self.catalog.open, self.events.append
        )

    def follow(self, *tables: str, batch: int | None = 0) -> list[CatalogEntry]:
        followed = self.follow_up.follow([TableChanged(table) for table in tables], batch)
        return [entry for entry in followed.entries if isinstance(entry, CatalogEntry)]

    def taken(self) -> list[str]:
        """The calls since the last time."""
        calls, self.catalog.calls = self.catalog.calls, []
        return calls


def recorded(*tables: str, registered: tuple[str, ...] = ()) -> Recorded:
    return Recorded(frozenset(tables), frozenset(registered))


def test_first_call_registers_what_is_missing_and_later_ones_only_new_tables() -> None:
    known = recorded("chess", "go", "ledger", registered=("chess",))
    run = Run(FakeCatalog({"chess": "file:/data/lake/chess"}), known)
    entries = run.follow("chess")
    assert run.taken() == ["open", "tables", "register go", "register ledger"]
    assert [entry.table for entry in entries] == ["go", "ledger"]
    assert {entry.catalog for entry in entries} == {"thrift://localhost:9083/games"}
    assert run.follow("chess", "go") == run.follow(batch=None) == []
    assert run.taken() == []
    assert run.follow("chess", "poker") == [CatalogEntry("poker", CATALOG.identity)]
    assert run.taken() == ["open", "register poker"]
    assert run.catalog.entries["poker"] == "file:/data/lake/poker"
    assert run.events == [
        TablesRegistered("games", ("go", "ledger")),
        TablesRegistered("games", ("poker",)),
    ]


def test_entry_that_the_ledger_does_not_know_is_compared() -> None:
    there = {"chess": "file:///data/lake/chess/", "go": "s3a://other/go"}
    run = Run(FakeCatalog(there), recorded("chess", "go"))
    chess, go = run.follow()
    assert chess == CatalogEntry("chess", CATALOG.identity)
    assert go.error is not None
    assert "games.go" in go.error
    assert "s3a://other/go" in go.error
    assert run.catalog.entries == there
    (failed,) = [event for event in run.events if isinstance(event, CatalogFailed)]
    assert (failed.subject, failed.code) == ("games.go", "catalog-refused")


def test_table_that_another_process_registers_meanwhile_is_registered() -> None:
    run = Run(FakeCatalog(), recorded())
    run.follow("chess")
    run.catalog.entries["go"] = "file:/data/lake/go"
    assert run.follow("go") == [CatalogEntry("go", CATALOG.identity)]


def test_refused_table_is_reported_once_and_keeps_no_other_from_being_registered() -> None:
    run = Run(FakeCatalog(refused={"bad"}), recorded("bad", "chess"))
    bad, chess = run.follow()
    assert (bad.error, chess.error) == ("bad is refused", None)
    assert run.follow("bad") == []
    again = Run(run.catalog, Recorded(frozenset({"bad"}), errors={"bad": "bad is refused"}))
    assert again.follow() == []
    assert len(again.events) == 1


def test_catalog_that_is_down_is_reported_once_and_retried_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(register, "monotonic", lambda: now)
    run = Run(FakeCatalog(is_down=True), recorded("ledger"))
    assert run.follow("chess") == []
    assert run.taken() == ["open"]
    assert run.follow("go") == []
    assert run.taken() == []
    now += 10
    assert run.follow(batch=None) == []
    (failed,) = run.events
    assert isinstance(failed, CatalogFailed)
    assert failed.text.endswith("no answer; will be retried [catalog-unavailable]")
    run.catalog.is_down = False
    now += 10
    assert [entry.table for entry in run.follow(batch=None)] == ["chess", "go", "ledger"]
    run.catalog.is_down = True
    run.follow("poker")
    assert len([event for event in run.events if isinstance(event, CatalogFailed)]) == 2


@pytest.mark.parametrize(
    ("lake", "location"),
    [
        ("/data/it's a lake", "file:/data/it's a lake/chess"),
        ("s3://bucket/lake/", "s3a://bucket/lake/chess"),
        ("s3a://bucket/lake", "s3a://bucket/lake/chess"),
        ("abfss://lake@account.dfs.core.windows.net/x", None),
        ("gs://bucket", "gs://bucket/chess"),
    ],
)
def test_location_is_one_that_spark_reaches(lake: str, location: str | None) -> None:
    found = location_of(lake, "chess")
    assert found == (location or f"{lake}/chess")
    assert is_same_location(found, f"{found}/")


def test_locations_are_compared_in_all_their_spellings() -> None:
    assert is_same_location("file:/a/b", "file:///a/b/")
    assert is_same_location("/a/b", "file:/a/b")
    assert is_same_location("s3://a/b", "s3a://a/b")
    assert not is_same_location("s3://a/b", "gs://a/b")
    assert not is_same_location("file:/a/b", "file:/a/bc")


def test_names_and_texts_cannot_end_their_quotes() -> None:
    assert quoted("a`; DROP TABLE b; --") == "`a``; DROP TABLE b; --`"
    assert text("it's \\ here") == "'it\\'s \\\\ here'"
