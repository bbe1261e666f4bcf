"""Bronze has a record once, whether or not it had it when the record was quarantined."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.lake.names import TableNames
from headgate.registry.registry import SchemaText
from tests.engine.in_process import UNKNOWN, Pipeline, extent, record, records, staged_by
from tests.lake.failing_committer import Crash
from tests.quarantine.replaying import Step, crash_at, learn, replay

NAMES = TableNames("silver_{route}", "quarantine", "ledger", "bronze")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Chess has a table, and so bronze has offset 1; go has none, and so it lacks offset 2."""
    made = Pipeline(tmp_path, NAMES)
    values = [record("chess", 0), record("chess", 1, UNKNOWN), record("go", 2, UNKNOWN), b"\xff"]
    made.run().land(extent(0), staged_by(records(values)))
    return made


def flags(pipeline: Pipeline) -> dict[int, bool]:
    return {row["_offset"]: row["in_bronze"] for row in pipeline.rows("quarantine")}


def test_quarantine_records_what_bronze_has(pipeline: Pipeline) -> None:
    assert pipeline.offsets()["bronze"] == [0, 1]
    assert flags(pipeline) == {1: True, 2: False, 3: False}


def test_replayed_record_is_in_bronze_once(pipeline: Pipeline) -> None:
    learn(pipeline)
    assert replay(pipeline).landed == {"silver_chess": 1, "silver_go": 1}
    assert pipeline.offsets()["bronze"] == [0, 1, 2]
    assert flags(pipeline) == {1: True, 2: True, 3: False}
    payloads = {row["_offset"]: row["payload"] for row in pipeline.rows("bronze")}
    assert payloads[2] == b"\x08\x02"


@pytest.mark.parametrize("step", Step)
def test_bronze_has_a_record_once_after_a_crash(pipeline: Pipeline, step: Step) -> None:
    learn(pipeline)
    with crash_at(step), pytest.raises(Crash):
        replay(pipeline)
    replay(pipeline)
    assert pipeline.offsets()["bronze"] == [0, 1, 2]


def test_record_that_stays_may_land_in_bronze(pipeline: Pipeline) -> None:
    """Go has a table now, so bronze keeps its payloads although its schema is invalid."""
    pipeline.run().land(extent(1), staged_by(records([record("go", 4)], 4)))
    pipeline.schemas.register("event", SchemaText("PROTOBUF", "nonsense too"))
    for _ in range(2):
        done = replay(pipeline)
        assert done.remaining == {"schema_refused": 2, "envelope_undecodable": 1}
        assert pipeline.offsets()["bronze"] == [0, 1, 2, 4]
        assert flags(pipeline) == {1: True, 2: True, 3: False}
