"""Rows of many tables as one view of Spark's.

Tasks read the files themselves: to look into hundreds of small ones takes Spark's own reader many
times as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.gold.commit_derived import TABLE
from headgate.gold.source_table import SourceRows
from headgate.schema.conform import conform_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUTE = "route"
_PORTION = 1 << 16
"""Rows that go to Spark at once."""

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
    told = {one.source: _told(table_of[one.source], routes[one.source], schema) for one in sources}
    files = [(path, told[one.source]) for one in sources if one.is_plain for path in one.files]
    frames = [
        _rows_by_delta(spark, schema, one, told[one.source]) for one in sources if not one.is_plain
    ]
    if files or not frames:
        frames.append(_rows_of_files(spark, schema, files, _told("", "", schema)))
    return union_of(frames)


def kept_rows(
    spark: SparkSession, schema: pa.Schema, files: Iterable[tuple[str, str]]
) -> DataFrame:
    """Rows of derived tables, each with the table that it is of; files come with their tables."""
    told = [(path, {TABLE: table}) for path, table in files]
    return _rows_of_files(spark, schema, told, {TABLE: ""})


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """Spark finds the types that hold the values of all."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _told(table: str, route: str, schema: pa.Schema) -> dict[str, str]:
    """What all rows of a file have in common. A table may have a column `route` of its own."""
    has_route = _ROUTE in (name.lower() for name in schema.names)
    return {TABLE: table} if has_route else {TABLE: table, _ROUTE: route}


def _rows_of_files(
    spark: SparkSession,
    schema: pa.Schema,
    files: Sequence[tuple[str, Mapping[str, str]]],
    told: Mapping[str, str],
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    typed = [field for field in schema if not pa.types.is_null(field.type)]
    columns = pa.schema([*typed, *((name, pa.string()) for name in told)])
    named = spark.createDataFrame(
        [(path, *common.values()) for path, common in files],
        ", ".join(f"`{name}` string" for name in ("path", *told)),
    )
    rows = named.mapInArrow(partial(_read_files, columns), from_arrow_schema(columns))
    untyped = {field.name: F.lit(None) for field in schema if pa.types.is_null(field.type)}
    return rows.withColumns(untyped) if untyped else rows


def _read_files(columns: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of files, in columns of which some are the same for a whole file."""
    held: list[pa.RecordBatch] = []
    for batch in files:
        for told in batch.to_pylist():
            file = pq.ParquetFile(told.pop("path"))
            own = pa.schema([field for field in columns if field.name not in told])
            there = [name for name in file.schema_arrow.names if name in own.names]
            # How many rows there are is told by any column, if none of these is there.
            read = there or file.schema_arrow.names[:1]
            for rows in file.iter_batches(columns=read, batch_size=_PORTION):
                common = [pa.repeat(pa.scalar(text), len(rows)) for text in told.values()]
                arrays = [*conform_rows(rows, own).columns, *common]
                held.append(pa.RecordBatch.from_arrays(arrays, schema=columns))
                if sum(map(len, held)) >= _PORTION:
                    yield pa.concat_batches(held)
                    held = []
    if held:
        yield pa.concat_batches(held)


def _rows_by_delta(
    spark: SparkSession, schema: pa.Schema, one: SourceRows, told: Mapping[str, str]
) -> DataFrame:
    """Of a table with deleted rows in its files, or with columns by other names."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    path = str(Path(one.lake, one.source))
    rows = spark.read.format("delta").option("versionAsOf", one.version).load(path)
    columns = [
        F.col(f"`{field.name}`")
        if field.name in rows.columns
        else F.lit(None).cast(from_arrow_type(field.type)).alias(field.name)
        for field in schema
    ]
    return rows.select(*columns, *(F.lit(text).alias(name) for name, text in told.items()))


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
