"""The choice between delta-rs, Delta Kernel and Spark for commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headgate.lake.commit import (
    Commit,
    Committer,
    Engine,
    MergeCommit,
    MergeCounts,
    TableState,
    Work,
)
from headgate.lake.compact import Compacted
from headgate.lake.definition import TableDefinition
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.kernel import KernelCommitter
from headgate.lake.open_tables import TableCache
from headgate.lake.snapshot import Snapshot
from headgate.lake.spark import SparkCommitter
from headgate.lake.tables import NotWritable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def choose_committer(
    wanted: Literal["auto", "delta-rs", "spark"],
    spark: Callable[[], SparkSession],
    lake: str,
    tables: TableCache | None = None,
) -> Committer:
    """Return the committer that a pipeline file names; Spark is started when it is needed."""
    if wanted == "delta-rs":
        return DeltaRsCommitter(lake, tables)
    if wanted == "spark":
        return SparkCommitter(spark, lake)
    tables = tables or TableCache(lake)
    kernel = KernelCommitter(spark, lake, tables)
    return AutoCommitter(DeltaRsCommitter(lake, tables), SparkCommitter(spark, lake), kernel)


class AutoCommitter:
    """Commits with delta-rs, and with Spark to tables that delta-rs cannot write.

    These have features that it lacks, or constraints that it does not check in staged files. Kernel
    appends to those whose features it keeps, without a Spark job.
    """

    def __init__(
        self, delta_rs: DeltaRsCommitter, spark: Committer, kernel: KernelCommitter | None = None
    ) -> None:
        self.lake = delta_rs.lake
        self._delta_rs = delta_rs
        self._spark = spark
        self._kernel = kernel

    def engine(self, table: str | Snapshot, work: Work = "merge") -> Engine:
        can = self._delta_rs.can_merge if work == "merge" else self._delta_rs.can_compact
        return "delta-rs" if can(table) else "spark"

    def state(self, table: str, app: str) -> TableState | None:
        with suppress(NotWritable):
            state = self._delta_rs.state(table, app)
            if state is None or state.obstacle is None:
                return state
            if self._kernel is not None and self._kernel.can_append(table):
                return replace(state, obstacle=None)
        return self._spark.state(table, app)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return self._for(table).schema_at(table, version)

    def definition(self, table: str, version: int) -> TableDefinition | None:
        return self._delta_rs.definition(table, version)

    def can_rewrite(self, table: str, up_to: int) -> bool:
        return self._for(table).can_rewrite(table, up_to)

    def commit(self, commit: Commit) -> int:
        try:
            return self._delta_rs.commit(commit)
        except NotWritable:
            if self._kernel is not None:
                with suppress(NotWritable):
                    return self._kernel.commit(commit)
            return self._spark.commit(commit)

    def merge(self, merge: MergeCommit) -> MergeCounts:
        try:
            return self._delta_rs.merge(merge)
        except NotWritable:
            return self._spark.merge(merge)

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        try:
            return self._delta_rs.compact(table, size, fewest)
        except NotWritable:
            return self._spark.compact(table, size, fewest)

    def _for(self, table: str | Snapshot) -> Committer:
        return self._delta_rs if self._delta_rs.can_write(table) else self._spark
