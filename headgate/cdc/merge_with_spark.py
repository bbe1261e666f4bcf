"""Merges a table that is too large for one task: the same folded changes, the same conditions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.cdc.as_of import Until, fold_with_spark, in_columns, key_of_log
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import latest
from headgate.cdc.history import all_versions, history_columns
from headgate.cdc.key import ROW_ID, TableKey, merged_columns
from headgate.cdc.merge_plan import ForSpark, MergePlan, TableMerged
from headgate.cdc.merge_table import GONE, newer_than_row, same_key
from headgate.cdc.tombstones import Tombstones
from headgate.lake.commit import Mark
from headgate.lake.parquet import delete_file
from headgate.lake.snapshot import Snapshot, table_url
from headgate.lake.write import ensure_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MARK = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


def merge_with_spark(spark: SparkSession, asked: ForSpark) -> TableMerged:
    """One Spark job for one table, which is why only large ones come here."""
    path = table_url(asked.plan.lake, asked.table)
    app, version = _MARK
    spark.conf.set(app, asked.plan.app)
    spark.conf.set(version, asked.log_version)
    try:
        if asked.is_history:
            merged = _rebuild_history(spark, asked, path)
        elif asked.folded is None:
            merged = _rebuild(spark, asked, path)
        else:
            merged = _merge(spark, asked, path)
    finally:
        spark.conf.unset(app)
        spark.conf.unset(version)
    mark = Mark(asked.plan.app, asked.log_version)
    return replace(merged, version=ensure_mark(asked.plan.lake, asked.table, mark))


def _merge(spark: SparkSession, asked: ForSpark, path: str) -> TableMerged:
    assert asked.folded is not None
    table = Snapshot.open(asked.plan.lake, asked.table)
    assert table is not None
    key = TableKey.kept_in(table.schema)
    source = spark.read.parquet(asked.folded)
    source.createOrReplaceTempView("headgate_changes")
    names = [name for name in source.columns if name != GONE]
    sets = ", ".join(f"`{name}` = change.`{name}`" for name in names)
    columns, values = (
        ", ".join(f"{prefix}`{name}`" for name in names) for prefix in ("", "change.")
    )
    newer = newer_than_row(asked.plan.metadata)
    place = path.replace("`", "``")
    did = spark.sql(
        f"""
        MERGE INTO delta.`{place}` AS row USING headgate_changes AS change
        ON {same_key(key, "`")}
        WHEN MATCHED AND change.{GONE}{newer} THEN DELETE
        WHEN MATCHED AND NOT change.{GONE}{newer} THEN UPDATE SET {sets}
        WHEN NOT MATCHED AND NOT change.{GONE} THEN INSERT ({columns}) VALUES ({values})
        """
    ).head()
    spark.catalog.dropTempView("headgate_changes")
    delete_file(asked.folded)
    return TableMerged(
        asked.table,
        asked.plan.log,
        asked.log_version,
        table.version,
        "spark",
        changes=int(did["num_affected_rows"]) if did else 0,
        inserted=int(did["num_inserted_rows"]) if did else 0,
        updated=int(did["num_updated_rows"]) if did else 0,
        deleted=int(did["num_deleted_rows"]) if did else 0,
    )


def _rebuild(spark: SparkSession, asked: ForSpark, path: str) -> TableMerged:
    """All rows by the whole log, in one commit; what is gone is remembered first."""
    plan = asked.plan
    log = ChangeLog.open(plan.lake, plan.log)
    assert log is not None
    key = key_of_log(log, None if plan.key is None else tuple(plan.key), Until())
    changes = spark.read.format("delta").option("versionAsOf", log.version).load(log.url)
    schema = merged_columns(log.schema, key, plan.metadata)
    if key:
        last = fold_with_spark(changes, log, key, partial(latest, key=key)).persist()
        _remember(plan, key, last, log)
        changes = last.where(f"NOT {GONE}")
    writer = in_columns(changes, schema).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").save(path)
    if key:
        last.unpersist()
    return TableMerged(asked.table, plan.log, log.version, -1, "spark", append_only=not key)


def _rebuild_history(spark: SparkSession, asked: ForSpark, path: str) -> TableMerged:
    """All versions by the whole log, in one commit."""
    from pyspark.sql.pandas.types import from_arrow_schema

    log = ChangeLog.open(asked.plan.lake, asked.plan.log)
    assert log is not None
    key = key_of_log(log, None if asked.plan.key is None else tuple(asked.plan.key), Until())
    changes = spark.read.format("delta").option("versionAsOf", log.version).load(log.url)
    schema = history_columns(log.schema, key)
    fold = partial(all_versions, key=key, schema=schema, known_rows=_all_are_known)
    made = fold_with_spark(changes, log, key, fold, from_arrow_schema(schema))
    writer = in_columns(made, schema).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").save(path)
    return TableMerged(asked.table, asked.plan.log, log.version, -1, "spark")


def _all_are_known(_: Collection[str]) -> pa.Table:
    raise AssertionError("deletions by row id have their keys already")


def _remember(plan: MergePlan, key: TableKey, last: DataFrame, log: ChangeLog) -> None:
    """Tombstones by the whole log, instead of those that there are."""
    tombstones = Tombstones(plan.lake, plan.tombstones, key)
    wanted = [name for name in tombstones.columns if name in log.schema.names]
    gone = last.where(GONE) if plan.metadata else last
    portions = gone.select(*(f"`{name}`" for name in wanted)).toArrow()
    if not key.by_row_id and ROW_ID in wanted:
        portions = portions.drop_columns([ROW_ID])
    tombstones.start_anew(portions)
    tombstones.remember(portions, *log.by_row_id_alone(key))
