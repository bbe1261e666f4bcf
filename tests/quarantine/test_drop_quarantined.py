from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import LedgerRow, QuarantineEntry
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import drop_quarantined
from tests.engine.in_process import UNKNOWN, Pipeline, extent, record, records, staged_by
from tests.lake.failing_committer import Crash
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
def pipeline(tmp_path: Path) -> Pipeline:
    """Offset 0 has landed; 1 has an unknown schema, 2 and 3 are rubbish."""
    made = Pipeline(tmp_path)
    values = [record("chess", 0), record("chess", 1, UNKNOWN), b"\xff", b"\xfe"]
    made.run().land(extent(0), staged_by(records(values)))
    return made


def test_dropped_records_lose_their_bytes_and_nothing_else(pipeline: Pipeline) -> None:
    before = {row["_offset"]: row for row in pipeline.rows("quarantine")}
    assert drop(pipeline, RUBBISH) == {"envelope_undecodable": 2}
    after = {row["_offset"]: row for row in pipeline.rows("quarantine")}
    assert in_quarantine(pipeline) == {1: "open", 2: "dropped", 3: "dropped"}
    assert (before[2]["value"], after[2]["value"]) == (b"\xff", None)
    changed = {name for name, value in after[2].items() if value != before[2][name]}
    assert changed == {"value", "state", "settled_at"}
    assert after[1] == before[1]


def test_dropped_records_are_not_replayed(pipeline: Pipeline) -> None:
    drop(pipeline)
    learn(pipeline)
    assert replay(pipeline).taken == 0
    assert in_quarantine(pipeline) == dict.fromkeys((1, 2, 3), "dropped")


def test_nothing_is_dropped_without_confirmation(pipeline: Pipeline) -> None:
    asked: list[Mapping[str, int]] = []

    def confirm(counts: Mapping[str, int]) -> bool:
        asked.append(counts)
        return False

    assert drop_quarantined(lander(pipeline), QuarantineFilter(), confirm) == {}
    assert asked == [{"envelope_undecodable": 2, "schema_unknown": 1}]
    assert set(in_quarantine(pipeline).values()) == {"open"}


def test_records_quarantined_during_confirmation_are_not_dropped(pipeline: Pipeline) -> None:
    def confirm(_: object) -> bool:
        pipeline.run().land(extent(1), staged_by(records([b"\xfd"], 4)))
        return True

    drop_quarantined(lander(pipeline), RUBBISH, confirm)
    assert in_quarantine(pipeline) == {1: "open", 2: "dropped", 3: "dropped", 4: "open"}


def test_confirmation_is_skipped_if_nothing_matches(tmp_path: Path, pipeline: Pipeline) -> None:
    def confirm(_: object) -> bool:
        raise AssertionError

    wanted = QuarantineFilter(reason="null_value")
    assert drop_quarantined(lander(pipeline), wanted, confirm) == {}
    empty = lander(Pipeline(tmp_path / "empty"))
    assert drop_quarantined(empty, QuarantineFilter(), confirm) == {}


def recorded(pipeline: Pipeline) -> list[LedgerRow[QuarantineEntry]]:
    ledger = Ledger(str(pipeline.lake), "ledger", "games:replay")
    return ledger.snapshot().entries(QuarantineEntry)


def test_ledger_records_the_number_dropped_and_the_filter(pipeline: Pipeline) -> None:
    drop(pipeline, RUBBISH)
    [row] = recorded(pipeline)
    assert (row.entry.rows, row.entry.taken, row.entry.remaining) == (2, 2, {})
    assert row.entry.state == "dropped"
    assert row.entry.filter == {"reason": "envelope_undecodable", "state": "open"}


@pytest.mark.parametrize("step", Step)
def test_interrupted_drop_is_completed(pipeline: Pipeline, step: Step) -> None:
    learn(pipeline)
    with crash_at(step), pytest.raises(Crash):
        drop(pipeline, RUBBISH)
    replay(pipeline, QuarantineFilter(reason="schema_unknown"))
    drop(pipeline, RUBBISH)
    assert in_quarantine(pipeline) == {1: "replayed", 2: "dropped", 3: "dropped"}
    assert len(recorded(pipeline)) == 2


@pytest.mark.parametrize("step", [Step.AFTER_NOTE, Step.BEFORE_MARKING])
def test_record_of_an_interrupted_replay_is_not_dropped(pipeline: Pipeline, step: Step) -> None:
    learn(pipeline)
    with crash_at(step), pytest.raises(Crash):
        replay(pipeline)
    assert drop(pipeline) == {"envelope_undecodable": 2}
    assert places(pipeline) == {
        ("silver_chess", 0): 1,
        ("silver_chess", 1): 1,
        ("dropped", 2): 1,
        ("dropped", 3): 1,
    }
