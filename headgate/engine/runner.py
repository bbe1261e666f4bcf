"""Runs a pipeline: recover, then land batches until the source is drained or a stop is requested.

source.batches → stage → commit → ledger, and behind it follow-ups → ledger
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from headgate.cluster.shared_folders import require_shared
from headgate.config import PipelineConfig
from headgate.config.location import is_remote
from headgate.config.shards import Shard
from headgate.engine.batch import BatchLander
from headgate.engine.events import (
    BatchLanded,
    Ended,
    Event,
    FilesSkipped,
    FilesWait,
    Idle,
    Listener,
    Started,
)
from headgate.engine.follow_up import Follower, FollowUp, TableChanged
from headgate.engine.plan import BatchPlan
from headgate.engine.session import pipeline_session, yield_to_batches
from headgate.engine.task_results import decode_results
from headgate.errors import HeadgateError, LandingError, SourceError
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Committer
from headgate.lake.ledger import Ledger, Pending, Progress
from headgate.lake.open_tables import TableCache
from headgate.lake.run_lock import Held
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.lake.storage_errors import is_storage_error, storage_error
from headgate.schema.changes import SchemaHistory
from headgate.sources.batch import (
    CaughtUp,
    Recovery,
    SkippedFiles,
    Source,
    SourceBatch,
    UnfinishedFiles,
    Waiting,
)
from headgate.sources.stop_signal import StopSignal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_TIMEOUT = re.compile(r"\bTimeoutException: (.{1,200})")
_ROWS_CHANGED = re.compile(r"DELTA_SOURCE_(?:IGNORE_DELETE|TABLE_IGNORE_CHANGES)")
_JAVA_ERROR = re.compile(r"^.*\b(?:[a-z]\w*\.)+(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
"""The last error of a line: Spark puts the error of a task behind its own."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a single run, in addition to the pipeline file."""

    once: bool = False
    """Land the records that the source has now, then end."""
    from_ledger: bool = False
    """Start a new checkpoint and continue where the ledger ends."""
    trigger_milliseconds: int | None = None
    """How often to look for new records; overrides the pipeline file."""
    shard: Shard | None = None
    """Which of the pipeline's shards to land, if it has several."""
    follow_only: bool = False
    """Read nothing from the source: only bring merged and derived tables up to date, then end."""


@dataclass
class _Totals:
    """Totals of a run, which may have any number of batches."""

    batches: int = 0
    rows: int = 0
    quarantined: int = 0

    def add(self, batch: BatchLanded) -> None:
        self.batches += 1
        self.rows += batch.rows
        self.quarantined += sum(batch.quarantined.values())


class _Resting(Enum):
    """What a run does while the source has nothing new."""

    NOT = auto()
    FOLLOWS = auto()
    """It follows what has landed."""
    IDLE = auto()


@dataclass
class Runner:
    """One run of a pipeline. All of its state can be restored from the lake."""

    pipeline: PipelineConfig
    source: Source
    plan: BatchPlan
    history: SchemaHistory
    follow_ups: Callable[[SparkSession, Committer, Listener], Sequence[FollowUp]]
    listener: Listener
    stop: StopSignal
    pending_elsewhere: Callable[[], Sequence[Pending]] = tuple
    tables: TableCache | None = None
    """Tables that the plan has opened."""
    _totals: _Totals = field(default_factory=_Totals)
    _resting: _Resting = _Resting.NOT
    _emitting: Lock = field(default_factory=Lock)
    """Held while a listener is called: events come from two threads."""

    def __post_init__(self) -> None:
        pipeline = self.pipeline
        self.committer = self._new_committer(self.tables)
        stream = pipeline.stream.name
        self.ledger = Ledger(pipeline.lake, pipeline.ledger, stream, self.committer)
        self.note = StagedBatchNote(pipeline.lake, stream)

    def _new_committer(self, tables: TableCache | None = None) -> Committer:
        pipeline = self.pipeline
        return choose_committer(
            pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake, tables
        )

    def run(self, lock: Held) -> Ended:
        """Run, and hold the lock of the pipeline for so long."""
        try:
            tables = self._run(lock)
        except Exception as error:
            raise _explained(error, self.pipeline.lake) from error
        ended = Ended(
            batches=self._totals.batches,
            rows=self._totals.rows,
            quarantined=self._totals.quarantined,
            stopped=self.stop.requested,
            tables=frozenset(tables),
        )
        self._emit(ended)
        return ended

    def _run(self, lock: Held) -> set[str]:
        progress = self.ledger.progress()
        if progress is None:
            self.note.clear()
        staged = self.note.under_way(progress.landed) if progress else None
        recovery = self.source.recover(progress, staged)
        spark = pipeline_session(self.pipeline)
        require_shared(spark, self.pipeline)
        self.ledger.take_over(str(lock.holder))
        # A committer of its own: that of the batches is in use by another thread.
        follow_ups = self.follow_ups(spark, self._new_committer(), self._emit)
        with Follower(follow_ups, partial(yield_to_batches, spark)) as follower:
            lander = self._lander(follower, progress, lock)
            # Spark installs a signal handler of its own when it starts.
            with self.stop.on_signals():
                self._emit(Started(self.pipeline.name, self.pipeline.lake, recovery.next_batch))
                changed = lander.land_pending()
                if staged is not None and recovery.lands_staged:
                    lander.land_staged(staged)
                if changed:
                    self._follow(lander, changed)
                # What else an earlier run has left undone is done with the first batch, or after.
                lander.first_version = recovery.first_version
                self._land_batches(spark, lander, recovery)
                self._follow(lander)
                lander.record(follower.wait())
        return lander.known_tables

    def _land_batches(self, spark: SparkSession, lander: BatchLander, recovery: Recovery) -> None:
        with closing(self.source.batches(spark, self.ledger)) as batches:
            for batch in batches:
                match batch:
                    case SourceBatch():
                        self._land(lander, batch, recovery)
                    case CaughtUp() | Waiting():
                        self._rest(lander, retry=isinstance(batch, CaughtUp))
                    case UnfinishedFiles(paths):
                        self._emit(FilesWait(paths))
                    case SkippedFiles(reasons):
                        self._emit(FilesSkipped(reasons))

    def _lander(self, follower: Follower, progress: Progress | None, lock: Held) -> BatchLander:
        return BatchLander(
            ledger=self.ledger,
            note=self.note,
            committer=self.committer,
            plan=self.plan,
            listener=self._emit,
            first_version=progress.first_version if progress else 0,
            landed=progress.landed if progress else None,
            ended_at=progress.ended_at if progress else None,
            source_ids=progress.source_ids if progress else {},
            pending=progress.pending if progress else (),
            known_tables=set(self.plan.tables_in_lake()),
            history=self.history,
            follower=follower,
            pending_elsewhere=self.pending_elsewhere,
            after_failure=lock.after_failure,
        )

    def _land(self, lander: BatchLander, batch: SourceBatch, recovery: Recovery) -> None:
        if batch.new_checkpoint is not None:
            self.ledger.start(batch.new_checkpoint, recovery.first_version)

        def stage(plan: BatchPlan) -> list[StagedFile]:
            def job(rows: DataFrame, tasks: int) -> list[StagedFile]:
                staged = plan.job(rows, tasks).collect()
                return decode_results((row.file, row.error) for row in staged)

            try:
                files = batch.run(job)
            except Exception:
                batch.notice_replaced()
                raise
            batch.require_same()
            return files

        lander.land(batch.extent, stage)
        self._resting = _Resting.NOT

    def _follow(self, lander: BatchLander, changed: Sequence[TableChanged] = ()) -> None:
        """Begin follow-ups that an earlier run has left undone, that were postponed, or failed."""
        if lander.landed is not None:
            lander.follower.follow(changed, lander.landed)

    def _rest(self, lander: BatchLander, retry: bool) -> None:
        """Wait for follow-ups, then for the source."""
        if self._resting is _Resting.NOT:
            self._follow(lander)
            self._resting = _Resting.FOLLOWS
        elif not lander.follower.is_busy:
            lander.record(lander.follower.finished())
            if self._resting is _Resting.FOLLOWS:
                self._resting = _Resting.IDLE
                self._emit(Idle())
            elif retry:
                self._follow(lander)
            else:
                lander.follower.follow_while_idle()

    def _emit(self, event: Event) -> None:
        with self._emitting:
            if isinstance(event, BatchLanded):
                self._totals.add(event)
            self.listener(event)


def _explained(error: BaseException, lake: str) -> HeadgateError:
    """Return the error to show; errors of Headgate are returned as they are."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    if is_remote(lake) and is_storage_error(text):
        return storage_error(lake, error)
    if "UnknownTopicOrPartition" in text or "DELTA_MISSING_DELTA_TABLE" in text:
        return SourceError("source-missing", "the source no longer exists", hint="check `source`")
    if "failOnDataLoss" in text or "KAFKA_DATA_LOSS" in text or "DELTA_VERSIONS_NOT" in text:
        return SourceError(
            "data-lost",
            "the source dropped records before they were read",
            hint="raise the source's retention; restore the records, or continue without them with "
            "a new checkpoint and lake",
        )
    if _ROWS_CHANGED.search(text):
        return SourceError(
            "data-lost",
            "rows of the source table were deleted or changed, maybe before they were read",
            hint="only append to a source table; restore its version before that, or land the "
            "table as it is now with a pipeline that has another name and lake",
        )
    if "kafka" in text and (timeout := _TIMEOUT.search(text)):
        return SourceError(
            "source-missing",
            f"the broker did not answer in time ({timeout[1]})",
            hint="check the broker and the network, then run again to retry the batch",
        )
    if "No space left on device" in text:
        return LandingError(
            "batch-failed",
            "the disk is full",
            hint="free disk space and run again to retry the batch",
        )
    found = _PYTHON_ERROR.findall(text) or _JAVA_ERROR.findall(text)
    what = f"{found[-1][0]}: {found[-1][1]}" if found else (text.strip() or repr(error))
    return LandingError(
        "batch-failed",
        what.splitlines()[0][:500],
        hint="run again to retry the batch; --debug shows Spark's full error",
    )
