"""Commits by Spark's Delta writer, for tables that delta-rs cannot write.

Much slower than delta-rs: Spark reads the staged files and writes them again. It is for tables with
features that delta-rs lacks, and for users who want Delta's own writer for every commit.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.lake.commit import Commit, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SparkCommitter:
    """Commits with the reference implementation of Delta."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        self._spark = spark
        self._lake = Path(lake)

    def state(self, table: str, app: str) -> TableState | None:
        jvm = self._spark._jvm
        assert jvm is not None
        path = str(self._lake / table)
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, path)
        snapshot = log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
        if snapshot.version() < 0:
            return None
        schema = self.schema_at(table, int(snapshot.version()))
        marks = snapshot.transactions()
        marked = int(marks.apply(app)) if marks.contains(app) else None
        return TableState(int(snapshot.version()), schema, marked)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return _arrow_schema(self._spark, str(self._lake / table), version)

    def can_rewrite(self, table: str, up_to: int) -> bool:
        path = str(self._lake / table).replace("`", "``")
        detail = self._spark.sql(f"DESCRIBE DETAIL delta.`{path}`").head()
        return detail is not None and int(detail["sizeInBytes"]) <= up_to

    def commit(self, commit: Commit) -> int:
        path = str(self._lake / commit.table)
        rows = self._rows(commit)
        writer = (
            rows.write.format("delta")
            .mode("overwrite" if commit.rewrite else "append")
            .option("overwriteSchema" if commit.rewrite else "mergeSchema", "true")
            .option("txnAppId", commit.mark.app)
            .option("txnVersion", commit.mark.version)
        )
        if not (self._lake / commit.table / "_delta_log").exists():
            writer = writer.partitionBy(*commit.partition_by)
        writer.save(path)
        for file in commit.files:
            (self._lake / commit.table / file.path).unlink(missing_ok=True)
        state = self.state(commit.table, commit.mark.app)
        assert state is not None
        return state.version

    def _rows(self, commit: Commit) -> DataFrame:
        """Return the staged rows in all columns of the table, so that the commit adds new ones."""
        from pyspark.sql import functions as F

        wanted = _spark_schema(commit.schema)
        parts = [self._spark.createDataFrame([], wanted)]
        if commit.rewrite:
            before = self._spark.read.format("delta").load(str(self._lake / commit.table))
            parts.append(before)
        for file in commit.files:
            frame = self._spark.read.parquet(str(self._lake / commit.table / file.path))
            for column, value in (file.partition or {}).items():
                frame = frame.withColumn(column, F.lit(value))
            parts.append(frame)
        rows = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        # A union drops the metadata of columns.
        return rows.select(
            *(
                F.col(f"`{field.name}`").alias(field.name, metadata=field.metadata)
                for field in wanted
            )
        )


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    types = from_arrow_schema(schema)
    return StructType(
        [
            StructField(
                column.name, types[column.name].dataType, True, decoded_metadata(column.metadata)
            )
            for column in schema
        ]
    )


def _arrow_schema(spark: SparkSession, path: str, version: int) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    rows = spark.read.format("delta").option("versionAsOf", version).load(path)
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    return pa.schema(
        [column.with_metadata(rows.schema[column.name].metadata or None) for column in schema]
    )


def decoded_metadata(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    """Return the metadata of a column as strings, for Spark."""
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}
