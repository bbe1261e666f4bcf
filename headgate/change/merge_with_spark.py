"""Merges a table that is too large for one task: the same folded changes, the same conditions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from headgate.change.as_of import Until, key_of_log, rows_as_of_with_spark
from headgate.change.change_log import ChangeLog
from headgate.change.merge_plan import ForSpark, TableMerged
from headgate.change.merge_table import GONE, mark_only, newer_than_row, same_key
from headgate.change.merged_columns import merged_columns
from headgate.change.table_key import TableKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARK = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


def merge_with_spark(spark: SparkSession, asked: ForSpark) -> TableMerged:
    """One Spark job for one table, which is why only large ones come here."""
    path = Path(asked.plan.lake, asked.table)
    app, version = _MARK
    spark.conf.set(app, asked.plan.app)
    spark.conf.set(version, asked.log_version)
    try:
        merged = (
            _all_anew(spark, asked, path) if asked.folded is None else _merge(spark, asked, path)
        )
    finally:
        spark.conf.unset(app)
        spark.conf.unset(version)
    table = DeltaTable(str(path))
    if table.transaction_version(asked.plan.app) != asked.log_version:
        mark_only(asked.plan, asked.log_version, table)
    return merged


def _merge(spark: SparkSession, asked: ForSpark, path: Path) -> TableMerged:
    assert asked.folded is not None
    table = DeltaTable(str(path))
    key = TableKey.kept_in(pa.schema(table.schema()))
    source = spark.read.parquet(asked.folded)
    source.createOrReplaceTempView("headgate_changes")
    names = [name for name in source.columns if name != GONE]
    sets = ", ".join(f"`{name}` = change.`{name}`" for name in names)
    columns, values = (
        ", ".join(f"{prefix}`{name}`" for name in names) for prefix in ("", "change.")
    )
    newer = newer_than_row(asked.plan.metadata)
    place = str(path).replace("`", "``")
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
    Path(asked.folded).unlink()
    table.update_incremental()
    return TableMerged(
        asked.table,
        asked.plan.log,
        asked.log_version,
        table.version(),
        "spark",
        changes=int(did["num_affected_rows"]) if did else 0,
        inserted=int(did["num_inserted_rows"]) if did else 0,
        updated=int(did["num_updated_rows"]) if did else 0,
        deleted=int(did["num_deleted_rows"]) if did else 0,
    )


def _all_anew(spark: SparkSession, asked: ForSpark, path: Path) -> TableMerged:
    """All rows by the whole log, in one commit."""
    log = ChangeLog.open(asked.plan.lake, asked.plan.log)
    assert log is not None
    declared = None if asked.plan.key is None else tuple(asked.plan.key)
    key = key_of_log(log, declared, Until())
    schema = merged_columns(log.schema, key, asked.plan.metadata)
    from pyspark.sql import functions as F

    rows = rows_as_of_with_spark(spark, log, key, Until()).select(
        *(
            F.col(f"`{field.name}`").alias(field.name, metadata=_text(field.metadata))
            for field in schema
        )
    )
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(str(path))
    table = DeltaTable(str(path))
    return TableMerged(
        asked.table, asked.plan.log, log.version, table.version(), "spark", append_only=not key
    )


def _text(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}
