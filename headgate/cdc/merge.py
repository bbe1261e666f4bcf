"""Brings merged and history tables up to their change logs: one Spark job for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from headgate.cdc.history import merge_history
from headgate.cdc.merge_table import MergePlan, NeedsSparkMerge, TableMerged, merge_table
from headgate.cdc.merge_with_spark import merge_with_spark
from headgate.cdc.plan import ChangePlan
from headgate.cdc.source_tables import KnownSource
from headgate.config import Merge, Pipeline
from headgate.engine.events import Listener, MergeFailed, TablesMerged, WithoutKey
from headgate.engine.follow_up import Followed, TableChanged
from headgate.lake.names import pattern_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MergeResult = TableMerged | NeedsSparkMerge | MergeFailed

_TASKS_PER_CORE = 4
"""More than one, so that a core with small tables takes some from one with large ones."""


@dataclass
class MergeFollowUp:
    """Merged and history tables follow their change logs, as often as the pipeline wants it."""

    spark: SparkSession
    app: str
    plan: ChangePlan
    merge: Merge
    listener: Listener
    behind: dict[str, KnownSource] = field(default_factory=dict)
    """Logs that may have changes which their tables do not have yet."""
    last: float = field(default_factory=monotonic)

    @classmethod
    def of(
        cls, spark: SparkSession, pipeline: Pipeline, plan: ChangePlan, app: str, listener: Listener
    ) -> MergeFollowUp:
        """Start with all logs: an earlier run may not have merged its last changes."""
        return cls(spark, app, plan, pipeline.merge, listener, dict(plan.known))

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        self.plan = self.plan.with_committed([file for one in changed for file in one.files])
        self.behind |= {one.table: self.plan.known[one.table] for one in changed}
        if batch is not None and not self._is_due():
            return Followed()
        plans = [plan for log, known in self.behind.items() if (plan := self._plan(log, known))]
        self.behind.clear()
        self.last = monotonic()
        if not plans:
            return Followed()
        began = perf_counter()
        merged = list(self._merged(plans))
        if merged:
            self.listener(merge_summary(merged, perf_counter() - began, batch))
        current = {plan.merged for plan in plans}
        return Followed(
            [one.entry for one in merged],
            [TableChanged(one.table) for one in merged if one.table in current],
        )

    def _merged(self, plans: Sequence[MergePlan]) -> Iterator[TableMerged]:
        context = self.spark.sparkContext
        tasks = min(len(plans), context.defaultParallelism * _TASKS_PER_CORE)
        for told in context.parallelize(plans, tasks).mapPartitions(merge_tables).collect():
            if isinstance(told, NeedsSparkMerge):
                told = self._merge_with_spark(told)
            if isinstance(told, MergeFailed):
                self.listener(told)
                continue
            if told.created and told.append_only:
                self.listener(WithoutKey(told.table))
            yield told

    def _merge_with_spark(self, request: NeedsSparkMerge) -> TableMerged | MergeFailed:
        try:
            return merge_with_spark(self.spark, request)
        except Exception as error:  # one table's trouble is not the others'
            return MergeFailed(request.table, f"{type(error).__name__}: {error}")

    def _is_due(self) -> bool:
        every = self.merge.every
        return every is None or monotonic() - self.last >= every.total_seconds()

    def _plan(self, log: str, known: KnownSource) -> MergePlan | None:
        return merge_plan(self.plan, self.merge, self.app, log, known)


def merge_summary(
    merged: Sequence[TableMerged], seconds: float, batch: int | None = None
) -> TablesMerged:
    """Add up what was done to all tables."""
    return TablesMerged(
        batch,
        tables=len(merged),
        inserted=sum(one.inserted for one in merged),
        updated=sum(one.updated for one in merged),
        deleted=sum(one.deleted for one in merged),
        seconds=seconds,
        by_spark=sum(one.engine == "spark" for one in merged),
    )


def merge_plan(
    plan: ChangePlan, merge: Merge, app: str, log: str, known: KnownSource
) -> MergePlan | None:
    """None where the pipeline wants nothing but logs."""
    source, names = known.source, plan.tables_of(known.source)
    if names.merged is None and names.history is None:
        return None
    return MergePlan(
        lake=plan.lake,
        log=log,
        merged=names.merged_for(source),
        history=names.history_for(source),
        tombstones=names.tombstones_for(source),
        app=app,
        metadata=merge.metadata,
        key=plan.envelope.key_of(pattern_name(source)),
        horizon_seconds=merge.horizon.total_seconds(),
        spark_above=int(merge.spark_above),
    )


def merge_tables(plans: Iterable[MergePlan]) -> Iterator[MergeResult]:
    """In a task: one source table after the other."""
    for plan in plans:
        for table, merge in ((plan.merged, merge_table), (plan.history, merge_history)):
            if table is None:
                continue
            try:
                told = merge(plan)
            except Exception as error:  # one table's trouble is not the others'
                yield MergeFailed(table, f"{type(error).__name__}: {error}")
                continue
            if told is not None:
                yield told
