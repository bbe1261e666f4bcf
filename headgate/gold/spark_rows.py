"""Rows of many tables as one view of Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.gold.commit_derived import TABLE
from headgate.gold.source_table import SourceRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_views = count()


def rows_of(
    spark: SparkSession,
    schema: pa.Schema,
    sources: Sequence[SourceRows],
    table_of: Mapping[str, str],
    routes: Mapping[str, str],
) -> DataFrame:
    """Rows of all sources, each with its route and the table that it is for.

    Columns that a source lacks are null; so are those that have no type.
    """
    from pyspark.sql import functions as F

    paths = [path for one in sources if one.is_plain for path in one.files]
    frames = [_rows_of_files(spark, schema, paths)] if paths else []
    frames += [_rows_by_delta(spark, schema, one) for one in sources if not one.is_plain]
    rows = union_of(frames) if frames else _no_rows(spark, schema)
    known = [(one.source, table_of[one.source], routes[one.source]) for one in sources]
    told = spark.createDataFrame(known, f"{_SOURCE} string, {TABLE} string, route string")
    if "route" in (name.lower() for name in schema.names):
        told = told.drop("route")
    return rows.join(F.broadcast(told), _SOURCE).drop(_SOURCE)


def kept_rows(spark: SparkSession, columns: pa.Schema, paths: Sequence[str]) -> DataFrame:
    """Rows of derived tables, each with the table that it is of."""
    return _rows_of_files(spark, columns, paths).withColumnRenamed(_SOURCE, TABLE)


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """Spark finds the types that hold the values of all."""
    return reduce(lambda one, other: one.unionByName(other), frames)


_SOURCE = "_headgate_source"


def _rows_of_files(spark: SparkSession, schema: pa.Schema, paths: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    typed = pa.schema([field for field in schema if not pa.types.is_null(field.type)])
    rows = spark.read.schema(from_arrow_schema(typed)).parquet(*paths)
    folder = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -2)
    return _with_missing(rows.withColumn(_SOURCE, folder), schema)


def _rows_by_delta(spark: SparkSession, schema: pa.Schema, one: SourceRows) -> DataFrame:
    """A table with deleted rows in its files, or with columns by other names."""
    from pyspark.sql import functions as F

    path = str(Path(one.lake, one.source))
    rows = spark.read.format("delta").option("versionAsOf", one.version).load(path)
    there = [f"`{name}`" for name in schema.names if name in rows.columns]
    return _with_missing(rows.select(*there, F.lit(one.source).alias(_SOURCE)), schema)


def _no_rows(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    return _with_missing(spark.createDataFrame([], f"{_SOURCE} string"), schema)


def _with_missing(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    missing = [field for field in schema if field.name not in rows.columns]
    nulls = {field.name: F.lit(None).cast(from_arrow_type(field.type)) for field in missing}
    return rows.withColumns(nulls) if nulls else rows


class Views:
    """Temporary views with names that nobody else has."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._names: list[str] = []

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_: Any) -> None:
        for name in self._names:
            self._spark.catalog.dropTempView(name)

    def add(self, frame: DataFrame) -> str:
        name = f"_headgate_{next(_views)}"
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name
