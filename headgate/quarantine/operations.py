"""Replay or drop records in the quarantine of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from headgate.cdc.plan import ChangePlan
from headgate.cdc.stage import change_plan
from headgate.config import PipelineConfig
from headgate.engine.events import Listener
from headgate.engine.plan import BatchPlan
from headgate.engine.quarantine_table import QuarantineState
from headgate.engine.record_plan import RecordPlan
from headgate.engine.session import pipeline_session
from headgate.errors import CheckpointError, LandingError
from headgate.lake.choose_committer import choose_committer
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.run_lock import Held, run_lock
from headgate.lake.staged import StagedFile
from headgate.lake.tables import table_url
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.lander import ReplayLander, name_of_files
from headgate.quarantine.outcome import OUTCOME_COLUMNS, ReplayOutcome
from headgate.quarantine.replay import Replayed, merge_replayed, replay_quarantined
from headgate.quarantine.snapshot import QuarantineSnapshot

Confirm = Callable[[Mapping[str, int]], bool]
"""Decides whether to drop records, given their number by reason."""


def drop_quarantined(
    lander: ReplayLander, wanted: QuarantineFilter, confirm: Confirm
) -> dict[str, int]:
    """Drop the matching records that are open now; return their number by reason."""
    wanted = replace(wanted, state=QuarantineState.OPEN)
    lander.complete()
    snapshot = lander.snapshot()
    counts = snapshot.counts(wanted) if snapshot else {}
    if snapshot is None or not counts or not confirm(counts):
        return {}
    rows = _dropped(snapshot, wanted)

    def stage(plan: BatchPlan) -> tuple[list[StagedFile], ReplayOutcome]:
        outcome = ReplayOutcome(
            plan.version,
            QuarantineState.DROPPED,
            datetime.now(UTC),
            rows.num_rows,
            {},
            wanted.as_record(),
            rows,
        )
        return [], outcome

    lander.land(wanted, snapshot, stage)
    return counts


def _dropped(snapshot: QuarantineSnapshot, wanted: QuarantineFilter) -> pa.Table:
    """Return the new rows, without the bytes of the records, so that they fit in memory."""
    names = ", ".join(OUTCOME_COLUMNS.names)
    condition = snapshot.condition(wanted)
    rows = snapshot.rows(f"SELECT {names} FROM stored WHERE {condition}").read_all()
    state = pa.repeat(QuarantineState.DROPPED.value, rows.num_rows)
    at = OUTCOME_COLUMNS.get_field_index("state")
    return rows.cast(OUTCOME_COLUMNS).set_column(at, OUTCOME_COLUMNS.field("state"), state)


def replay_quarantine(
    pipeline: PipelineConfig,
    wanted: QuarantineFilter | None = None,
    listener: Listener = lambda _: None,
    limit: int | None = None,
) -> Replayed:
    """Land open records of the quarantine, each exactly once; the stream may be running."""
    with _lander(pipeline, listener) as lander:
        done = replay_quarantined(lander, wanted or QuarantineFilter(), limit)
        if pipeline.lands_changes and isinstance(lander.plan, ChangePlan):
            tables = merge_replayed(
                pipeline, lander.plan, lander.committer, lander.ledger, listener
            )
            done = replace(done, merged=tables.merged, behind=tables.behind)
        return done


def drop_quarantine(
    pipeline: PipelineConfig,
    wanted: QuarantineFilter,
    confirm: Confirm = lambda _: True,
) -> dict[str, int]:
    """Drop open records: delete their bytes, keep their rows. Return their number by reason."""
    with _lander(pipeline, lambda _: None) as lander:
        return drop_quarantined(lander, wanted, confirm)


@contextmanager
def _lander(pipeline: PipelineConfig, listener: Listener) -> Iterator[ReplayLander]:
    with _locked(pipeline) as lock:
        _require_writable(pipeline)
        committer = choose_committer(
            pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake
        )
        yield ReplayLander(_plan(pipeline), committer, pipeline.name, listener, str(lock.holder))


def _plan(pipeline: PipelineConfig) -> BatchPlan:
    return change_plan(pipeline) if pipeline.lands_changes else RecordPlan.of(pipeline)


@contextmanager
def _locked(pipeline: PipelineConfig) -> Iterator[Held]:
    with ExitStack() as stack:
        try:
            lock = run_lock(pipeline.lake, name_of_files(pipeline.name), pipeline.name)
            held = stack.enter_context(lock)
        except CheckpointError as error:
            holder = error.message.partition(" already running")[2]
            raise CheckpointError(
                "quarantine-in-use",
                f"a replay or drop of pipeline {pipeline.name} is already running{holder}",
                hint="wait for it to end; the stream may keep running",
                where=error.where,
            ) from None
        yield held


def _require_writable(pipeline: PipelineConfig) -> None:
    """Check before anything lands that the quarantine can be updated afterwards."""
    if pipeline.commit != "delta-rs":
        return
    if not DeltaRsCommitter(pipeline.lake).can_write(pipeline.quarantine_table):
        raise LandingError(
            "quarantine-unwritable",
            "the quarantine table has features that delta-rs cannot write",
            hint="set `commit: auto`, so that Spark updates it",
            where=table_url(pipeline.lake, pipeline.quarantine_table),
        )
