"""Merge a table that is too large for one task, with the same folded changes and conditions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.cdc.as_of import Cutoff, fold_with_spark, in_columns, key_of_log
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import latest
from headgate.cdc.history import all_versions, history_columns
from headgate.cdc.key import ROW_ID, TableKey, merged_columns
from headgate.cdc.merge_table import (
    IS_DELETED,
    MergePlan,
    NeedsSparkMerge,
    TableMerged,
    newer_than_row,
    same_key,
)
from headgate.cdc.tombstones import Tombstones
from headgate.lake.commit import Mark
from headgate.lake.parquet import delete_file
from headgate.lake.snapshot import Snapshot, table_url
from headgate.lake.write import ensure_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MARK = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


def merge_with_spark(spark: SparkSession, request: NeedsSparkMerge) -> TableMerged:
    """Run a Spark job for one table."""
    path = table_url(request.plan.lake, request.table)
    app, version = _MARK
    spark.conf.set(app, request.plan.app)
    spark.conf.set(version, request.log_version)
    try:
        if request.is_history:
            merged = _rebuild_history(spark, request, path)
        elif request.folded is None:
            merged = _rebuild(spark, request, path)
        else:
            merged = _merge(spark, request, path)
    finally:
        spark.conf.unset(app)
        spark.conf.unset(version)
    mark = Mark(request.plan.app, request.log_version)
    return replace(merged, version=ensure_mark(request.plan.lake, request.table, mark))


def _merge(spark: SparkSession, request: NeedsSparkMerge, path: str) -> TableMerged:
    assert request.folded is not None
    table = Snapshot.open(request.plan.lake, request.table)
    assert table is not None
    key = TableKey.from_schema(table.schema)
    source = spark.read.parquet(request.folded)
    source.createOrReplaceTempView("headgate_changes")
    names = [name for name in source.columns if name != IS_DELETED]
    sets = ", ".join(f"`{name}` = change.`{name}`" for name in names)
    columns, values = (
        ", ".join(f"{prefix}`{name}`" for name in names) for prefix in ("", "change.")
    )
    newer = newer_than_row(request.plan.metadata)
    place = path.replace("`", "``")
    result = spark.sql(
        f"""
        MERGE INTO delta.`{place}` AS row USING headgate_changes AS change
        ON {same_key(key, "`")}
        WHEN MATCHED AND change.{IS_DELETED}{newer} THEN DELETE
        WHEN MATCHED AND NOT change.{IS_DELETED}{newer} THEN UPDATE SET {sets}
        WHEN NOT MATCHED AND NOT change.{IS_DELETED} THEN INSERT ({columns}) VALUES ({values})
        """
    ).head()
    spark.catalog.dropTempView("headgate_changes")
    delete_file(request.folded)
    return TableMerged(
        request.table,
        request.plan.log,
        request.log_version,
        table.version,
        "spark",
        changes=int(result["num_affected_rows"]) if result else 0,
        inserted=int(result["num_inserted_rows"]) if result else 0,
        updated=int(result["num_updated_rows"]) if result else 0,
        deleted=int(result["num_deleted_rows"]) if result else 0,
    )


def _rebuild(spark: SparkSession, request: NeedsSparkMerge, path: str) -> TableMerged:
    """Rebuild all rows from the whole log in one commit; write tombstones first."""
    plan = request.plan
    log = ChangeLog.open(plan.lake, plan.log)
    assert log is not None
    key = key_of_log(log, None if plan.key is None else tuple(plan.key), Cutoff())
    changes = spark.read.format("delta").option("versionAsOf", log.version).load(log.url)
    schema = merged_columns(log.schema, key, plan.metadata)
    if key:
        last = fold_with_spark(changes, log, key, partial(latest, key=key)).persist()
        _write_tombstones(plan, key, last, log)
        changes = last.where(f"NOT {IS_DELETED}")
    writer = in_columns(changes, schema).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").save(path)
    if key:
        last.unpersist()
    return TableMerged(request.table, plan.log, log.version, -1, "spark", append_only=not key)


def _rebuild_history(spark: SparkSession, request: NeedsSparkMerge, path: str) -> TableMerged:
    """Rebuild all versions from the whole log in one commit."""
    from pyspark.sql.pandas.types import from_arrow_schema

    log = ChangeLog.open(request.plan.lake, request.plan.log)
    assert log is not None
    key = key_of_log(log, None if request.plan.key is None else tuple(request.plan.key), Cutoff())
    changes = spark.read.format("delta").option("versionAsOf", log.version).load(log.url)
    schema = history_columns(log.schema, key)
    fold = partial(all_versions, key=key, schema=schema, known_rows=_no_lookup_expected)
    created = fold_with_spark(changes, log, key, fold, from_arrow_schema(schema))
    writer = in_columns(created, schema).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").save(path)
    return TableMerged(request.table, request.plan.log, log.version, -1, "spark")


def _no_lookup_expected(_: Collection[str]) -> pa.Table:
    raise AssertionError("deletions by row ID have their keys already")


def _write_tombstones(plan: MergePlan, key: TableKey, last: DataFrame, log: ChangeLog) -> None:
    """Replace the tombstones with those of the whole log."""
    tombstones = Tombstones(plan.lake, plan.tombstones, key)
    wanted = [name for name in tombstones.columns if name in log.schema.names]
    deleted = last.where(IS_DELETED) if plan.metadata else last
    rows = deleted.select(*(f"`{name}`" for name in wanted)).toArrow()
    if not key.by_row_id and ROW_ID in wanted:
        rows = rows.drop_columns([ROW_ID])
    tombstones.reset(rows)
    tombstones.add(rows, *log.by_row_id_alone(key))
