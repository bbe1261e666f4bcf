"""Runs a pipeline: one streaming query, one batch after the other, until it is done or stopped."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.config import AnyPipeline, ChangePipeline, Kafka, Pipeline
from headgate.engine.batch import BatchLander, BatchOutcome, Extent, Stage
from headgate.engine.events import BatchLanded, Ended, Event, Idle, Listener, Started
from headgate.engine.failure import explain_failure
from headgate.engine.plan import BatchPlan
from headgate.engine.record_plan import StagingPlan
from headgate.engine.recovery import Checkpoint, CheckpointState, Resume, resume, run_lock
from headgate.engine.session import spark_session
from headgate.engine.stage import STAGED_DDL, staged_files
from headgate.engine.stop_signal import StopSignal
from headgate.errors import CheckpointError
from headgate.gold.follow import DerivedTables
from headgate.lake.commit_with import choose_committer
from headgate.lake.ledger import Ledger, Progress, replay_name
from headgate.lake.ledger_entries import Entry
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatch, StagedBatchNote, StagedFile
from headgate.run.run_changes import ChangeRun
from headgate.run.run_options import RunOptions
from headgate.schema.history import SchemaHistory
from headgate.sources.delta import stream_table
from headgate.sources.kafka import Behind, records_between, require_topics, stream_topics, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ROWS_WORTH_A_TASK = 20_000
_LOOK_EVERY = 0.25


class _Stopping(Exception):
    """Raised into a batch that begins after a stop was asked for; it is run by the next run."""


def run_pipeline(
    pipeline: AnyPipeline,
    options: RunOptions | None = None,
    listener: Listener = lambda _: None,
    stop: StopSignal | None = None,
) -> Ended:
    """Run until the source is drained (`once`), or until a stop is asked for."""
    options, stop = options or RunOptions(), stop or StopSignal()
    with run_lock(pipeline.checkpoint, pipeline.name):
        if isinstance(pipeline, ChangePipeline):
            return ChangeRun(pipeline, options, listener, stop).run()
        assert isinstance(pipeline, Pipeline)
        return _Run(pipeline, options, listener, stop).run()


class _Run:
    def __init__(
        self, pipeline: Pipeline, options: RunOptions, listener: Listener, stop: StopSignal
    ) -> None:
        self.pipeline = pipeline
        self.options = options
        self.stop = stop
        self.checkpoint = Checkpoint(pipeline.checkpoint)
        self.ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
        self.note = StagedBatchNote(pipeline.lake, pipeline.name)
        self.names = TableNames.of(pipeline)
        self.behind: Behind | None = None
        self.landed: list[BatchLanded] = []
        self.failure: BaseException | None = None
        self._listener = listener

    def run(self) -> Ended:
        progress = self.ledger.progress()
        staged = self.note.under_way(progress.landed) if progress else None
        if progress is None:
            self.note.clear()
        found = self._resume(progress, staged)
        if isinstance(self.pipeline.source, Kafka):
            require_topics(self.pipeline.source)
            self.behind = Behind(self.pipeline.source)
        settings = {key: text(value) for key, value in self.pipeline.spark.items()}
        spark = spark_session(self.pipeline.name, settings)
        self.lander = self._lander(spark, progress, found)
        with self.stop.on_signals():
            self.lander.land_pending()
            self.derived.catch_up()
            if found.by_ledger and staged is not None:
                # Staged before the checkpoint was lost: its files are there, the source is not
                # asked again.
                self.lander.land_staged(staged)
            self.lander.first_version = found.first_version
            query = self._start(self._stream(spark, found), found)
            self._tell(
                Started(self.pipeline.name, self.pipeline.lake, _next_batch(progress, found))
            )
            self._watch(query)
        ended = Ended(
            batches=len(self.landed),
            rows=sum(batch.rows for batch in self.landed),
            quarantined=sum(sum(batch.quarantined.values()) for batch in self.landed),
            stopped=self.stop.asked,
            tables=frozenset(self.lander.known_tables),
        )
        self._tell(ended)
        return ended

    def _resume(self, progress: Progress | None, staged: StagedBatch | None) -> Resume:
        state = CheckpointState(
            self.checkpoint.query_id, self.checkpoint.last_begun, self.checkpoint.last_committed
        )
        try:
            return resume(
                progress,
                staged.version if staged else None,
                state,
                self.names.silver_in(self.pipeline.lake),
                self.options.replay,
            )
        except CheckpointError as error:
            error.where = str(self.checkpoint.folder)
            raise

    def _lander(self, spark: SparkSession, progress: Progress | None, found: Resume) -> BatchLander:
        known = set(self.names.silver_in(self.pipeline.lake))
        plan = StagingPlan.of(self.pipeline, frozenset(known))
        self.derived = DerivedTables(spark, self.pipeline, self.ledger, self._tell)
        return BatchLander(
            ledger=self.ledger,
            note=self.note,
            committer=choose_committer(self.pipeline.commit, spark, self.pipeline.lake),
            plan=plan,
            listener=self._tell,
            first_version=progress.first_version if progress else 0,
            landed=progress.landed if progress else None,
            pending=progress.pending if progress else (),
            known_tables=known,
            history=self._history(),
            derive=self._derive,
        )

    def _derive(self, outcome: BatchOutcome) -> Sequence[Entry]:
        """What follows from the tables that got records."""
        return self.derived.follow((one.table, one.route) for one in outcome.landed)

    def _history(self) -> SchemaHistory:
        """The schemas that tables have met, in the stream or in a replay of the quarantine."""
        name = self.pipeline.name
        return self.ledger.snapshot().of(name, replay_name(name)).schema_history()

    def _stream(self, spark: SparkSession, found: Resume) -> DataFrame:
        """The source from where the pipeline says, or from where the ledger ends."""
        source = self.pipeline.source
        if not found.by_ledger:
            if isinstance(source, Kafka):
                return stream_topics(spark, source)
            return stream_table(spark, source)
        progress = self.ledger.progress()
        ended = progress.ended_at if progress else None
        if ended is None:
            raise _cannot_replay("it has no place in the source")
        if isinstance(source, Kafka):
            return stream_topics(spark, source, ended)
        if ended.get("index", 0) >= 0:
            raise _cannot_replay("the last batch ended inside a version of the Delta table")
        return stream_table(spark, source, int(ended["reservoirVersion"]))

    def _start(self, frame: DataFrame, found: Resume) -> StreamingQuery:
        # Spark keeps the function of a query that has ended: all tables would stay open with it.
        this = weakref.proxy(self)
        writer = (
            frame.writeStream.queryName(self.pipeline.name)
            .option("checkpointLocation", self.pipeline.checkpoint)
            .foreachBatch(lambda frame, batch: this._land(found, frame, batch))
        )
        if self.options.once:
            return writer.trigger(availableNow=True).start()
        milliseconds = self.options.trigger_milliseconds or self.pipeline.trigger.milliseconds
        return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()

    def _land(self, found: Resume, frame: DataFrame, batch: int) -> None:
        try:
            if self.stop.asked:
                raise _Stopping
            if found.start_anew and batch == 0:
                query_id = self.checkpoint.query_id
                assert query_id is not None
                self.ledger.start(query_id, found.first_version)
            start, end = self.checkpoint.start_of(batch), self.checkpoint.offsets(batch)
            rows = records_between(start, end) if self.behind else None
            lag = self.behind.records(end) if self.behind and end else None
            self.lander.land(Extent(batch, start, end, lag), _stage_with(frame, rows))
        except BaseException as error:
            self.failure = error
            raise

    def _watch(self, query: StreamingQuery) -> None:
        """Wait for the end; on a stop, let the batch that runs come to its own end first."""
        try:
            was_idle = False
            while not query.awaitTermination(_LOOK_EVERY):  # type: ignore[arg-type]
                idle = not query.status["isTriggerActive"] and not query.status["isDataAvailable"]
                if self.stop.asked and idle:
                    query.stop()
                    return
                if idle and not was_idle:
                    self._tell(Idle())
                was_idle = idle
        except Exception as error:
            if isinstance(self.failure, _Stopping):
                return
            raise explain_failure(self.failure or error) from error

    def _tell(self, event: Event) -> None:
        if isinstance(event, BatchLanded):
            self.landed.append(event)
        self._listener(event)


def _stage_with(frame: DataFrame, rows: int | None) -> Stage:
    """The one Spark job of a batch, with no more tasks than it is worth."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    tasks = cores if rows is None else max(1, min(cores, -(-rows // _ROWS_WORTH_A_TASK)))

    def run(plan: BatchPlan) -> list[StagedFile]:
        job = frame.coalesce(tasks).mapInArrow(plan.stage, STAGED_DDL)
        return staged_files((row.file, row.error) for row in job.collect())

    return run


def _next_batch(progress: Progress | None, found: Resume) -> int | None:
    if progress is None or progress.landed is None or found.start_anew:
        return None
    return progress.landed - found.first_version + 1


def _cannot_replay(why: str) -> CheckpointError:
    return CheckpointError(
        "replay-impossible",
        f"the ledger does not say where to go on: {why}",
        hint="restore the checkpoint, or land into an empty lake",
    )
