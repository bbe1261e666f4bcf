"""Gives up records of the quarantine: their bytes go, that they were there stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from headgate.engine.plan import BatchPlan
from headgate.engine.quarantine_table import QuarantineState
from headgate.lake.staged import StagedFile
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.lander import SettlingLander
from headgate.quarantine.outcome import SETTLED, Settlement
from headgate.quarantine.snapshot import QuarantineSnapshot

Confirm = Callable[[Mapping[str, int]], bool]
"""Whether so many records, by reason, shall go."""


def drop_quarantined(
    lander: SettlingLander, wanted: QuarantineFilter, confirm: Confirm
) -> dict[str, int]:
    """Drop what is wanted and open now, and nothing that comes later; returns how many."""
    wanted = replace(wanted, state=QuarantineState.OPEN)
    lander.complete()
    snapshot = lander.snapshot()
    counts = snapshot.counts(wanted) if snapshot else {}
    if snapshot is None or not counts or not confirm(counts):
        return {}
    rows = _dropped(snapshot, wanted)

    def stage(plan: BatchPlan) -> tuple[list[StagedFile], Settlement]:
        settlement = Settlement(
            plan.version,
            QuarantineState.DROPPED,
            datetime.now(UTC),
            rows.num_rows,
            {},
            wanted.as_record(),
            rows,
        )
        return [], settlement

    lander.land(wanted, snapshot, stage)
    return counts


def _dropped(snapshot: QuarantineSnapshot, wanted: QuarantineFilter) -> pa.Table:
    """The rows as they shall be, without their bytes: even a million of them is little."""
    names = ", ".join(SETTLED.names)
    condition = snapshot.condition(wanted)
    rows = snapshot.rows(f"SELECT {names} FROM quarantine WHERE {condition}").read_all()
    state = pa.repeat(QuarantineState.DROPPED.value, rows.num_rows)
    at = SETTLED.get_field_index("state")
    return rows.cast(SETTLED).set_column(at, SETTLED.field("state"), state)
