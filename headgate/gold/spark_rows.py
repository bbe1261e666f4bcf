"""Rows of many tables as one Spark view.

Tasks read the files directly: Spark's own reader spends most of the time on opening hundreds of
small files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial, reduce
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from headgate.gold.commit import TABLE
from headgate.gold.source_table import SourceRows
from headgate.lake.parquet import ParquetRows
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import table_url
from headgate.schema.conform import conform_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ROUTE = "route"
_BATCH_ROWS = 1 << 16
"""Rows per Arrow batch sent to Spark."""

_LARGE_FILE = 4 << 20
_FEW_FILES = 4
_MAX_FILES_HERE = 128
_MAX_BYTES_HERE = 4 << 20

Constants = dict[str, dict[str, Any]]
"""Constant column values of all rows of a source, by source."""
_CONSTANT_FIELDS: tuple[pa.Field, ...] = (
    pa.field(TABLE, pa.int32()),
    pa.field(_ROUTE, pa.string()),
)

_views = count()


class Reader(Enum):
    """What reads the files of many tables."""

    DRIVER = auto()
    ONE_TASK = auto()
    TASKS = auto()

    @classmethod
    def of(cls, files: int, size: int) -> Self:
        """Return what reads files the fastest."""
        return cls.DRIVER if is_little(files, size) else cls.TASKS


def rows_of_sources(
    spark: SparkSession,
    schema: pa.Schema,
    sources: Sequence[SourceRows],
    table_of: Mapping[str, int],
    routes: Mapping[str, str] | None = None,
    reader: Reader | None = None,
) -> DataFrame:
    """Return the rows of all sources, with the index of their table and, if given, their route.

    Columns that a source lacks, and columns without a type, are null.
    """
    if routes is None or _ROUTE in (name.lower() for name in schema.names):
        # A column `route` of the table itself takes precedence.
        common: Constants = {one.source: {TABLE: table_of[one.source]} for one in sources}
        constant_fields: Sequence[pa.Field] = _CONSTANT_FIELDS[:1]
    else:
        common = {
            one.source: {TABLE: table_of[one.source], _ROUTE: routes[one.source]} for one in sources
        }
        constant_fields = _CONSTANT_FIELDS
    directly = [one for one in sources if one.is_plain and not _has_large_files(one)]
    files = [(path, common[one.source]) for one in directly for path in one.files]
    frames = [
        _rows_by_delta(
            spark, schema, table_url(one.lake, one.source), one.version, common[one.source]
        )
        for one in sources
        if one not in directly
    ]
    if files or not frames:
        chosen = reader or Reader.of(len(files), sum(one.bytes for one in directly))
        frames.append(_rows_of_files(spark, schema, files, constant_fields, chosen))
    rows = union_of(frames)
    return rows.coalesce(1) if reader is Reader.ONE_TASK else rows


def is_little(files: int, size: int) -> bool:
    """Whether there is so little to read that a task would only cost time."""
    return files <= _MAX_FILES_HERE and size <= _MAX_BYTES_HERE


def _has_large_files(one: SourceRows) -> bool:
    """Whether Spark reads a whole table faster than tasks in Python do."""
    return one.is_whole and one.bytes > _LARGE_FILE * max(len(one.files), _FEW_FILES)


def derived_rows(
    spark: SparkSession,
    schema: pa.Schema,
    tables: Sequence[tuple[Snapshot, int]],
    reader: Reader | None = None,
) -> DataFrame:
    """Return the rows of derived tables, given with their indexes."""
    plain = [
        (path, {TABLE: at}) for one, at in tables if one.files_are_complete for path in one.files
    ]
    frames = [
        _rows_by_delta(spark, schema, one.url, one.version, {TABLE: at})
        for one, at in tables
        if not one.files_are_complete
    ]
    chosen = reader or Reader.of(len(plain), sum(one.bytes for one, _ in tables))
    return union_of([_rows_of_files(spark, schema, plain, _CONSTANT_FIELDS[:1], chosen), *frames])


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """Return a union by name; Spark widens the types."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def in_types(rows: DataFrame, types: StructType) -> DataFrame:
    """Cast merged states: a sum of decimal sums has a higher precision than a sum of values."""
    from pyspark.sql import functions as F

    return rows.select(
        *(F.col(f"`{one.name}`").cast(one.dataType).alias(one.name) for one in types)
    )


def _rows_of_files(
    spark: SparkSession,
    schema: pa.Schema,
    files: Sequence[tuple[str, Mapping[str, Any]]],
    constant_fields: Sequence[pa.Field],
    reader: Reader,
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    typed = [field for field in schema if not pa.types.is_null(field.type)]
    columns = pa.schema([*typed, *constant_fields])
    kinds = from_arrow_schema(columns)
    if reader is Reader.DRIVER:
        batches = _read_files(columns, [{"path": path, **common} for path, common in files])
        together = pa.Table.from_batches(batches, columns).combine_chunks()
        # pyspark cannot convert a nested column without rows.
        rows = spark.createDataFrame(together if len(together) else [], kinds).coalesce(1)
    else:
        named = spark.createDataFrame(
            [(path, *common.values()) for path, common in files],
            from_arrow_schema(pa.schema([("path", pa.string()), *constant_fields])),
        )
        if reader is Reader.ONE_TASK:
            named = named.coalesce(1)
        rows = named.mapInArrow(partial(_read_in_task, columns), kinds)
    untyped = {field.name: F.lit(None) for field in schema if pa.types.is_null(field.type)}
    return rows.withColumns(untyped) if untyped else rows


def _read_in_task(columns: pa.Schema, named: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in named:
        yield from _read_files(columns, batch.to_pylist())


def _read_files(columns: pa.Schema, files: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Read files, given by path and with the values of constant columns, which are added."""
    held: list[pa.RecordBatch] = []
    for constants in files:
        file = ParquetRows(constants.pop("path"))
        own = pa.schema([field for field in columns if field.name not in constants])
        present = [name for name in file.names if name in own.names]
        # Without any of the columns, read another one for the number of rows.
        read = present or file.names[:1]
        for rows in file.batches(read, _BATCH_ROWS):
            common = [
                pa.repeat(pa.scalar(constants[name], columns.field(name).type), len(rows))
                for name in constants
            ]
            arrays = [*conform_rows(rows, own).columns, *common]
            held.append(pa.RecordBatch.from_arrays(arrays, schema=columns))
            if sum(map(len, held)) >= _BATCH_ROWS:
                yield pa.concat_batches(held)
                held = []
    if held:
        yield pa.concat_batches(held)


def _rows_by_delta(
    spark: SparkSession, schema: pa.Schema, url: str, version: int, common: Mapping[str, Any]
) -> DataFrame:
    """Read a table with deletion vectors or column mapping through Spark's Delta reader."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    rows = spark.read.format("delta").option("versionAsOf", version).load(url)
    columns = [
        F.col(f"`{field.name}`")
        if field.name in rows.columns
        else F.lit(None).cast(from_arrow_type(field.type)).alias(field.name)
        for field in schema
    ]
    return rows.select(*columns, *(F.lit(value).alias(name) for name, value in common.items()))


class Views:
    """Temporary views with unique names, dropped on exit."""

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
