"""Rows of many tables as one view of Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.gold.commit_gold import TABLE
from headgate.gold.source_table import SourceRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_views = count()


def rows_of(
    spark: SparkSession,
    schema: pa.Schema,
    sources: Sequence[SourceRows],
    routes: Mapping[str, str],
    by_source: bool = False,
) -> DataFrame:
    """Rows of all sources, each with its route and the table that it is for, or is of."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    paths = [path for one in sources for path in one.files]
    types = from_arrow_schema(schema)
    rows = spark.read.schema(types).parquet(*paths).withColumn("_source", folder())
    known = [
        (one.source, one.source if by_source else one.table, routes.get(one.source))
        for one in sources
    ]
    told = spark.createDataFrame(known, f"_source string, {TABLE} string, route string")
    if "route" in (name.lower() for name in schema.names):
        told = told.drop("route")
    return rows.join(F.broadcast(told), "_source").drop("_source")


def folder() -> Any:
    """The table that a row's file is of."""
    from pyspark.sql import functions as F

    return F.element_at(F.split(F.col("_metadata.file_path"), "/"), -2)


class Views:
    """Temporary views with names that nobody else has."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._names: list[str] = []

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            self._spark.catalog.dropTempView(name)

    def add(self, frame: DataFrame) -> str:
        name = f"_headgate_{next(_views)}"
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name
