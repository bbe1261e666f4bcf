"""Bronze has a record once, whether or not it had it when the record was quarantined."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.testing import Crash
from headgate.testing.lake import stage_in_process
from tests.engine.games import UNKNOWN, GamesLake, extent, record, records
from tests.quarantine.replaying import Step, crash_at, learn, replay


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    """Chess has a table, and so bronze has offset 1; go has none, and so it lacks offset 2."""
    made = GamesLake(tmp_path, bronze="bronze")
    values = [record("chess", 0), record("chess", 1, UNKNOWN), record("go", 2, UNKNOWN), b"\xff"]
    made.start().land(extent(0), stage_in_process(records(values)))
    return made


def flags(lake: GamesLake) -> dict[int, bool]:
    return {row["_offset"]: row["in_bronze"] for row in lake.rows("quarantine")}


def test_quarantine_records_what_bronze_has(lake: GamesLake) -> None:
    assert lake.offsets()["bronze"] == [0, 1]
    assert flags(lake) == {1: True, 2: False, 3: False}


def test_replayed_record_is_in_bronze_once(lake: GamesLake) -> None:
    learn(lake)
    assert replay(lake).landed == {"silver_chess": 1, "silver_go": 1}
    assert lake.offsets()["bronze"] == [0, 1, 2]
    assert flags(lake) == {1: True, 2: True, 3: False}
    payloads = {row["_offset"]: row["payload"] for row in lake.rows("bronze")}
    assert payloads[2] == b"\x08\x02"


@pytest.mark.parametrize("step", Step)
def test_bronze_has_a_record_once_after_a_crash(lake: GamesLake, step: Step) -> None:
    learn(lake)
    with crash_at(step), pytest.raises(Crash):
        replay(lake)
    replay(lake)
    assert lake.offsets()["bronze"] == [0, 1, 2]


def test_record_that_stays_may_land_in_bronze(lake: GamesLake) -> None:
    """Go has a table now, so bronze keeps its payloads although its schema is invalid."""
    lake.start().land(extent(1), stage_in_process(records([record("go", 4)], 4)))
    lake.register("event", "nonsense too")
    for _ in range(2):
        done = replay(lake)
        assert done.remaining == {"schema_refused": 2, "envelope_undecodable": 1}
        assert lake.offsets()["bronze"] == [0, 1, 2, 4]
        assert flags(lake) == {1: True, 2: True, 3: False}
