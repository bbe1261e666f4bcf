"""Whether the merged and history tables of a pipeline are what their change logs say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.change.as_of import Until, key_of_log
from headgate.change.change_log import ChangeLog
from headgate.change.compare_rows import RowDifferences
from headgate.change.history_table import history_columns
from headgate.change.merge_plan import Engine
from headgate.change.merge_table import LARGEST_FOLD
from headgate.change.verify_table import (
    columns_of_merged,
    key_of,
    telling_apart,
    verify_history,
    verify_merged,
)
from headgate.change.verify_with_spark import verify_with_spark
from headgate.land.commit_with_delta_rs import size_of
from headgate.land.ledger import Ledger
from headgate.pipeline import ChangePipeline
from headgate.route.change_tables import ChangeTableKind
from headgate.run.known_sources import SourceTables, find_source, known_sources
from headgate.run.pipeline_session import pipeline_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableVerified:
    """How one table compares with its log, at the version that it has everything of."""

    table: str
    kind: ChangeTableKind
    source: str
    log: str
    log_version: int | None = None
    """None if nothing was merged into it yet."""
    behind: int = 0
    """Versions of the log that are not merged yet."""
    key: tuple[str, ...] = ()
    other_key: tuple[str, ...] | None = None
    """The key of the source by now, if the table was merged by another."""
    absent_columns: tuple[str, ...] = ()
    differences: RowDifferences | None = None
    engine: Engine = "delta-rs"
    trouble: str | None = None
    """Why it could not be verified."""
    left_out: str | None = None
    """Why it was not verified."""

    @property
    def total(self) -> int:
        """All differences: rows, columns, and a key that is another."""
        rows = self.differences.total if self.differences else 0
        return rows + len(self.absent_columns) + (self.other_key is not None)

    @property
    def is_well(self) -> bool:
        return not self.total and self.trouble is None


def verify(
    pipeline: ChangePipeline,
    tables: Sequence[str] = (),
    *,
    spark: Callable[[], SparkSession] | None = None,
    spark_above: int = LARGEST_FOLD,
) -> Iterator[TableVerified]:
    """The tables of some source tables, or of all, one after the other."""
    sources = known_sources(pipeline)
    if tables:
        wanted = [find_source(sources, name) for name in tables]
        sources = [one for one in sources if one in wanted]
    session = cache(spark or (lambda: pipeline_session(pipeline)))
    return _verified(pipeline, sources, _Means(session, spark_above))


@dataclass(frozen=True)
class _Means:
    spark: Callable[[], SparkSession]
    spark_above: int


def _verified(
    pipeline: ChangePipeline, sources: Sequence[SourceTables], means: _Means
) -> Iterator[TableVerified]:
    for source in sources:
        kinds = {ChangeTableKind.MERGED: source.merged, ChangeTableKind.HISTORY: source.history}
        for kind, table in kinds.items():
            if table is None:
                continue
            one = TableVerified(table, kind, source.name, source.log)
            try:
                yield _verify(pipeline, source, one, means)
            except (DeltaError, OSError, pa.ArrowException) as error:
                yield replace(one, trouble=str(error).splitlines()[0])


def _verify(
    pipeline: ChangePipeline, source: SourceTables, one: TableVerified, means: _Means
) -> TableVerified:
    newest = ChangeLog.open(pipeline.lake, source.log)
    if newest is None:
        return replace(one, trouble=f"its change log {source.log} is no longer there")
    try:
        table = DeltaTable(str(Path(pipeline.lake, one.table)))
    except TableNotFoundError:
        return replace(one, behind=newest.version + 1)
    app = f"{Ledger(pipeline.lake, pipeline.ledger, pipeline.name).app}:merge"
    marked = table.transaction_version(app)
    if marked is None or marked < 0:
        return replace(one, trouble="it has no mark that says how much of its log it has")
    try:
        log = ChangeLog.open(pipeline.lake, source.log, marked)
    except DeltaError:
        log = None
    if log is None:
        return replace(
            one,
            log_version=marked,
            trouble=f"version {marked} of {source.log}, which it has everything of, is gone",
        )
    key = key_of(table)
    one = replace(one, log_version=marked, behind=newest.version - marked, key=key.columns)
    if not {*telling_apart(key)} <= {*pa.schema(table.schema()).names}:
        return replace(one, trouble="it has no columns that tell its rows apart")
    return _compared(source, one, log, table, means)


def _compared(
    source: SourceTables, one: TableVerified, log: ChangeLog, table: DeltaTable, means: _Means
) -> TableVerified:
    is_large = max(log.bytes, size_of(table)) > means.spark_above
    if one.kind is ChangeTableKind.HISTORY:
        columns = history_columns(log.schema, key_of(table))
        one = replace(one, absent_columns=_absent(columns, table))
        if is_large:
            return replace(one, left_out="its log is too large for the memory of one process")
        return replace(one, differences=verify_history(log, table))
    key = key_of_log(log, source.key, Until())
    one = replace(
        one,
        other_key=None if key.columns == one.key else key.columns,
        absent_columns=_absent(columns_of_merged(log, table), table),
    )
    if is_large:
        found = verify_with_spark(means.spark(), log, table, log.path.parent / one.table)
        return replace(one, differences=found, engine="spark")
    return replace(one, differences=verify_merged(log, table))


def _absent(columns: pa.Schema, table: DeltaTable) -> tuple[str, ...]:
    there = pa.schema(table.schema()).names
    return tuple(name for name in columns.names if name not in there)
