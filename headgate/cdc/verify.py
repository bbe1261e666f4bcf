"""Verify the merged and history tables of a pipeline against their change logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.cdc.as_of import Cutoff, key_of_log, rows_as_of, rows_as_of_with_spark
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.compare import MAX_EXAMPLES, RowDifferences, compare_rows
from headgate.cdc.history import all_versions, history_columns
from headgate.cdc.key import ORDER, TableKey, merged_columns
from headgate.cdc.merge_table import MAX_FOLD_BYTES
from headgate.cdc.source_tables import SourceTableNames, find_source, known_sources
from headgate.config import PipelineConfig
from headgate.engine.session import pipeline_session
from headgate.errors import LandingError
from headgate.lake.commit import Engine
from headgate.lake.names import ChangeTableKind
from headgate.lake.snapshot import Snapshot
from headgate.lake.streams import app_id
from headgate.lake.tables import TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def verify_merged(log: ChangeLog, table: Snapshot) -> RowDifferences:
    """Compare a merged table with its log, which must be at the merged version."""
    key = key_of(table)
    columns = comparable(table, expected_columns(log, table))
    return _compare_rows(rows_as_of(log, key, Cutoff()), table, columns, identifying_columns(key))


def verify_history(log: ChangeLog, table: Snapshot) -> RowDifferences:
    """Compare a history table with its log: all versions and their validity."""
    key = key_of(table)
    schema = history_columns(log.schema, key)
    wanted = all_versions(log.rows(), key, schema, log.rows_by_id(key))
    return _compare_rows(wanted, table, comparable(table, schema), (*key.columns, ORDER))


def key_of(table: Snapshot) -> TableKey:
    """Return the key that a table was merged by."""
    return TableKey.from_schema(table.schema)


def identifying_columns(key: TableKey) -> tuple[str, ...]:
    """Return the columns that identify a row; without a key, each change is a row."""
    return key.columns or (ORDER,)


def expected_columns(log: ChangeLog, table: Snapshot) -> pa.Schema:
    """Return the columns a merged table should have, with metadata if it has any."""
    has_order = ORDER in table.schema.names
    return merged_columns(log.schema, key_of(table), metadata=has_order)


def comparable(table: Snapshot, columns: pa.Schema) -> list[str]:
    """Return the columns that both have; a table may have columns that the log lacks."""
    existing = table.schema.names
    return [name for name in columns.names if name in existing]


def _compare_rows(
    wanted: pa.Table, table: Snapshot, columns: list[str], key: Sequence[str]
) -> RowDifferences:
    found = table.read(columns)
    return compare_rows(wanted.select(columns), found, key)


_KINDS = ("missing rows", "rows too many", "different rows")


def verify_with_spark(spark: SparkSession, log: ChangeLog, table: Snapshot) -> RowDifferences:
    """Do the same as `verify_merged` in Spark; only example rows reach this process."""
    from pyspark.sql import functions as F

    key = key_of(table)
    names = comparable(table, expected_columns(log, table))
    columns = pa.schema([table.schema.field(name) for name in names])
    found = spark.read.format("delta").option("versionAsOf", table.version).load(table.url)
    types = {field.name: field.dataType for field in found.schema}
    wanted = rows_as_of_with_spark(spark, log, key, Cutoff()).select(
        *(F.col(f"`{name}`").cast(types[name]).alias(name) for name in names)
    )
    wanted, found = _comparable(wanted, columns), _comparable(found, columns)
    by = list(identifying_columns(key))
    missing = wanted.exceptAll(found).persist()
    too_many = found.exceptAll(wanted).persist()
    try:
        counts = _counts(missing, too_many, by).persist()
        totals = counts.agg(*(F.sum(f"`{kind}`") for kind in _KINDS)).head()
        examples = _examples(counts, missing, too_many, by)
        counts.unpersist()
    finally:
        missing.unpersist()
        too_many.unpersist()
    assert totals is not None
    amounts = [int(amount or 0) for amount in totals]
    return replace(
        examples,
        rows=table.count(),
        missing=amounts[0],
        too_many=amounts[1],
        different=amounts[2],
    )


def _comparable(rows: DataFrame, columns: pa.Schema) -> DataFrame:
    """Convert lists, structs and maps to JSON, because Spark does not compare maps."""
    from pyspark.sql import functions as F

    def column(field: pa.Field) -> Column:
        value = F.col(f"`{field.name}`")
        if pa.types.is_nested(field.type):
            value = F.to_json(value, {"ignoreNullFields": "false"})
        return value.alias(field.name)

    return rows.select(*map(column, columns))


def _counts(missing: DataFrame, too_many: DataFrame, by: list[str]) -> DataFrame:
    """Count wrong rows by key; rows on both sides are different, not missing or extra."""
    from pyspark.sql import functions as F

    keys = [F.col(f"`{name}`") for name in by]
    one, zero = F.lit(1), F.lit(0)
    sides = missing.select(*keys, one.alias("is wanted"), zero.alias("is found")).unionAll(
        too_many.select(*keys, zero.alias("is wanted"), one.alias("is found"))
    )
    grouped = sides.groupBy(*keys).agg(
        F.sum("`is wanted`").alias("all wanted"), F.sum("`is found`").alias("all found")
    )
    wanted, found = F.col("`all wanted`"), F.col("`all found`")
    both = F.least(wanted, found)
    first, second, third = _KINDS
    return grouped.select(
        *keys, (wanted - both).alias(first), (found - both).alias(second), both.alias(third)
    )


def _examples(
    counts: DataFrame, missing: DataFrame, too_many: DataFrame, by: list[str]
) -> RowDifferences:
    from pyspark.sql import functions as F

    keys = [F.col(f"`{name}`") for name in by]
    few = [
        counts.filter(F.col(f"`{kind}`") > 0).orderBy(*keys).limit(MAX_EXAMPLES) for kind in _KINDS
    ]
    chosen = few[0].unionAll(few[1]).unionAll(few[2])
    # Rename the keys, so that the join condition is unambiguous.
    renamed = chosen.select(*(key.alias(f"key {at}") for at, key in enumerate(keys))).distinct()
    same = [key.eqNullSafe(F.col(f"`key {at}`")) for at, key in enumerate(keys)]
    wanted, found = (
        rows.join(F.broadcast(renamed), same, "left_semi").toArrow() for rows in (missing, too_many)
    )
    return compare_rows(wanted, found, by)


@dataclass(frozen=True)
class TableVerified:
    """Comparison of one table with its log at the merged version."""

    table: str
    kind: ChangeTableKind
    source: str
    log: str
    log_version: int | None = None
    """None if nothing has been merged into it yet."""
    behind: int = 0
    """Number of versions of the log that are not merged yet."""
    key: tuple[str, ...] = ()
    other_key: tuple[str, ...] | None = None
    """Current key of the source, if the table was merged by another."""
    absent_columns: tuple[str, ...] = ()
    differences: RowDifferences | None = None
    engine: Engine = "delta-rs"
    trouble: str | None = None
    """Why it could not be verified."""
    left_out: str | None = None
    """Why it was not verified."""

    @property
    def total(self) -> int:
        """Number of differences: in rows, columns and the key."""
        rows = self.differences.total if self.differences else 0
        return rows + len(self.absent_columns) + (self.other_key is not None)

    @property
    def is_ok(self) -> bool:
        return not self.total and self.trouble is None


def verify(
    pipeline: PipelineConfig,
    tables: Sequence[str] = (),
    *,
    spark: Callable[[], SparkSession] | None = None,
    spark_above: int = MAX_FOLD_BYTES,
) -> Iterator[TableVerified]:
    """Verify the tables of some source tables, or of all."""
    sources = known_sources(pipeline)
    if tables:
        wanted = [find_source(sources, name) for name in tables]
        sources = [source for source in sources if source in wanted]
    session = cache(spark or (lambda: pipeline_session(pipeline)))
    return _verified(pipeline, sources, _SparkOptions(session, spark_above))


@dataclass(frozen=True)
class _SparkOptions:
    spark: Callable[[], SparkSession]
    spark_above: int


def _verified(
    pipeline: PipelineConfig, sources: Sequence[SourceTableNames], options: _SparkOptions
) -> Iterator[TableVerified]:
    for source in sources:
        kinds = {ChangeTableKind.MERGED: source.merged, ChangeTableKind.HISTORY: source.history}
        for kind, table in kinds.items():
            if table is None:
                continue
            result = TableVerified(table, kind, source.name, source.log)
            try:
                yield _verify(pipeline, source, result, options)
            except (TableError, LandingError, OSError, pa.ArrowException) as error:
                yield replace(result, trouble=str(error).splitlines()[0])


def _verify(
    pipeline: PipelineConfig,
    source: SourceTableNames,
    result: TableVerified,
    options: _SparkOptions,
) -> TableVerified:
    newest = ChangeLog.open(pipeline.lake, source.log)
    if newest is None:
        return replace(result, trouble=f"its change log {source.log} no longer exists")
    table = Snapshot.open(pipeline.lake, result.table)
    if table is None:
        return replace(result, behind=newest.version + 1)
    app = f"{app_id(pipeline.name)}:merge@{newest.table_id}"
    marked = table.mark(app)
    if marked is None or marked < 0:
        return replace(result, trouble="no mark records how much of its log is merged")
    try:
        log = ChangeLog.open(pipeline.lake, source.log, marked)
    except TableError:
        log = None
    if log is None:
        return replace(
            result,
            log_version=marked,
            trouble=f"version {marked} of {source.log}, up to which it is merged, no longer exists",
        )
    key = key_of(table)
    result = replace(result, log_version=marked, behind=_behind(newest, marked), key=key.columns)
    if not {*identifying_columns(key)} <= {*table.schema.names}:
        return replace(result, trouble="it lacks the columns that identify its rows")
    return _compared(source, result, log, table, options)


def _compared(
    source: SourceTableNames,
    result: TableVerified,
    log: ChangeLog,
    table: Snapshot,
    options: _SparkOptions,
) -> TableVerified:
    is_large = max(log.bytes, table.bytes) > options.spark_above
    if result.kind is ChangeTableKind.HISTORY:
        columns = history_columns(log.schema, key_of(table))
        result = replace(result, absent_columns=_absent(columns, table))
        if is_large:
            return replace(result, left_out="its log is too large to verify in memory")
        return replace(result, differences=verify_history(log, table))
    key = key_of_log(log, source.key, Cutoff())
    result = replace(
        result,
        other_key=None if key.columns == result.key else key.columns,
        absent_columns=_absent(expected_columns(log, table), table),
    )
    if is_large:
        found = verify_with_spark(options.spark(), log, table)
        return replace(result, differences=found, engine="spark")
    return replace(result, differences=verify_merged(log, table))


def _absent(columns: pa.Schema, table: Snapshot) -> tuple[str, ...]:
    existing = table.schema.names
    return tuple(name for name in columns.names if name not in existing)


def _behind(log: Snapshot, marked: int) -> int:
    """Return the number of versions after one, if any of them has new changes."""
    new = log.since(marked)
    return 0 if new is not log and not new.sizes else log.version - marked
