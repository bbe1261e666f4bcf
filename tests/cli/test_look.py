"""`status`, `tables`, `schema`, `quarantine`: the same lake, seen four ways."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.lake.staged import StagedBatch
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.small_lake import SmallLake


@pytest.fixture(autouse=True)
def _two_hours_later(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    later = lake.made_at + timedelta(hours=2, minutes=30)
    monkeypatch.setattr("headgate.cli.output.now", lambda: later)


@pytest.mark.parametrize(
    "command",
    [
        "status PIPELINE",
        "tables PIPELINE",
        "schema PIPELINE silver_chess",
        "quarantine list PIPELINE --limit 5",
        "quarantine list PIPELINE --reason route_missing",
    ],
)
def test_look(headgate: Headgate, snapshot: Snapshot, lake: SmallLake, command: str) -> None:
    printed = headgate(*command.replace("PIPELINE", str(lake.file)).split())
    assert (printed.code, printed.err) == (0, "")
    snapshot.also(lake.folder, "<folder>").check(printed.out)


def test_look_at_one_record(headgate: Headgate, snapshot: Snapshot, lake: SmallLake) -> None:
    listed = _data(headgate, "quarantine", "list", lake.file, "--reason", "payload_undecodable")
    position = listed["records"][0]["position"]
    name = f"{position['topic']}:{position['partition']}:{position['offset']}"
    printed = headgate("quarantine", "show", lake.file, name)
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


@pytest.mark.parametrize("command", ["status", "tables", "schema", "quarantine list"])
def test_look_as_json_has_the_envelope(headgate: Headgate, lake: SmallLake, command: str) -> None:
    table = ["chess"] if command == "schema" else []
    assert _data(headgate, *command.split(), lake.file, *table)


def test_tables_as_json_have_every_table(headgate: Headgate, lake: SmallLake) -> None:
    tables = _data(headgate, "tables", lake.file)
    assert [each["table"] for each in tables][-2:] == ["bronze_games", "quarantine"]
    assert sum(each["rows"] for each in tables if each["kind"] == "silver") < lake.sent


def test_a_quarantined_value_is_base64_in_json(headgate: Headgate, lake: SmallLake) -> None:
    records = _data(headgate, "quarantine", "list", lake.file, "--limit", "100")["records"]
    assert all(each["value"] is None or isinstance(each["value"], str) for each in records)


def test_the_pipeline_may_be_left_out(
    headgate: Headgate, lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.folder)
    assert "silver_chess of route chess" in headgate("schema", "chess").out
    assert "[record-unknown]" in headgate("quarantine", "show", "games:7:7").err


def test_schema_needs_a_table(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("schema", lake.file)
    assert (printed.code, "missing argument TABLE" in printed.err) == (2, True)


def test_an_unknown_table_fails_with_a_suggestion(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("schema", lake.file, "ches")
    assert printed.code == 1
    assert "hint: did you mean `silver_chess`?" in printed.err


def test_an_unknown_reason_is_a_usage_error(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("quarantine", "list", lake.file, "--reason", "null_vale")
    assert printed.code == 2
    assert "hint: did you mean `null_value`?" in printed.err


@pytest.mark.parametrize("command", ["status", "tables", "quarantine list"])
def test_look_before_the_first_run(headgate: Headgate, command: str) -> None:
    headgate("init", "games-embedded")
    printed = headgate(*command.split())
    assert (printed.code, printed.err) == (0, "")
    assert "Nothing has landed yet" in printed.out or "No records in" in printed.out


def test_status_shows_pending_tables(
    headgate: Headgate, snapshot: Snapshot, tmp_path: Path
) -> None:
    lake = SmallLake(tmp_path, refused=["silver_go"])
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    lake.landing.note.write(StagedBatch(1, 1, {}, {}, ()))
    snapshot.check(headgate("status", "games.yaml").out)


def test_control_characters_of_messages_are_escaped(
    headgate: Headgate, lake: SmallLake, tmp_path: Path
) -> None:
    from headgate.cli.output import printable

    assert printable("a\x1b[31mb\nc\u202e") == "a\\x1b[31mb\\nc\\u202e"


def _data(headgate: Headgate, *words: str | Path) -> Any:
    printed = headgate(*words, "--json")
    assert (printed.code, printed.err) == (0, "")
    answer = json.loads(printed.out)
    assert answer["ok"] is True
    return answer["data"]
