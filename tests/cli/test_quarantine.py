"""`quarantine replay` and `drop`, and the choices that `list` shares with them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.commands.quarantine_output import print_replayed
from headgate.cli.main import run_command
from headgate.lake.run_lock import run_lock
from headgate.quarantine.replay import Replayed
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.quarantined_lake import RUBBISH, UNKNOWN, make_quarantined_lake
from tests.inspect.small_lake import SmallLake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    made = make_quarantined_lake(tmp_path)
    later = made.made_at + timedelta(hours=2, minutes=30)
    monkeypatch.setattr("headgate.cli.output.now", lambda: later)
    return made


def data(headgate: Headgate, *words: str) -> Any:
    printed = headgate("quarantine", *words, "--json")
    assert (printed.code, printed.err) == (0, "")
    return json.loads(printed.out)["data"]


def total(headgate: Headgate, *words: str) -> int:
    return int(data(headgate, "list", *words)["total"])


def test_replay_prints_what_landed_and_what_stays(
    headgate: Headgate, lake: SmallLake, snapshot: Snapshot
) -> None:
    printed = headgate("quarantine", "replay")
    assert printed.code == 0
    assert f"{UNKNOWN} records into 2 tables" in printed.err
    snapshot.check(printed.out)


def test_replay_of_one_reason_leaves_nothing(headgate: Headgate, lake: SmallLake) -> None:
    done = data(headgate, "replay", "--reason", "schema_unknown")
    assert (done["taken"], sum(done["landed"].values())) == (UNKNOWN, UNKNOWN)
    assert (done["remaining"], done["waiting"]) == ({}, {})
    assert total(headgate) == RUBBISH
    assert total(headgate, "--state", "replayed") == UNKNOWN
    assert total(headgate, "--all") == UNKNOWN + RUBBISH


def test_replay_takes_no_more_than_its_limit(headgate: Headgate, lake: SmallLake) -> None:
    assert data(headgate, "replay", "--limit", "3")["taken"] == 3
    assert total(headgate, "--reason", "schema_unknown") == UNKNOWN - 3


def test_replay_where_nothing_is_open(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("quarantine", "replay", "--since", "2999-01-01")
    assert (printed.code, printed.out) == (0, "No records in quarantine that match\n")


def test_replay_beside_another_is_refused(headgate: Headgate, lake: SmallLake) -> None:
    with run_lock(lake.pipeline.lake, "games.replay", "games"):
        printed = headgate("quarantine", "replay")
    assert printed.code == 1
    assert "[quarantine-in-use]" in printed.err


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--reason", "schema_unknown"], UNKNOWN),
        (["--offset", "games:0:20-22"], 3),
        (["--offset", "games:0:20"], 1),
        (["--offset", "other:0:20-22"], 0),
        (["--since", "2020-01-01 12:00", "--until", "2999-01-01T00:00+02:00"], UNKNOWN + RUBBISH),
        (["--until", "2020-01-01"], 0),
        (["--table", "silver_chess", "--route", "silver_chess"], None),
    ],
)
def test_filters_are_the_same_for_all_commands(
    headgate: Headgate, lake: SmallLake, words: list[str], count: int | None
) -> None:
    listed = total(headgate, *words)
    assert count is None or listed == count
    dropped = data(headgate, "drop", *words, "--yes")["dropped"]
    assert sum(dropped.values()) == listed
    assert total(headgate, *words) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--since", "yesterday"], "--since: `yesterday` is not a time"),
        (["replay", "--offset", "games"], "`games` is not a range of offsets"),
        (["replay", "--reason", "null_vale"], "did you mean `null_value`?"),
        (["list", "--state", "opn"], "did you mean `open`?"),
        (["drop", "--yes"], "no records selected"),
        (["drop", "--all", "--reason", "null_value"], "--all cannot be combined with filters"),
        (["drop", "--all"], "cannot prompt: stdin is not a terminal"),
        (["drop", "--all", "--json"], "cannot prompt: stdin is not a terminal"),
    ],
)
def test_a_bad_filter_is_a_usage_error(
    headgate: Headgate, lake: SmallLake, words: list[str], said: str
) -> None:
    printed = headgate("quarantine", *words)
    assert printed.code == 2
    assert said in printed.out + printed.err


def test_drop_prints_what_went(headgate: Headgate, lake: SmallLake, snapshot: Snapshot) -> None:
    printed = headgate("quarantine", "drop", "--reason", "schema_unknown", "--yes")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", UNKNOWN)])
def test_drop_asks_for_confirmation(
    lake: SmallLake,
    headgate: Headgate,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    left: int,
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr("sys.stdin", Terminal())
    printed = headgate("quarantine", "drop", "--reason", "schema_unknown")
    assert printed.code == 0
    assert f"Drop {UNKNOWN} records for good?" in printed.out
    assert f"{UNKNOWN}  schema_unknown" in printed.out
    assert total(headgate, "--reason", "schema_unknown") == left


def test_show_has_the_state_of_a_record(
    headgate: Headgate, lake: SmallLake, snapshot: Snapshot
) -> None:
    run_command(["quarantine", "replay", "--offset", "games:0:20", "--json"])
    run_command(["quarantine", "drop", "--offset", "games:0:21", "--yes", "--json"])
    headgate("status")
    shown = [headgate("quarantine", "show", f"games:0:{n}").out for n in (20, 21)]
    assert shown[0].startswith("games:0:20 was replayed")
    assert shown[1].startswith("games:0:21 was dropped")
    snapshot.check(headgate("quarantine", "list", "--all", "--offset", "games:0:20-22").out)


def test_list_by_state(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("quarantine", "list", "--state", "dropped")
    assert printed.out == "No dropped records in quarantine\n"


def test_replay_with_pending_tables_is_summarized(
    capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    landed = {f"silver_{number:02}": 100 - number for number in range(14)}
    remaining = {"schema_unknown": 7, "too_many_tables": 3}
    print_replayed("games.yaml", Replayed(2000, landed, remaining, {"silver_go": 9}, True))
    snapshot.check(capsys.readouterr().out)
