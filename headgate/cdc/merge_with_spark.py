"""Merge a table that is too large for one task, with the same folded changes and conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.cdc.as_of import Cutoff, fold_with_spark, in_columns, key_of_log
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import latest
from headgate.cdc.history import all_versions, history_columns
from headgate.cdc.key import ROW_ID, TableKey, merged_columns
from headgate.cdc.merge_table import IS_DELETED, NeedsSparkMerge, TableMerged, merge_rule
from headgate.cdc.tombstones import Tombstones
from headgate.cdc.unmerged import MergePlan
from headgate.lake.commit import Commit, Committer, MergeCommit, MergeCounts
from headgate.lake.snapshot import Snapshot
from headgate.lake.spark import SparkCommitter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def merge_with_spark(
    spark: SparkSession, request: NeedsSparkMerge, committer: Committer
) -> TableMerged:
    """Run a Spark job for one table; tombstones are committed as those of other tables."""
    plan, by_spark = request.plan, SparkCommitter(lambda: spark, request.plan.lake)
    unmerged = request.open()
    if request.folded is not None:
        table = Snapshot.open(plan.lake, request.table)
        assert table is not None
        rule = merge_rule(TableKey.from_schema(table.schema), plan.metadata)
        merge = MergeCommit(
            request.table,
            request.folded,
            rule,
            (unmerged.mark,),
            required_marks=unmerged.required_marks,
        )
        counts = by_spark.merge(merge)
        changes = counts.inserted + counts.updated + counts.deleted
        return TableMerged.of(unmerged, request.table, by_spark, changes, counts)
    log = unmerged.log
    key = key_of_log(log, None if plan.key is None else tuple(plan.key), Cutoff())
    rebuild = _history if request.is_history else _merged
    with rebuild(spark, plan, log, key, committer) as rows:
        commit = Commit(
            request.table,
            rows.schema,
            (),
            (unmerged.mark,),
            "replace",
            required_marks=unmerged.required_marks,
        )
        counts = MergeCounts(by_spark.commit(commit, in_columns(rows.rows, rows.schema)))
    merged = TableMerged.of(unmerged, request.table, by_spark, 0, counts)
    return replace(merged, append_only=not key)


@dataclass(frozen=True)
class _Rebuilt:
    rows: DataFrame
    schema: pa.Schema


@contextmanager
def _merged(
    spark: SparkSession, plan: MergePlan, log: ChangeLog, key: TableKey, committer: Committer
) -> Iterator[_Rebuilt]:
    """Return all rows of a merged table, from the whole log; write tombstones first."""
    schema = merged_columns(log.schema, key, plan.metadata)
    changes = _changes(spark, log)
    if not key:
        yield _Rebuilt(changes, schema)
        return
    last = fold_with_spark(changes, log, key, partial(latest, key=key)).persist()
    try:
        _write_tombstones(plan, key, last, log, committer)
        yield _Rebuilt(last.where(f"NOT {IS_DELETED}"), schema)
    finally:
        last.unpersist()


@contextmanager
def _history(
    spark: SparkSession, plan: MergePlan, log: ChangeLog, key: TableKey, committer: Committer
) -> Iterator[_Rebuilt]:
    """Return all versions of rows, from the whole log."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = history_columns(log.schema, key)
    fold = partial(all_versions, key=key, schema=schema, known_rows=_no_lookup_expected)
    yield _Rebuilt(
        fold_with_spark(_changes(spark, log), log, key, fold, from_arrow_schema(schema)), schema
    )


def _changes(spark: SparkSession, log: ChangeLog) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", log.version).load(log.url)


def _no_lookup_expected(_: Collection[str]) -> pa.Table:
    raise AssertionError("deletions by row ID have their keys already")


def _write_tombstones(
    plan: MergePlan, key: TableKey, last: DataFrame, log: ChangeLog, committer: Committer
) -> None:
    """Replace the tombstones with those of the whole log."""
    tombstones = Tombstones(committer, plan.tombstones, key)
    wanted = [name for name in tombstones.columns if name in log.schema.names]
    deleted = last.where(IS_DELETED) if plan.metadata else last
    rows = deleted.select(*(f"`{name}`" for name in wanted)).toArrow()
    if not key.by_row_id and ROW_ID in wanted:
        rows = rows.drop_columns([ROW_ID])
    tombstones.reset(rows, create=True)
    tombstones.add(rows, *log.by_row_id_alone(key))
