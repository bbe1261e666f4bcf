"""Lands records of the quarantine, once what kept them there is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from headgate.land.batch_plan import BatchPlan
from headgate.land.staged_file import StagedFile
from headgate.quarantine.quarantine_filter import QuarantineFilter
from headgate.quarantine.quarantine_state import QuarantineState
from headgate.quarantine.quarantined import QUARANTINE
from headgate.replay.quarantine_snapshot import QuarantineSnapshot
from headgate.replay.settlement import Settlement
from headgate.replay.settling_lander import SettlingLander
from headgate.replay.stage_again import stage_again


@dataclass(frozen=True)
class Replayed:
    """What a replay did."""

    taken: int
    """Records that were tried once more."""
    landed: Mapping[str, int]
    """How many went to which silver table or change log."""
    remaining: Mapping[str, int]
    """How many of them stay in quarantine, for which reason."""
    waiting: Mapping[str, int]
    """Tables that could not be written, and their records: the next replay tries again."""
    completed: bool
    """Whether an earlier one that was cut short was completed first; its records count too."""
    merged: tuple[str, ...] = ()
    """Tables that followed the change logs which got something."""
    behind: tuple[str, ...] = ()
    """Tables that did not follow: the next run does it."""


@dataclass(frozen=True)
class Portion:
    """How much is taken at a time: as much as memory should hold."""

    records: int = 50_000
    bytes: int = 128 << 20


def replay_quarantined(
    lander: SettlingLander,
    wanted: QuarantineFilter,
    limit: int | None = None,
    portion: Portion | None = None,
) -> Replayed:
    """Try again what is wanted and open now; the oldest first where there is a limit."""
    lander.plan.forget()
    wanted = replace(wanted, state=QuarantineState.OPEN)
    completed = lander.complete()
    snapshot = lander.snapshot()
    if snapshot is not None:
        for taken in _portions(_open_rows(snapshot, wanted, limit), portion or Portion()):
            _land(lander, wanted, snapshot, taken)
    return Replayed(
        lander.taken,
        dict(lander.landed.most_common()),
        dict(lander.remaining.most_common()),
        dict(lander.waiting.most_common()),
        completed,
    )


def _land(
    lander: SettlingLander,
    wanted: QuarantineFilter,
    snapshot: QuarantineSnapshot,
    taken: pa.Table,
) -> None:
    def stage(plan: BatchPlan) -> tuple[list[StagedFile], Settlement]:
        staged = stage_again(plan, taken)
        settlement = Settlement(
            plan.version,
            QuarantineState.REPLAYED,
            datetime.now(UTC),
            taken.num_rows,
            dict(staged.remaining),
            wanted.as_record(),
            staged.rows,
        )
        return staged.files, settlement

    lander.land(wanted, snapshot, stage)


def _open_rows(
    snapshot: QuarantineSnapshot, wanted: QuarantineFilter, limit: int | None
) -> Iterator[pa.RecordBatch]:
    condition = snapshot.condition(wanted)
    if limit is not None:
        # By their names, as a sort of whole rows would hold them all in memory.
        condition = f"""id IN (
            SELECT id FROM quarantine WHERE {condition}
            ORDER BY _at, _topic, _partition, _file, _offset LIMIT {limit}
        )"""
    names = ", ".join(QUARANTINE.names)
    for batch in snapshot.rows(f"SELECT {names} FROM quarantine WHERE {condition}"):
        yield batch.cast(QUARANTINE)


def _portions(batches: Iterator[pa.RecordBatch], portion: Portion) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, portion.records):
            part = batch.slice(start, portion.records)
            if gathered and (
                count + part.num_rows > portion.records or size + part.nbytes > portion.bytes
            ):
                yield pa.Table.from_batches(gathered)
                gathered, count, size = [], 0, 0
            gathered.append(part)
            count += part.num_rows
            size += part.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)
