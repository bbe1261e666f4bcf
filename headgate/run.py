"""Puts a run of a pipeline together: its source, its plan and what follows from landed tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headgate.catalog.register import CatalogFollowUp
from headgate.cdc.merge import MergeFollowUp
from headgate.cdc.stage import change_plan
from headgate.config import PipelineConfig
from headgate.config.location import is_remote
from headgate.engine.events import Ended, Listener
from headgate.engine.follow_up import FollowUp
from headgate.engine.plan import BatchPlan
from headgate.engine.record_plan import RecordPlan
from headgate.engine.runner import Runner, RunOptions
from headgate.engine.session import pipeline_session
from headgate.gold.follow import GoldFollowUp
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Committer
from headgate.lake.layout import open_stream
from headgate.lake.ledger import Ledger, Pending
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.open_tables import TableCache
from headgate.lake.run_lock import run_lock
from headgate.lake.storage import probe
from headgate.lake.streams import app_id, replay_name
from headgate.maintain import MaintainFollowUp
from headgate.models.predict import PredictFollowUp
from headgate.schema.changes import SchemaHistory
from headgate.sources.batch import NothingNew, Source
from headgate.sources.files import FileSource
from headgate.sources.stop_signal import StopSignal
from headgate.sources.stream import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_pipeline(
    pipeline: PipelineConfig,
    options: RunOptions | None = None,
    listener: Listener = lambda _: None,
    stop: StopSignal | None = None,
) -> Ended:
    """Run until the source is drained (`once`), or until a stop is requested."""
    if is_remote(pipeline.lake):
        probe(pipeline.lake)
    options = options or RunOptions()
    committer = choose_committer(pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake)
    stream = open_stream(pipeline, options.shard, committer)
    with run_lock(pipeline.lake, stream.name, pipeline.name) as held:
        build = _changes if pipeline.lands_changes else _records
        return build(pipeline.on(stream), options, listener, stop or StopSignal()).run(held)


def _records(
    pipeline: PipelineConfig, options: RunOptions, listener: Listener, stop: StopSignal
) -> Runner:
    source: Source = NothingNew()
    if not options.follow_only:
        source = StreamSource(
            pipeline,
            stop,
            once=options.once,
            from_ledger=options.from_ledger,
            trigger_milliseconds=options.trigger_milliseconds or pipeline.trigger.milliseconds,
        )

    def follow_ups(
        spark: SparkSession, committer: Committer, listener: Listener
    ) -> Sequence[FollowUp]:
        follow_ups: list[FollowUp] = []
        if pipeline.gold:
            follow_ups.append(GoldFollowUp(spark, committer, pipeline, listener))
        if pipeline.predict and pipeline.stream.is_first:
            follow_ups.append(PredictFollowUp.of(pipeline, committer, listener))
        return [*follow_ups, *_for_all_tables(spark, pipeline, committer, listener)]

    plan = RecordPlan.of(pipeline)
    return Runner(pipeline, source, plan, schema_history(pipeline), follow_ups, listener, stop)


def _changes(
    pipeline: PipelineConfig, options: RunOptions, listener: Listener, stop: StopSignal
) -> Runner:
    source: Source = NothingNew()
    if not options.follow_only:
        source = FileSource(
            pipeline,
            stop,
            once=options.once,
            trigger_milliseconds=options.trigger_milliseconds or pipeline.trigger.milliseconds,
        )
    tables = TableCache(pipeline.lake)
    plan = change_plan(pipeline, tables)

    def follow_ups(
        spark: SparkSession, committer: Committer, listener: Listener
    ) -> Sequence[FollowUp]:
        app = f"{app_id(pipeline.name)}:merge"
        follow_ups: list[FollowUp] = [
            MergeFollowUp.of(spark, committer, pipeline, plan, app, listener)
        ]
        if pipeline.gold:
            follow_ups.append(GoldFollowUp(spark, committer, pipeline, listener))
        return [*follow_ups, *_for_all_tables(spark, pipeline, committer, listener)]

    return Runner(
        pipeline,
        source,
        plan,
        schema_history(pipeline),
        follow_ups,
        listener,
        stop,
        partial(pending_replays, pipeline),
        tables,
    )


def _for_all_tables(
    spark: SparkSession, pipeline: PipelineConfig, committer: Committer, listener: Listener
) -> Sequence[FollowUp]:
    """Return the last follow-ups, which get all tables: the catalog, then maintenance."""
    catalog = pipeline.catalog
    registers = [] if catalog is None else [CatalogFollowUp.of(spark, pipeline, catalog, listener)]
    return [*registers, *maintenance(pipeline, committer, listener)]


def maintenance(
    pipeline: PipelineConfig, committer: Committer, listener: Listener
) -> Sequence[FollowUp]:
    """Return the follow-up that maintains tables, if the pipeline declares it."""
    policy = pipeline.maintain
    return [] if policy is None else [MaintainFollowUp(pipeline, policy, committer, listener)]


def batch_plan(pipeline: PipelineConfig) -> BatchPlan:
    """Return the plan of a pipeline's first batch."""
    return change_plan(pipeline) if pipeline.lands_changes else RecordPlan.of(pipeline)


def pending_replays(pipeline: PipelineConfig) -> tuple[Pending, ...]:
    """Return the pending files of replays of the quarantine."""
    return Ledger(pipeline.lake, pipeline.ledger, replay_name(pipeline.name)).pending()


def schema_history(pipeline: PipelineConfig) -> SchemaHistory:
    """Return the schemas that tables have met, in runs and in replays."""
    ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    return ledger.schema_history()
