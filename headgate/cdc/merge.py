"""Bring merged and history tables up to date with their change logs, in one Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, ClassVar

from headgate.cdc.history import merge_history
from headgate.cdc.merge_table import NeedsSparkMerge, TableMerged, merge_table
from headgate.cdc.merge_with_spark import merge_with_spark
from headgate.cdc.plan import ChangePlan
from headgate.cdc.source_tables import KnownSource
from headgate.cdc.unmerged import MergePlan
from headgate.config import Merge, PipelineConfig
from headgate.engine.events import (
    Listener,
    MergeFailed,
    TableRebuilt,
    TablesMerged,
    WithoutKey,
)
from headgate.engine.follow_up import Followed, TableChanged
from headgate.lake.commit import Committer
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger_entries import MergeEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.names import pattern_name
from headgate.lake.open_tables import KnownVersion, table_cache
from headgate.lake.spark import SparkCommitter
from headgate.lake.tables import CommitConflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MergeResult = TableMerged | NeedsSparkMerge | MergeFailed

_TASKS_PER_CORE = 4
"""More than one, so that cores with small tables take over work from those with large ones."""


@dataclass
class MergeFollowUp:
    """Merges change logs into merged and history tables, at the interval of the pipeline."""

    while_idle: ClassVar = False
    of_all_tables: ClassVar = False
    spark: SparkSession | None
    """None to merge in this process; tables that are too large for that then fail."""
    committer: Committer
    app: str
    plan: ChangePlan
    merge: Merge
    listener: Listener
    behind: dict[str, KnownSource] = field(default_factory=dict)
    """Logs that may have unmerged changes."""
    last: float = field(default_factory=monotonic)
    recorded: dict[str, MergeEntry] = field(default_factory=dict)
    """The last merge of each table, as the ledger has it."""
    _errors: dict[str, str] = field(default_factory=dict)
    """Tables that failed the last time, and why, as the ledger has it."""

    @classmethod
    def of(
        cls,
        spark: SparkSession | None,
        committer: Committer,
        pipeline: PipelineConfig,
        plan: ChangePlan,
        app: str,
        listener: Listener,
    ) -> MergeFollowUp:
        """Start with all logs: an earlier run may not have merged its last changes."""
        known, recorded = dict(plan.known), recorded_merges(pipeline)
        return cls(spark, committer, app, plan, pipeline.merge, listener, known, recorded=recorded)

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        self.plan = self.plan.with_sources(changed)
        self.behind |= {table.table: self.plan.known[table.table] for table in changed}
        committed = {
            one.table: KnownVersion(one.version, one.definition)
            for one in changed
            if one.version is not None and one.definition is not None
        }
        if batch is not None and not self._is_due():
            return Followed()
        due, self.behind = self.behind, {}
        declared = self.plan, self.merge, self.app
        plans = {
            log: replace(plan, committed=committed.get(log))
            for log, source in due.items()
            if (plan := merge_plan(*declared, log, source, self.recorded))
        }
        self.last = monotonic()
        if not plans:
            return Followed()
        began = perf_counter()
        results = list(self._merged(list(plans.values())))
        # The ledger may lack merges of an earlier run that was killed.
        merged = [
            result
            for result in results
            if isinstance(result, TableMerged) and not result.is_recorded(self.recorded)
        ]
        self.recorded |= {result.table: result.entry for result in merged}
        failed = [result for result in results if isinstance(result, MergeFailed)]
        if merged:
            self.listener(merge_summary(merged, perf_counter() - began, batch))
        log_of = {table: log for log, plan in plans.items() for table in plan.tables}
        # Those that failed are due again after the next batch.
        self.behind |= {log: due[log] for log in {log_of[result.table] for result in failed}}
        failures = [
            MergeEntry(result.table, 0, None, log_of[result.table], None, None, error=result.error)
            for result in failed
            if self._errors.get(result.table) != result.error
        ]
        self._errors = {result.table: result.error for result in failed}
        current = {plan.merged for plan in plans.values()}
        return Followed(
            [*(result.entry for result in merged), *failures],
            [TableChanged(result.table) for result in merged if result.table in current],
        )

    def _merged(self, plans: Sequence[MergePlan]) -> Iterator[TableMerged | MergeFailed]:
        """Merge logs, in Spark what is too large for a task."""
        for result in self._results(plans):
            if isinstance(result, NeedsSparkMerge):
                result = self._merge_with_spark(result)
            if isinstance(result, MergeFailed):
                self.listener(result)
            else:
                emit_merge(result, self.listener)
            yield result

    def _results(self, plans: Sequence[MergePlan]) -> Iterator[MergeResult]:
        """Merge in tasks; on the driver one table alone, and what only Spark can commit."""
        if self.spark is None or isinstance(self.committer, SparkCommitter):
            yield from merge_tables(plans, self.committer)
            return
        context = self.spark.sparkContext
        tasks = min(len(plans), context.defaultParallelism * _TASKS_PER_CORE)
        results = (
            merge_with_delta_rs(plans)
            if len(plans) == 1
            else context.parallelize(plans, tasks).mapPartitions(merge_with_delta_rs).collect()
        )
        for result in results:
            if isinstance(result, MergePlan):
                yield from merge_tables([result], self.committer)
            else:
                yield result

    def _merge_with_spark(self, request: NeedsSparkMerge) -> TableMerged | MergeFailed:
        if self.spark is None:
            return MergeFailed(request.table, "the table is too large to be merged without Spark")
        try:
            return merge_with_spark(self.spark, request, self.committer)
        except Exception as error:  # one failing table must not stop the others
            return MergeFailed(request.table, f"{type(error).__name__}: {error}")

    def _is_due(self) -> bool:
        every = self.merge.every
        return every is None or monotonic() - self.last >= every.total_seconds()


def emit_merge(result: TableMerged, listener: Listener) -> None:
    """Emit what is not routine about a merge."""
    if result.created and result.append_only:
        listener(WithoutKey(result.table))
    if result.rebuilt is not None:
        listener(TableRebuilt(result.table, result.rebuilt))


def recorded_merges(pipeline: PipelineConfig) -> dict[str, MergeEntry]:
    """Return the last merge of each table, according to the ledger."""
    ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    entries = (row.entry for row in ledger.last_outcomes(MergeEntry))
    return {entry.table: entry for entry in entries if entry.error is None}


def merge_summary(
    merged: Sequence[TableMerged], seconds: float, batch: int | None = None
) -> TablesMerged:
    """Return the totals over all merged tables."""
    return TablesMerged(
        batch,
        tables=len(merged),
        inserted=sum(result.inserted for result in merged),
        updated=sum(result.updated for result in merged),
        deleted=sum(result.deleted for result in merged),
        seconds=seconds,
        by_spark=sum(result.engine == "spark" for result in merged),
    )


def merge_plan(
    plan: ChangePlan,
    merge: Merge,
    app: str,
    log: str,
    known: KnownSource,
    recorded: Mapping[str, MergeEntry],
) -> MergePlan | None:
    """Return the plan for one log; None if the pipeline has neither merged nor history tables."""
    source, names = known.source, plan.tables_of(known.source)
    if names.merged is None and names.history is None:
        return None
    merged, history = names.merged_for(source), names.history_for(source)
    written = {
        table: recorded[table].table_version or 0
        for table in (merged, history)
        if table is not None and table in recorded
    }
    return MergePlan(
        lake=plan.lake,
        log=log,
        merged=merged,
        history=history,
        tombstones=names.tombstones_for(source),
        app=app,
        metadata=merge.metadata,
        key=plan.envelope.key_of(pattern_name(source)),
        horizon_seconds=merge.horizon.total_seconds(),
        spark_above=int(merge.spark_above),
        written=written,
    )


def merge_with_delta_rs(plans: Iterable[MergePlan]) -> Iterator[MergeResult | MergePlan]:
    """Merge source tables, in a task or here; return a plan that delta-rs cannot carry out.

    Open tables stay open, and known, for the next time.
    """
    for plan in plans:
        committer = _committer(plan.lake)
        results = list(merge_tables([plan], committer))
        failed = any(isinstance(result, MergeFailed) for result in results)
        if failed and not all(map(committer.can_merge, plan.tables)):
            yield plan
        else:
            yield from results


@cache
def _committer(lake: str) -> DeltaRsCommitter:
    return DeltaRsCommitter(lake, table_cache(lake))


def merge_tables(plans: Iterable[MergePlan], committer: Committer) -> Iterator[MergeResult]:
    """Merge source tables one after the other."""
    for plan in plans:
        for table, merge in ((plan.merged, merge_table), (plan.history, merge_history)):
            if table is None:
                continue
            try:
                result = _retry_conflicts(merge, plan, committer)
            except Exception as error:  # one failing table must not stop the others
                yield MergeFailed(table, f"{type(error).__name__}: {error}")
                continue
            if result is not None:
                yield result


_Merge = Callable[[MergePlan, Committer], TableMerged | NeedsSparkMerge | None]
_CONFLICT_WAITS = (0.1, 0.5, 2.0)
"""Seconds to wait before a merge is repeated on the newest version of its table."""


def _retry_conflicts(
    merge: _Merge, plan: MergePlan, committer: Committer
) -> TableMerged | NeedsSparkMerge | None:
    """Merge again if someone else has committed to the table meanwhile."""
    for seconds in _CONFLICT_WAITS:
        try:
            return merge(plan, committer)
        except CommitConflict:
            sleep(seconds)
    return merge(plan, committer)
