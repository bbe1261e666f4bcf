"""Kafka topics or a Delta table, read by one streaming query.

Spark decides the extent of each batch and writes it to the checkpoint before the batch is handed
over. It calls back in a thread of its own and waits there until the batch has landed.
"""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.config import Delta, Kafka, PipelineConfig
from headgate.errors import CheckpointError
from headgate.lake.ledger import Ledger, Progress
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatch
from headgate.sources.batch import (
    POLL_SECONDS,
    CaughtUp,
    Extent,
    Recovery,
    SourceBatch,
    Waiting,
)
from headgate.sources.checkpoint import Checkpoint, CheckpointState, Resume, resume
from headgate.sources.delta import stream_table
from headgate.sources.kafka import Lag, records_between, require_topics, stream_topics
from headgate.sources.stop_signal import StopSignal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MIN_ROWS_PER_TASK = 20_000

_Result = TypeVar("_Result")


class _NotLanded(Exception):
    """Fails a batch that the run abandoned, so that Spark does not commit it."""


class StreamSource:
    """The source of a stream of records."""

    def __init__(
        self,
        pipeline: PipelineConfig,
        stop: StopSignal,
        *,
        once: bool,
        from_ledger: bool,
        trigger_milliseconds: int,
    ) -> None:
        self._pipeline = pipeline
        self._stop = stop
        self._once = once
        self._from_ledger = from_ledger
        self._trigger_milliseconds = trigger_milliseconds
        self._checkpoint = Checkpoint(pipeline.checkpoint)
        self._lag: Lag | None = None
        self._resume: Resume | None = None
        self._handed: queue.SimpleQueue[_Handed] = queue.SimpleQueue()

    def recover(self, progress: Progress | None, staged: StagedBatch | None) -> Recovery:
        """Compare the checkpoint with the ledger: both must agree on what has landed."""
        checkpoint = self._checkpoint
        state = CheckpointState(
            checkpoint.query_id,
            checkpoint.last_begun,
            checkpoint.last_committed,
            staged is None or checkpoint.offsets(staged.batch) in (None, staged.end),
        )
        try:
            found = resume(
                progress,
                staged.version if staged else None,
                state,
                self._tables_before(),
                self._from_ledger,
            )
        except CheckpointError as error:
            error.where = str(checkpoint.folder)
            raise
        self._resume = found
        if found.new_checkpoint and progress is not None and state.query_id == progress.query_id:
            checkpoint.set_aside()
        if isinstance(self._pipeline.source, Kafka):
            require_topics(self._pipeline.source)
            self._lag = Lag(self._pipeline.source)
        continues = progress is not None and not found.new_checkpoint
        landed = progress.landed if progress is not None and continues else None
        return Recovery(
            first_version=found.first_version,
            next_batch=None if landed is None else landed - found.first_version + 1,
            lands_staged=found.from_ledger and staged is not None,
        )

    def _tables_before(self) -> list[str]:
        """Return tables that only a lost ledger explains; streams of later layouts find some."""
        if self._pipeline.stream.name != self._pipeline.name:
            return []
        return TableNames.of(self._pipeline).silver_in(self._pipeline.lake)

    def batches(
        self, spark: SparkSession, ledger: Ledger
    ) -> Generator[SourceBatch | CaughtUp | Waiting]:
        query = self._start(self._stream(spark, ledger))
        idle = False
        while True:
            try:
                handed = self._handed.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if not query.isActive:
                    # Raises what the query failed with.
                    query.awaitTermination()
                    return
                was_idle, idle = idle, _is_idle(query)
                if idle and self._stop.requested:
                    query.stop()
                    return
                if idle:
                    yield Waiting() if was_idle else CaughtUp()
                continue
            idle = False
            landed = False
            try:
                if self._stop.requested:
                    return
                yield self._batch(handed)
                landed = True
            finally:
                handed.release(landed)
                if not landed:
                    query.stop()

    def _batch(self, handed: _Handed) -> SourceBatch:
        number, checkpoint = handed.number, self._checkpoint
        start, end = checkpoint.start_of(number), checkpoint.offsets(number)
        rows = records_between(start, end) if self._lag else None
        lag = self._lag.records(end) if self._lag and end else None
        begins = self._resume is not None and self._resume.new_checkpoint and number == 0
        handed.tasks = _tasks(handed.frame, rows)
        return SourceBatch(
            Extent(number, start, end, lag),
            handed.run,
            new_checkpoint=checkpoint.query_id if begins else None,
        )

    def _stream(self, spark: SparkSession, ledger: Ledger) -> DataFrame:
        """Read the source from its `start`, or from where the ledger or another stream ends."""
        source = self._pipeline.source
        end = self._pipeline.stream.start
        if self._resume is not None and self._resume.from_ledger:
            progress = ledger.progress()
            end = progress.ended_at if progress else None
            if end is None:
                raise _cannot_continue("it has no position in the source")
        if isinstance(source, Kafka):
            return stream_topics(spark, source, end)
        assert isinstance(source, Delta)
        if end is None:
            return stream_table(spark, source)
        if end.get("index", 0) >= 0:
            raise _cannot_continue("the last batch ended inside a version of the Delta table")
        return stream_table(spark, source, int(end["reservoirVersion"]))

    def _start(self, frame: DataFrame) -> StreamingQuery:
        # Spark keeps a reference to the function after the query ends; do not leak this object.
        this = weakref.proxy(self)
        writer = (
            frame.writeStream.queryName(self._pipeline.stream.name)
            .option("checkpointLocation", self._pipeline.checkpoint)
            .foreachBatch(lambda frame, number: this._hand_over(frame, number))
        )
        if self._once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._trigger_milliseconds} milliseconds").start()

    def _hand_over(self, frame: DataFrame, number: int) -> None:
        handed = _Handed(frame, number)
        self._handed.put(handed)
        handed.serve()


@dataclass
class _Handed:
    """A batch that Spark is blocked on, with the jobs to run in its thread."""

    frame: DataFrame
    number: int
    tasks: int = 1
    _jobs: queue.SimpleQueue[Callable[[], None] | bool] = field(default_factory=queue.SimpleQueue)

    def serve(self) -> None:
        """Run jobs in Spark's own thread until the batch has landed."""
        while not isinstance(job := self._jobs.get(), bool):
            job()
        if not job:
            raise _NotLanded

    def run(self, job: Callable[[DataFrame, int], _Result]) -> _Result:
        """Run a job over the rows, with few tasks for few rows."""
        done: Future[_Result] = Future()

        def attempt() -> None:
            try:
                done.set_result(job(self.frame.coalesce(self.tasks), self.tasks))
            except BaseException as error:
                done.set_exception(error)

        self._jobs.put(attempt)
        return done.result()

    def release(self, landed: bool) -> None:
        self._jobs.put(landed)


def _is_idle(query: StreamingQuery) -> bool:
    status: dict[str, Any] = query.status
    return not status["isTriggerActive"] and not status["isDataAvailable"]


def _tasks(frame: DataFrame, rows: int | None) -> int:
    cores = frame.sparkSession.sparkContext.defaultParallelism
    return cores if rows is None else max(1, min(cores, -(-rows // _MIN_ROWS_PER_TASK)))


def _cannot_continue(why: str) -> CheckpointError:
    return CheckpointError(
        "replay-impossible",
        f"the ledger does not say where to continue: {why}",
        hint="restore the checkpoint, or land into an empty lake",
    )
