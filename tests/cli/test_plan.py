"""`plan` and `schema diff`: a lake, and schemas that no record has yet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.commands.plan import print_plan
from headgate.engine.land_table import RequestedChange
from headgate.inspect.plan import PipelinePlan, TablePlan
from headgate.registry.registry import SchemaText, SubjectVersion
from headgate.schema.changes import AddColumn, CreateTable, Outcome, WidenType
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.small_lake import SmallLake, make_small_lake

_HEAD = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message event { '
_TIME = "google.protobuf.Timestamp event_timestamp = 3; "
_GO = "string game_name = 1; string user_name = 2; string is_connection_stable = 4; "
COMING = {
    "chess-value": f"int32 game_name = 1; string player = 2; {_TIME} int64 rating = 9; }}",
    "go-value": f"{_GO}{_TIME} string col_go_game_0 = 5; string col_go_game_1 = 6; bool x = 7; }}",
    "checkers-value": "nonsense }",
    "draughts-value": "int32 n = 1; }",
}


@pytest.fixture(scope="module")
def coming(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Landed once; four schemas are registered that have not come yet."""
    lake = make_small_lake(tmp_path_factory.mktemp("coming"))
    for subject, body in COMING.items():
        lake.registry.register(subject, SchemaText("PROTOBUF", _HEAD + body))
    return lake


@pytest.fixture
def under(coming: SmallLake, tmp_path: Path) -> Any:
    """The same lake under another contract."""

    def write(contract: str) -> Path:
        text = coming.file.read_text().replace("./", f"{coming.folder}/")
        file = tmp_path / "other.yaml"
        file.write_text(f"{text}\ncontract: {contract}\n")
        return file

    return write


def test_plan(headgate: Headgate, snapshot: Snapshot, coming: SmallLake) -> None:
    printed = headgate("plan", coming.file)
    assert (printed.code, printed.err) == (0, "")
    snapshot.also(coming.folder, "<folder>").check(printed.out)


@pytest.mark.parametrize("mode", ["freeze", "discard_row", "discard_value"])
def test_plan_under(headgate: Headgate, snapshot: Snapshot, under: Any, mode: str) -> None:
    printed = headgate("plan", under(mode))
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_plan_of_nothing_new(headgate: Headgate, snapshot: Snapshot, lake: SmallLake) -> None:
    printed = headgate("plan", lake.file, "--strict")
    assert (printed.code, printed.err) == (0, "")
    snapshot.also(lake.folder, "<folder>").check(printed.out)


def test_plan_shows_the_size_of_a_rewrite(
    capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    orders = SubjectVersion("orders-value", 3, 7)
    changes = (
        RequestedChange(WidenType("n", "int", "long"), (7,)),
        RequestedChange(AddColumn("b\x1b[2J", "string"), (7,)),
    )
    many = tuple(SubjectVersion(f"subject-{at}", 1, at) for at in range(12))
    table = TablePlan("silver_orders", "orders", True, (orders,), changes, (), 1_234_567)
    refused = RequestedChange(CreateTable("silver_new", 3, outcome=Outcome.REFUSED), (8,))
    new = TablePlan("silver_new", None, False, (SubjectVersion("new-value", 1, 8),), (refused,))
    before = replace(table, table="silver_old", changes=(), as_before=(refused,))
    print_plan(PipelinePlan("shop", (new, before, table), (), many))
    snapshot.check(capsys.readouterr().out)


def test_plan_before_the_first_run(headgate: Headgate) -> None:
    headgate("init", "games-embedded")
    printed = headgate("plan")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("games: 0 tables: no changes\n")


def test_a_strict_plan_fails_if_a_change_is_not_applied(
    headgate: Headgate, coming: SmallLake
) -> None:
    printed = headgate("plan", coming.file, "--strict")
    assert (printed.code, printed.out) == (1, headgate("plan", coming.file).out)
    assert printed.err == (
        "error: 2 columns would be kept apart, 1 schema would be refused [schema-withheld]\n"
        "hint: fix the schema, or change `contract` in the pipeline file\n"
    )


def test_a_plan_as_json_has_all_values(headgate: Headgate, coming: SmallLake) -> None:
    printed = headgate("plan", coming.file, "--json")
    answer = json.loads(printed.out)
    assert (printed.code, answer["ok"]) == (0, True)
    plan = answer["data"]
    assert plan["summary"]["changed"] == 2
    chess, go = (one for one in plan["tables"] if one["changes"])
    assert chess["schemas"] == [{"subject": "chess-value", "version": 4, "schema_id": 11}]
    assert go["changes"] == [
        {
            "change": "AddColumn",
            "column": "x",
            "type": "boolean",
            "outcome": "applied",
            "breaking": False,
            "text": "+ x boolean",
            "schema_ids": [12],
        }
    ]
    assert [one["reason"] for one in plan["unusable"]] == ["schema_refused"]
    assert [one["subject"] for one in plan["without_table"]] == ["draughts-value"]


def test_a_strict_plan_as_json_is_one_document(headgate: Headgate, coming: SmallLake) -> None:
    printed = headgate("plan", coming.file, "--json", "--strict")
    answer = json.loads(printed.out)
    assert (printed.code, printed.err, answer["ok"]) == (1, "", False)
    assert [one["code"] for one in answer["errors"]] == ["schema-withheld"]
    assert answer["data"]["tables"]


def test_a_registry_that_is_down_is_an_error_with_a_hint(
    headgate: Headgate, coming: SmallLake
) -> None:
    text = coming.file.read_text()
    url = "{url: http://127.0.0.1:9, timeout: 1ms}"
    Path("down.yaml").write_text(text.replace("registry: ./schemas", f"registry: {url}"))
    printed = headgate("plan", "down.yaml")
    assert (printed.code, printed.out) == (1, "")
    assert "[registry-unavailable]" in printed.err
    assert "hint: fix the registry and run again" in printed.err


@pytest.mark.parametrize(
    "names",
    [
        "silver_chess chess-value",
        "chess-value@1 11",
        "silver_go@0 go-value",
        "chess chess",
    ],
)
def test_diff(headgate: Headgate, snapshot: Snapshot, coming: SmallLake, names: str) -> None:
    printed = headgate("schema", "diff", *names.split(), "--pipeline", coming.file)
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_diff_has_the_outcomes_of_the_contract(headgate: Headgate, under: Any) -> None:
    words = ["schema", "diff", "go", "go-value", "--pipeline", under("freeze"), "--json"]
    diff = json.loads(headgate(*words).out)["data"]
    assert diff["contract"] == {
        "tables": "freeze",
        "columns": "freeze",
        "types": "freeze",
        "unknown_fields": "quarantine",
    }
    assert (diff["from"]["what"], diff["from"]["version"]) == ("table", 1)
    assert (diff["to"]["what"], diff["to"]["schema_id"]) == ("subject", 12)
    assert [(one["text"], one["outcome"]) for one in diff["changes"]] == [
        ("+ x boolean", "refused")
    ]


def test_diff_of_files_needs_no_pipeline(headgate: Headgate) -> None:
    Path("old.proto").write_text(f"{_HEAD}int32 n = 1; }}")
    Path("new.proto").write_text(f"{_HEAD}int64 n = 1; }}")
    printed = headgate("schema", "diff", "old.proto", "./new.proto")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == (
        "from file old.proto\n"
        "to   file ./new.proto\n\n"
        "     CHANGE                     OUTCOME\n"
        "  ~  n widens from int to long  applied\n"
    )


def test_diff_with_a_name_that_is_unknown_suggests_one(
    headgate: Headgate, coming: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(coming.folder)
    printed = headgate("schema", "diff", "ches", "chess-value")
    assert (printed.code, printed.out) == (1, "")
    assert "no table or subject `ches` [name-unknown]" in printed.err
    assert "hint: did you mean `silver_chess`?" in printed.err


def test_diff_needs_two_names(headgate: Headgate) -> None:
    printed = headgate("schema", "diff", "chess")
    assert (printed.code, printed.out) == (2, "")
    assert printed.err.endswith("hint: headgate schema diff --help\n")


@pytest.mark.parametrize("words", [["chess"], ["--json", "chess"], ["show", "chess"]])
def test_schema_shows_a_table_by_default(
    headgate: Headgate, lake: SmallLake, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(lake.folder)
    printed = headgate("schema", *words)
    assert (printed.code, printed.err) == (0, "")
    assert "silver_chess" in printed.out
