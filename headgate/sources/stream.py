"""Kafka topics or a Delta table, read by one streaming query.

Spark decides the extent of each batch and writes it to the checkpoint before the batch is handed
over. It calls back in a thread of its own and waits there until the batch has landed.
"""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.config import Delta, Kafka, PipelineConfig
from headgate.errors import CheckpointError, SourceError
from headgate.lake.ledger import Ledger, Progress
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatch
from headgate.lake.tables import TableError
from headgate.sources.batch import (
    POLL_SECONDS,
    CaughtUp,
    Extent,
    Recovery,
    SourceBatch,
    Waiting,
)
from headgate.sources.checkpoint import Checkpoint, CheckpointState, Resume, resume
from headgate.sources.delta import SourceTable, ids_of_position, stream_table
from headgate.sources.identity import (
    SourceIds,
    in_the_same,
    replaced,
    source_replaced,
    topics_left_out,
)
from headgate.sources.kafka import (
    IDS_TIMEOUT_SECONDS,
    Topics,
    offsets_from,
    records_between,
    require_topics,
    stream_topics,
)
from headgate.sources.stop_signal import StopSignal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MIN_ROWS_PER_TASK = 20_000
_CHECKED_EVERY_SECONDS = 10.0
"""How often an idle source is checked for being another one; every batch is."""
_IDLE_TIMEOUT_SECONDS = 5.0

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
        self._topics: Topics | None = None
        self._table: SourceTable | None = None
        self._partitions: Mapping[str, int] = {}
        """Partition counts of the topics that the run has begun with."""
        self._ids: dict[str, str] = {}
        """Ids of what is read: of the topics, or of the table."""
        self._identified: set[str] = set()
        """Topics whose ids were requested; an old broker reports none."""
        self._resume: Resume | None = None
        self._handed: queue.SimpleQueue[_Handed] = queue.SimpleQueue()

    def recover(self, progress: Progress | None, staged: StagedBatch | None) -> Recovery:
        """Compare the checkpoint with the ledger: both must agree on what has landed."""
        checkpoint, source = self._checkpoint, self._pipeline.source
        if isinstance(source, Kafka):
            self._partitions = require_topics(source)
            self._topics = Topics(source)
            self._identify(self._partitions)
        else:
            assert isinstance(source, Delta)
            self._table = SourceTable(source)
            self._ids = self._table.ids()
        known = self._known_ids(progress, staged)
        gone = replaced(known, self._ids)
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
                source_replaced(gone, known, self._ids) if gone else self._left_out(progress),
            )
        except CheckpointError as error:
            error.where = str(checkpoint.folder)
            raise
        self._resume = found
        is_known = progress is not None and state.query_id == progress.query_id
        if found.new_checkpoint and (is_known or gone):
            checkpoint.set_aside()
        if checkpoint.source_ids is None or gone:
            checkpoint.record_source(self._ids)
        continues = progress is not None and not found.new_checkpoint
        landed = progress.landed if progress is not None and continues else None
        return Recovery(
            first_version=found.first_version,
            next_batch=None if landed is None else landed - found.first_version + 1,
            lands_staged=found.from_ledger and staged is not None,
        )

    def _left_out(self, progress: Progress | None) -> SourceError | None:
        """Return the error for topics that have landed and are not part of the source any more.

        Spark would refuse them as well, but only after it has recorded a batch without them.
        """
        landed = progress.ended_at if progress is not None and self._topics is not None else None
        missing = sorted(set(landed or ()) - self._partitions.keys())
        return topics_left_out(missing) if missing else None

    def _known_ids(self, progress: Progress | None, staged: StagedBatch | None) -> SourceIds:
        """Return the ids of what the newest positions count in, as far as they are recorded."""
        checkpoint = self._checkpoint.source_ids or {}
        landed: dict[str, str] = {}
        if progress is not None:
            landed = {**ids_of_position(progress.ended_at), **progress.source_ids}
            has_batch = progress.landed is not None and progress.landed >= progress.first_version
            if not has_batch and self._checkpoint.query_id == progress.query_id:
                # It has begun where the ledger ends, but maybe in a new topic.
                landed = {**landed, **checkpoint}
        of_staged = staged.source_ids if staged is not None else {}
        return {**self._pipeline.stream.source_ids, **checkpoint, **landed, **of_staged}

    def _identify(self, topics: Collection[str]) -> None:
        """Request the ids of topics that are new to the run."""
        assert self._topics is not None
        new = set(topics) - self._identified
        self._ids |= self._topics.ids(new)
        self._identified |= new

    def _require_same(self, seconds: float = IDS_TIMEOUT_SECONDS) -> None:
        """Raise if a topic or the table was created again since the run has begun to read it.

        An id is never used twice: if it is the same now, it was all the time.
        """
        if self._table is not None:
            present = self._table.ids()
        else:
            assert self._topics is not None
            present = self._topics.ids(self._ids, seconds)
        if gone := replaced(self._ids, present):
            raise source_replaced(gone, self._ids, present)

    def _notice_replaced(self) -> None:
        """Raise if the source was created again, but not if it cannot be reached now."""
        try:
            self._require_same(_IDLE_TIMEOUT_SECONDS)
        except SourceError as error:
            # Whether the source can be reached is for Spark to say, which retries.
            if error.code == "data-lost":
                raise
        except (TableError, OSError):
            return

    def _tables_before(self) -> list[str]:
        """Return tables that only a lost ledger explains; streams of later layouts find some."""
        if self._pipeline.stream.name != self._pipeline.name:
            return []
        return TableNames.of(self._pipeline).silver_in(self._pipeline.lake)

    def batches(
        self, spark: SparkSession, ledger: Ledger
    ) -> Generator[SourceBatch | CaughtUp | Waiting]:
        query = self._start(self._stream(spark, ledger))
        try:
            yield from self._batches_of(query)
        finally:
            if query.isActive:
                query.stop()

    def _batches_of(self, query: StreamingQuery) -> Generator[SourceBatch | CaughtUp | Waiting]:
        idle, checked = False, monotonic()
        while True:
            try:
                handed = self._handed.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if not query.isActive:
                    # Raises what the query failed with.
                    try:
                        query.awaitTermination()
                    finally:
                        self._notice_replaced()
                    return
                was_idle, idle = idle, _is_idle(query)
                if idle and self._stop.requested:
                    return
                if idle and monotonic() - checked >= _CHECKED_EVERY_SECONDS:
                    self._notice_replaced()
                    checked = monotonic()
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

    def _batch(self, handed: _Handed) -> SourceBatch:
        number, checkpoint = handed.number, self._checkpoint
        start, end = checkpoint.start_of(number), checkpoint.offsets(number)
        rows = lag = None
        ids = self._ids
        if self._topics is not None:
            rows = records_between(start, end)
            lag = self._topics.lag(end) if end else None
            self._identify(end or ())
            ids = {topic: ids[topic] for topic in end or () if topic in ids}
        begins = self._resume is not None and self._resume.new_checkpoint and number == 0
        handed.tasks = _tasks(handed.frame, rows)
        return SourceBatch(
            Extent(number, start, end, lag, ids),
            handed.run,
            checkpoint.query_id if begins else None,
            self._require_same,
            self._notice_replaced,
        )

    def _stream(self, spark: SparkSession, ledger: Ledger) -> DataFrame:
        """Read the source from its `start`, or from where the ledger or another stream ends."""
        source, stream = self._pipeline.source, self._pipeline.stream
        end, ids = stream.start, stream.source_ids
        if self._resume is not None and self._resume.from_ledger:
            progress = ledger.progress()
            if progress is None or progress.ended_at is None:
                raise _cannot_continue("it has no position in the source")
            end, ids = progress.ended_at, progress.source_ids
        if isinstance(source, Kafka):
            if end is not None:
                end = offsets_from(in_the_same(end, ids, self._ids), self._partitions)
            return stream_topics(spark, source, end)
        assert isinstance(source, Delta)
        if end is None:
            return stream_table(spark, source)
        if replaced({**ids_of_position(end), **ids}, self._ids):
            return stream_table(spark, source.model_copy(update={"start": "earliest"}))
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
