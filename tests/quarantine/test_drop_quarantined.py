from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import LedgerRow, QuarantineEntry
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import drop_quarantined
from headgate.testing import Crash
from headgate.testing.lake import stage_in_process
from tests.engine.games import UNKNOWN, GamesLake, extent, record, records
from tests.quarantine.replaying import (
    Step,
    crash_at,
    drop,
    in_quarantine,
    lander,
    learn,
    places,
    replay,
)

RUBBISH = QuarantineFilter(reason="envelope_undecodable")


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    """Offset 0 has landed; 1 has an unknown schema, 2 and 3 are rubbish."""
    made = GamesLake(tmp_path)
    values = [record("chess", 0), record("chess", 1, UNKNOWN), b"\xff", b"\xfe"]
    made.start().land(extent(0), stage_in_process(records(values)))
    return made


def test_dropped_records_lose_their_bytes_and_nothing_else(lake: GamesLake) -> None:
    before = {row["_offset"]: row for row in lake.rows("quarantine")}
    assert drop(lake, RUBBISH) == {"envelope_undecodable": 2}
    after = {row["_offset"]: row for row in lake.rows("quarantine")}
    assert in_quarantine(lake) == {1: "open", 2: "dropped", 3: "dropped"}
    assert (before[2]["value"], after[2]["value"]) == (b"\xff", None)
    changed = {name for name, value in after[2].items() if value != before[2][name]}
    assert changed == {"value", "state", "settled_at"}
    assert after[1] == before[1]


def test_dropped_records_are_not_replayed(lake: GamesLake) -> None:
    drop(lake)
    learn(lake)
    assert replay(lake).taken == 0
    assert in_quarantine(lake) == dict.fromkeys((1, 2, 3), "dropped")


def test_nothing_is_dropped_without_confirmation(lake: GamesLake) -> None:
    asked: list[Mapping[str, int]] = []

    def confirm(counts: Mapping[str, int]) -> bool:
        asked.append(counts)
        return False

    assert drop_quarantined(lander(lake), QuarantineFilter(), confirm) == {}
    assert asked == [{"envelope_undecodable": 2, "schema_unknown": 1}]
    assert set(in_quarantine(lake).values()) == {"open"}


def test_records_quarantined_during_confirmation_are_not_dropped(lake: GamesLake) -> None:
    def confirm(_: object) -> bool:
        lake.start().land(extent(1), stage_in_process(records([b"\xfd"], 4)))
        return True

    drop_quarantined(lander(lake), RUBBISH, confirm)
    assert in_quarantine(lake) == {1: "open", 2: "dropped", 3: "dropped", 4: "open"}


def test_confirmation_is_skipped_if_nothing_matches(tmp_path: Path, lake: GamesLake) -> None:
    def confirm(_: object) -> bool:
        raise AssertionError

    wanted = QuarantineFilter(reason="null_value")
    assert drop_quarantined(lander(lake), wanted, confirm) == {}
    empty = lander(GamesLake(tmp_path / "empty"))
    assert drop_quarantined(empty, QuarantineFilter(), confirm) == {}


def recorded(lake: GamesLake) -> list[LedgerRow[QuarantineEntry]]:
    ledger = Ledger(str(lake.path), "ledger", "games:replay")
    return ledger.snapshot().entries(QuarantineEntry)


def test_ledger_records_the_number_dropped_and_the_filter(lake: GamesLake) -> None:
    drop(lake, RUBBISH)
    [row] = recorded(lake)
    assert (row.entry.rows, row.entry.taken, row.entry.remaining) == (2, 2, {})
    assert row.entry.state == "dropped"
    assert row.entry.filter == {"reason": "envelope_undecodable", "state": "open"}


@pytest.mark.parametrize("step", Step)
def test_interrupted_drop_is_completed(lake: GamesLake, step: Step) -> None:
    learn(lake)
    with crash_at(step), pytest.raises(Crash):
        drop(lake, RUBBISH)
    replay(lake, QuarantineFilter(reason="schema_unknown"))
    drop(lake, RUBBISH)
    assert in_quarantine(lake) == {1: "replayed", 2: "dropped", 3: "dropped"}
    assert len(recorded(lake)) == 2


@pytest.mark.parametrize("step", [Step.AFTER_NOTE, Step.BEFORE_MARKING])
def test_record_of_an_interrupted_replay_is_not_dropped(lake: GamesLake, step: Step) -> None:
    learn(lake)
    with crash_at(step), pytest.raises(Crash):
        replay(lake)
    assert drop(lake) == {"envelope_undecodable": 2}
    assert places(lake) == {
        ("silver_chess", 0): 1,
        ("silver_chess", 1): 1,
        ("dropped", 2): 1,
        ("dropped", 3): 1,
    }
