"""Brings merged and history tables up to their change logs: one Spark job for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from headgate.cdc.history import merge_history
from headgate.cdc.known_source import KnownSource
from headgate.cdc.merge_plan import ForSpark, MergePlan, TableMerged
from headgate.cdc.merge_table import merge_table
from headgate.cdc.merge_with_spark import merge_with_spark
from headgate.cdc.plan import ChangePlan
from headgate.config import Merge
from headgate.engine.events import Listener, MergeFailed, TablesMerged, WithoutKey
from headgate.lake.ledger_entries import MergeEntry
from headgate.lake.names import pattern_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = TableMerged | ForSpark | MergeFailed

_TASKS_PER_CORE = 4
"""More than one, so that a core with small tables takes some from one with large ones."""


@dataclass
class ChangeMerger:
    """Merges after batches, as often as the pipeline wants it."""

    spark: SparkSession
    app: str
    plan: ChangePlan
    merge: Merge
    listener: Listener
    behind: dict[str, KnownSource] = field(default_factory=dict)
    """Logs that have something which their tables may not have yet."""
    last: float = field(default_factory=monotonic)

    def landed(self, logs: Mapping[str, KnownSource], batch: int) -> list[MergeEntry]:
        """Some logs have new changes: merge them now, or when it is time."""
        self.behind |= logs
        return self.merge_all(batch) if self._is_time() else []

    def merge_all(self, batch: int | None = None) -> list[MergeEntry]:
        plans = [plan for log, known in self.behind.items() if (plan := self._plan(log, known))]
        self.behind.clear()
        self.last = monotonic()
        if not plans:
            return []
        began = perf_counter()
        merged = list(self._merged(plans))
        if merged:
            self.listener(
                TablesMerged(
                    batch,
                    tables=len(merged),
                    inserted=sum(one.inserted for one in merged),
                    updated=sum(one.updated for one in merged),
                    deleted=sum(one.deleted for one in merged),
                    seconds=perf_counter() - began,
                    by_spark=sum(one.engine == "spark" for one in merged),
                )
            )
        return [one.entry for one in merged]

    def _merged(self, plans: Sequence[MergePlan]) -> Iterator[TableMerged]:
        context = self.spark.sparkContext
        tasks = min(len(plans), context.defaultParallelism * _TASKS_PER_CORE)
        for told in context.parallelize(plans, tasks).mapPartitions(merge_tables).collect():
            if isinstance(told, ForSpark):
                told = self._by_spark(told)
            if isinstance(told, MergeFailed):
                self.listener(told)
                continue
            if told.made and told.append_only:
                self.listener(WithoutKey(told.table))
            yield told

    def _by_spark(self, asked: ForSpark) -> TableMerged | MergeFailed:
        try:
            return merge_with_spark(self.spark, asked)
        except Exception as error:  # one table's trouble is not the others'
            return MergeFailed(asked.table, f"{type(error).__name__}: {error}")

    def _is_time(self) -> bool:
        every = self.merge.every
        return every is None or monotonic() - self.last >= every.total_seconds()

    def _plan(self, log: str, known: KnownSource) -> MergePlan | None:
        return merge_plan(self.plan, self.merge, self.app, log, known)


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


def merge_tables(plans: Iterable[MergePlan]) -> Iterator[Told]:
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
