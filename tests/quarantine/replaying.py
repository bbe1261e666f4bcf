"""Replays of the quarantine of an in-process pipeline, with crashes at any step."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any
from unittest.mock import patch

from headgate.lake.ledger import Ledger
from headgate.lake.staged import StagedBatchNote
from headgate.quarantine import lander as lander_module
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.lander import ReplayLander
from headgate.quarantine.operations import drop_quarantined
from headgate.quarantine.outcome import OutcomeNote
from headgate.quarantine.replay import PortionLimit, Replayed, replay_quarantined
from headgate.registry.registry import SchemaText
from tests.engine.in_process import HEAD, Pipeline
from tests.lake.failing_committer import Crash
from tests.readers import by_deltalake

LEARNT = HEAD + "{ int32 n = 1; double more = 9; }"


class Step(Enum):
    """Where a replay can crash: the function, and whether it has completed."""

    BEFORE_OUTCOME_NOTE = OutcomeNote, "write", False
    BEFORE_NOTE = StagedBatchNote, "write", False
    AFTER_NOTE = StagedBatchNote, "write", True
    BEFORE_MARKING = lander_module, "record_outcome", False
    AFTER_MARKING = lander_module, "record_outcome", True
    AFTER_LEDGER = Ledger, "complete", True


def crash_at(step: Step) -> AbstractContextManager[object]:
    owner, name, done = step.value
    real = getattr(owner, name)

    def crash(*arguments: Any) -> None:
        if done:
            real(*arguments)
        raise Crash(step)

    return patch.object(owner, name, crash)


def lander(pipeline: Pipeline) -> ReplayLander:
    """Return the lander of a new process, which restores its state from the lake."""
    return ReplayLander(pipeline.plan, pipeline.committer, "games", pipeline.events.append)


def replay(
    pipeline: Pipeline,
    wanted: QuarantineFilter | None = None,
    limit: int | None = None,
    portion: PortionLimit | None = None,
) -> Replayed:
    return replay_quarantined(lander(pipeline), wanted or QuarantineFilter(), limit, portion)


def drop(pipeline: Pipeline, wanted: QuarantineFilter | None = None) -> dict[str, int]:
    return drop_quarantined(lander(pipeline), wanted or QuarantineFilter(), lambda _: True)


def learn(pipeline: Pipeline) -> None:
    """Register the schema that was unknown."""
    pipeline.schemas.register("event", SchemaText("PROTOBUF", LEARNT))


def in_quarantine(pipeline: Pipeline) -> dict[int, str]:
    """Return the state of each record by offset; each must occur once."""
    rows = by_deltalake(str(pipeline.lake / pipeline.names.quarantine)).to_pylist()
    states = {row["_offset"]: row["state"] for row in rows}
    assert len(states) == len(rows)
    return states


def places(pipeline: Pipeline) -> Counter[tuple[str, int]]:
    """Return where each record is: a silver table, bronze, or its state in quarantine."""
    found: Counter[tuple[str, int]] = Counter()
    for table, offsets in pipeline.offsets().items():
        if table != pipeline.names.quarantine:
            found.update((table, offset) for offset in offsets)
    if pipeline.names.quarantine in pipeline.tables():
        states = in_quarantine(pipeline)
        found.update((state, offset) for offset, state in states.items() if state != "replayed")
    return found
