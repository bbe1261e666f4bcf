"""Rows of many tables as one view of Spark's.

Tasks read the files themselves: to look into hundreds of small ones takes Spark's own reader many
times as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.gold.commit import TABLE
from headgate.gold.source_table import SourceRows
from headgate.lake.parquet import open_parquet
from headgate.lake.snapshot import table_url
from headgate.schema.conform import conform_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUTE = "route"
_PORTION = 1 << 16
"""Rows that go to Spark at once."""

Common = dict[str, dict[str, Any]]
"""By source: what all of its rows have in common."""
_TOLD: tuple[pa.Field, ...] = (pa.field(TABLE, pa.int32()), pa.field(_ROUTE, pa.string()))

_views = count()


def rows_of(
    spark: SparkSession,
    schema: pa.Schema,
    sources: Sequence[SourceRows],
    table_of: Mapping[str, int],
    routes: Mapping[str, str] | None = None,
) -> DataFrame:
    """Rows of all sources, each with the place of the table that it is for, and with its route
    if that is asked for.

    Columns that a source lacks are null; so are those that have no type.
    """
    if routes is None or _ROUTE in (name.lower() for name in schema.names):
        # A table may have a column `route` of its own.
        common: Common = {one.source: {TABLE: table_of[one.source]} for one in sources}
        told: Sequence[pa.Field] = _TOLD[:1]
    else:
        common = {
            one.source: {TABLE: table_of[one.source], _ROUTE: routes[one.source]} for one in sources
        }
        told = _TOLD
    files = [(path, common[one.source]) for one in sources if one.is_plain for path in one.files]
    frames = [
        _rows_by_delta(spark, schema, one, common[one.source])
        for one in sources
        if not one.is_plain
    ]
    if files or not frames:
        frames.append(_rows_of_files(spark, schema, files, told))
    return union_of(frames)


def kept_rows(
    spark: SparkSession, schema: pa.Schema, files: Iterable[tuple[str, int]]
) -> DataFrame:
    """Rows of derived tables; their files come with the places of the tables."""
    common = [(path, {TABLE: table}) for path, table in files]
    return _rows_of_files(spark, schema, common, _TOLD[:1])


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """Spark finds the types that hold the values of all."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _rows_of_files(
    spark: SparkSession,
    schema: pa.Schema,
    files: Sequence[tuple[str, Mapping[str, Any]]],
    told: Sequence[pa.Field],
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    typed = [field for field in schema if not pa.types.is_null(field.type)]
    columns = pa.schema([*typed, *told])
    named = spark.createDataFrame(
        [(path, *common.values()) for path, common in files],
        from_arrow_schema(pa.schema([("path", pa.string()), *told])),
    )
    rows = named.mapInArrow(partial(_read_files, columns), from_arrow_schema(columns))
    untyped = {field.name: F.lit(None) for field in schema if pa.types.is_null(field.type)}
    return rows.withColumns(untyped) if untyped else rows


def _read_files(columns: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of files, in columns of which some are the same for a whole file."""
    held: list[pa.RecordBatch] = []
    for batch in files:
        for told in batch.to_pylist():
            file = open_parquet(told.pop("path"))
            own = pa.schema([field for field in columns if field.name not in told])
            there = [name for name in file.schema_arrow.names if name in own.names]
            # How many rows there are is told by any column, if none of these is there.
            read = there or file.schema_arrow.names[:1]
            for rows in file.iter_batches(columns=read, batch_size=_PORTION):
                common = [
                    pa.repeat(pa.scalar(told[name], columns.field(name).type), len(rows))
                    for name in told
                ]
                arrays = [*conform_rows(rows, own).columns, *common]
                held.append(pa.RecordBatch.from_arrays(arrays, schema=columns))
                if sum(map(len, held)) >= _PORTION:
                    yield pa.concat_batches(held)
                    held = []
    if held:
        yield pa.concat_batches(held)


def _rows_by_delta(
    spark: SparkSession, schema: pa.Schema, one: SourceRows, common: Mapping[str, Any]
) -> DataFrame:
    """Of a table with deleted rows in its files, or with columns by other names."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    url = table_url(one.lake, one.source)
    rows = spark.read.format("delta").option("versionAsOf", one.version).load(url)
    columns = [
        F.col(f"`{field.name}`")
        if field.name in rows.columns
        else F.lit(None).cast(from_arrow_type(field.type)).alias(field.name)
        for field in schema
    ]
    return rows.select(*columns, *(F.lit(value).alias(name) for name, value in common.items()))


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
