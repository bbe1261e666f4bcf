"""Replays of the quarantine of an in-process lake, with crashes at any step."""

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
from headgate.testing import Crash
from tests.engine.games import HEAD, GamesLake
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


def lander(lake: GamesLake) -> ReplayLander:
    """Return the lander of a new process, which restores its state from the lake."""
    return ReplayLander(lake.plan, lake.committer, "games", lake.events.append, "a test")


def replay(
    lake: GamesLake,
    wanted: QuarantineFilter | None = None,
    limit: int | None = None,
    portion: PortionLimit | None = None,
) -> Replayed:
    return replay_quarantined(lander(lake), wanted or QuarantineFilter(), limit, portion)


def drop(lake: GamesLake, wanted: QuarantineFilter | None = None) -> dict[str, int]:
    return drop_quarantined(lander(lake), wanted or QuarantineFilter(), lambda _: True)


def learn(lake: GamesLake) -> None:
    """Register the schema that was unknown."""
    lake.register("event", LEARNT)


def in_quarantine(lake: GamesLake) -> dict[int, str]:
    """Return the state of each record by offset; each must occur once."""
    rows = by_deltalake(str(lake.path / lake.pipeline.quarantine_table)).to_pylist()
    states = {row["_offset"]: row["state"] for row in rows}
    assert len(states) == len(rows)
    return states


def places(lake: GamesLake) -> Counter[tuple[str, int]]:
    """Return where each record is: a silver table, bronze, or its state in quarantine."""
    found: Counter[tuple[str, int]] = Counter()
    for table, offsets in lake.offsets().items():
        if table != lake.pipeline.quarantine_table:
            found.update((table, offset) for offset in offsets)
    if lake.pipeline.quarantine_table in lake.tables():
        states = in_quarantine(lake)
        found.update((state, offset) for offset, state in states.items() if state != "replayed")
    return found
