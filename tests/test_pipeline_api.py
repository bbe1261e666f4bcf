"""The Python interface, on lakes that were landed in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.config import load_pipeline
from headgate.engine.events import Ended, SchemaChanged
from headgate.inspect.graph import read_graph
from headgate.inspect.plan import read_plan
from headgate.inspect.schema import read_table_schema
from headgate.inspect.status import PendingTable, read_status
from headgate.inspect.tables import read_tables
from headgate.notebook import ResultView, cell
from headgate.run_result import RunTally
from headgate.schema.changes import AddColumn
from tests.inspect.change_lake import FIRST, ShopLake, make_shop_lake
from tests.inspect.quarantined_lake import RUBBISH, UNKNOWN, make_quarantined_lake
from tests.inspect.small_lake import SmallLake, make_small_lake

HOSTILE = "<script>alert('x')</script>\x1b[31m"


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> headgate.Pipeline:
    """Landed once; tests only look at it."""
    return headgate.load(make_small_lake(tmp_path_factory.mktemp("games")).file)


@pytest.fixture
def quarantined(tmp_path: Path) -> headgate.Pipeline:
    return headgate.load(make_quarantined_lake(tmp_path).file)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ShopLake:
    return make_shop_lake(tmp_path_factory.mktemp("shop"))


def _declared(**more: Any) -> headgate.Pipeline:
    return headgate.Pipeline(
        name="games",
        source=headgate.Delta(path="./inbox"),
        registry="./schemas",
        envelope=headgate.Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake="./lake",
        **more,
    )


def test_pipeline_of_a_file_equals_the_same_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("games.yaml").write_text(
        "name: games\n"
        "source: {delta: {path: ./inbox}}\n"
        "registry: ./schemas\n"
        "envelope: {wrapper: {message: wrapper, route: game_name, schema_id: schema_id, "
        "payload: payload}}\n"
        "lake: ./lake\n"
        "quarantine: bad\n"
        "trigger: 5s\n"
        "contract: {per_table: {silver_chess: {columns: freeze}}}\n"
        "expect: {silver_*: {named: {rule: user_name IS NOT NULL}}}\n"
        "gold: {'gold_{route}': SELECT count(*) AS n FROM silver, "
        "every: {from: 'gold_*', select: 'route, n'}}\n"
    )
    loaded = headgate.load("games.yaml")
    assert loaded == _declared(
        quarantine="bad",
        trigger=headgate.Duration(seconds=5),
        contract=headgate.Contract(
            per_table={"silver_chess": headgate.TableRules(columns="freeze")}
        ),
        expect={"silver_*": {"named": headgate.Expectation(rule="user_name IS NOT NULL")}},
        gold={
            "gold_{route}": headgate.GoldQuery(sql="SELECT count(*) AS n FROM silver"),
            "every": headgate.GoldUnion(from_="gold_*", select="route, n"),
        },
    )
    assert (loaded.file, loaded.quarantine_table) == ("games.yaml", "bad")


def test_invalid_file_raises_with_all_findings(tmp_path: Path) -> None:
    file = tmp_path / "games.yaml"
    file.write_text("name: games\nquarantine_table: bad\n")
    with pytest.raises(headgate.InvalidPipeline) as raised:
        headgate.load(file)
    assert {"unknown-key", "missing-key"} <= {one.code for one in raised.value.findings}


def test_quarantine_is_the_only_key_of_its_table() -> None:
    with pytest.raises(headgate.InvalidPipeline, match="no key `quarantine_table`"):
        _declared(quarantine_table="bad")
    with pytest.raises(headgate.InvalidPipeline, match="`quarantine` cannot be `ledger`"):
        _declared(quarantine="ledger")


def test_importing_loads_neither_spark_nor_arrow() -> None:
    script = (
        "import json, sys, headgate; headgate.Pipeline; "
        "print(json.dumps([m for m in ('pyspark', 'pyarrow', 'deltalake') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert json.loads(done.stdout) == []


def test_inspecting_gives_the_values_of_the_commands(games: headgate.Pipeline) -> None:
    assert games.file is not None
    declared = load_pipeline(games.file)
    assert list(games.tables()) == read_tables(declared)
    assert games.status() == read_status(declared)
    assert games.schema("chess") == read_table_schema(declared, "chess")
    assert games.graph() == read_graph(declared)
    assert games.plan() == read_plan(declared)


def test_results_print_as_tables(games: headgate.Pipeline) -> None:
    tables = games.tables()
    header, *lines = repr(tables).splitlines()
    assert header.split()[:3] == ["table", "kind", "route"]
    assert len(lines) == len(tables)
    assert tables._repr_html_().count("<tr>") == len(tables) + 1
    assert "<caption>history</caption>" in games.schema("chess")._repr_html_()
    assert "silver_chess" in games.plan()._repr_html_()
    status = games.status()
    assert f"batches         {status.batches}" in str(status)
    assert "<th>schema changes</th><td>1</td>" in status._repr_html_()


@dataclass(frozen=True)
class _Part:
    name: str
    payload: bytes = b""
    unset: str | None = None


@dataclass(frozen=True)
class _Whole(ResultView):
    name: str
    parts: tuple[_Part, ...]


def test_hostile_values_are_escaped() -> None:
    whole = _Whole(HOSTILE, (_Part(HOSTILE),))
    rows = headgate.Rows.of([_Part(HOSTILE)])
    for html in (whole._repr_html_(), rows._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert "\x1b" not in html
    assert "\x1b" not in f"{whole} {rows}"


def test_cells_are_short() -> None:
    assert cell(b"\x00\xff") == "00 ff"
    assert cell(b"x" * 100).endswith("(100 bytes)")
    assert cell(range(20)).endswith("… 12 more")
    assert len(cell("x" * 1000)) < 200
    assert cell({"schema_unknown": 1200}) == "schema_unknown 1,200"


def test_rows_are_a_frozen_sequence() -> None:
    rows = headgate.Rows.of([_Part("a"), _Part("b"), _Part("c")], total=9)
    assert (len(rows), rows.total, rows[0], _Part("b") in rows) == (3, 9, _Part("a"), True)
    assert list(rows[1:]) == [_Part("b"), _Part("c")]
    # Columns that no row has a value for are left out.
    assert repr(rows) == "name\na\nb\nc\n3 of 9"
    assert repr(headgate.Rows.of([])) == "nothing"
    with pytest.raises(FrozenInstanceError):
        rows.total = 3  # type: ignore[misc]


def test_read_returns_rows_of_any_version(games: headgate.Pipeline) -> None:
    (chess,) = [one for one in games.tables() if one.table == "silver_chess"]
    assert games.read("silver_chess").num_rows == chess.rows
    first = games.read("silver_chess", version=0)
    assert 0 < first.num_rows < chess.rows
    assert "col_chess_game_2" not in first.column_names
    assert games.read("silver_chess", columns=["user_name"]).column_names == ["user_name"]
    # A column that the table is partitioned by is not in its files.
    assert set(games.read("bronze_games")["route"].to_pylist()) >= {"chess", "go"}


@pytest.mark.parametrize(
    ("table", "version", "columns", "code", "hint"),
    [
        ("silver_ches", None, None, "table-unknown", "did you mean `silver_chess`?"),
        ("../inbox", None, None, "table-unknown", "`.tables()` lists all tables"),
        ("silver_chess", 99, None, "bad-argument", "the newest is 1"),
        ("silver_chess", -1, None, "bad-argument", "the newest is 1"),
        ("silver_chess", None, ["user_nam"], "bad-argument", "did you mean `user_name`?"),
    ],
)
def test_read_of_something_unknown_has_a_hint(
    games: headgate.Pipeline,
    table: str,
    version: int | None,
    columns: list[str] | None,
    code: str,
    hint: str,
) -> None:
    with pytest.raises(headgate.HeadgateError) as raised:
        games.read(table, version, columns)
    assert (raised.value.code, raised.value.hint) == (code, hint)


def test_quarantine_is_listed_replayed_and_dropped(quarantined: headgate.Pipeline) -> None:
    quarantine = quarantined.quarantine
    assert quarantine.list(limit=3).total == UNKNOWN + RUBBISH
    assert len(quarantine.list(limit=3)) == 3
    assert quarantine.list(offset="games:0:20-29", reason="schema_unknown").total == 10
    assert quarantine.list(since=datetime.now(UTC) + timedelta(hours=1)).total == 0
    assert quarantine.list(until="2020-01-01").total == 0
    events: list[headgate.Event] = []
    done = quarantine.replay(reason="schema_unknown", on_event=events.append)
    assert sum(done.landed.values()) == UNKNOWN
    assert any(isinstance(event, headgate.SchemaChanged) for event in events)
    assert quarantine.drop(reason="envelope_undecodable") == {"envelope_undecodable": RUBBISH}
    assert not quarantine.list()
    assert quarantine.list(state="replayed").total == UNKNOWN
    assert quarantine.list(state="all").total == UNKNOWN + RUBBISH


def test_quarantine_refuses_filters_that_cannot_match(quarantined: headgate.Pipeline) -> None:
    quarantine = quarantined.quarantine
    with pytest.raises(headgate.HeadgateError, match="unknown reason `schema`"):
        quarantine.list(reason="schema")
    with pytest.raises(headgate.HeadgateError, match="since: `yesterday` is not a time"):
        quarantine.replay(since="yesterday")
    with pytest.raises(headgate.HeadgateError, match="unknown state `opn`"):
        quarantine.list(state="opn")
    with pytest.raises(headgate.HeadgateError, match="no records selected"):
        quarantine.drop()
    with pytest.raises(headgate.HeadgateError, match="cannot be combined"):
        quarantine.drop(reason="schema_unknown", all_open=True)
    assert quarantine.list().total == UNKNOWN + RUBBISH


def test_change_files_rewind_and_verify(shop: ShopLake) -> None:
    pipeline = headgate.load(shop.file)
    made = pipeline.rewind("shop.orders", to=FIRST + timedelta(minutes=5), into="before")
    assert made.rows == 4
    assert pipeline.read("before").num_rows == 4
    verified = pipeline.verify("shop_orders", "shop_customers")
    assert {one.table for one in verified} >= {"shop_orders", "shop_customers"}
    assert all(one.is_ok for one in verified)


def test_streams_of_records_cannot_rewind(games: headgate.Pipeline) -> None:
    with pytest.raises(headgate.HeadgateError, match="`rewind` is for change files"):
        games.rewind("silver_chess", to="2026-11-01")


def test_landed_tables_are_verified(games: headgate.Pipeline) -> None:
    verified = games.verify()
    assert verified.is_ok
    assert {table.table for table in verified} >= {"silver_chess", "quarantine"}
    assert "silver_chess" in verified._repr_html_()
    assert [table.table for table in games.verify("silver_chess").landed] == ["silver_chess"]
    with pytest.raises(headgate.HeadgateError, match="nothing has landed in a table `silver_ches`"):
        games.verify("silver_ches")


def test_check_finds_mistakes_of_the_proto_file(tmp_path: Path) -> None:
    proto = tmp_path / "wrapper.proto"
    proto.write_text('syntax = "proto3"; message wrapper { string game_name = 1; }')
    envelope = {"message": "wrapper", "route": "game_name", "schema_id": "schema_id"}
    pipeline = _declared().model_copy(
        update={"envelope": headgate.Wrapper(**envelope, payload="payload", proto=str(proto))}
    )
    (finding,) = pipeline.check()
    assert (finding.code, finding.where) == ("bad-proto", None)
    assert _declared().check() == []


def test_run_result_adds_up_the_events_of_a_run(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, refused=["silver_go"])
    seen: list[headgate.Event] = []
    tally = RunTally(headgate.load(lake.file), seen.append)
    lake.register(2, versions=[1])
    lake.land(100, bad_share=0.1)
    lake.register(1, versions=[2])
    lake.land(50, bad_share=0)
    for event in lake.landing.events:
        tally.take(event)
    landed = [event for event in seen if isinstance(event, headgate.BatchLanded)]
    rows = sum(event.rows for event in landed)
    quarantined = sum(sum(event.quarantined.values()) for event in landed)
    tables = frozenset({"silver_chess", "silver_go"})
    result = tally.result(Ended(2, rows, quarantined, stopped=False, tables=tables))
    (pending,) = result.pending
    assert (pending.table, result.ok) == ("silver_go", False)
    assert result.records + pending.rows == 150
    assert sum(result.quarantined.values()) == quarantined > 0
    assert result.batches == 2
    assert result.tables == ("silver_chess", "silver_go")
    assert result.new_tables == ("silver_chess",)
    assert [change.table for change in result.schema_changes] == ["silver_chess"]
    assert 0 < result.landing_seconds <= result.seconds


def test_run_result_prints_what_landed() -> None:
    change = AddColumn("age", "int")
    result = headgate.RunResult(
        pipeline="games",
        batches=2,
        rows=290,
        quarantined={"schema_unknown": 10},
        tables=("silver_chess", "silver_go"),
        new_tables=("silver_go",),
        schema_changes=(SchemaChanged(1, "silver_chess", change),),
        seconds=9.5,
        landing_seconds=1.5,
        stopped=False,
        pending=(PendingTable("silver_go", 3, 1, f"no room {HOSTILE}"),),
    )
    assert (result.records, result.ok) == (300, False)
    assert str(result).splitlines() == [
        "games done: 300 records in 2 batches, landed in 1.5 s (200 records/s)",
        "  290 rows; the lake has 2 tables, 1 of them new",
        "  1 schema change",
        "  10 quarantined: schema_unknown 10",
        "  pending: silver_go with 3 rows: no room <script>alert('x')</script>\\x1b[31m",
    ]
    assert "<caption>pending</caption>" in result._repr_html_()
    assert "<script>" not in result._repr_html_()
