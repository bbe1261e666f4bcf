"""Updates the tables of one declared query, with one Spark job for all of them.

New rows of the sources are aggregated for all tables at once, and merged with the groups that the
tables already have. A commit replaces all rows of a table, appends to it, or changes some groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.gold.commit import (
    TABLE,
    WRITTEN_DDL,
    Committed,
    Derivation,
    commit_all,
    commit_files,
    drop_untyped_columns,
    write_each,
)
from headgate.gold.declared import DeclaredQuery
from headgate.gold.merge_groups import GroupMerger
from headgate.gold.source_table import OutdatedTable, SourceRows, group_by_types
from headgate.gold.spark_rows import (
    Views,
    derived_rows,
    in_types,
    is_little,
    rows_of_sources,
    union_of,
)
from headgate.lake.commit import Committer, Mark
from headgate.lake.kept_rows import KeptRows
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.sql.incremental import Incremental

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


class _Way(Enum):
    """How a table is updated."""

    BY_GROUP = auto()
    """The driver merges the groups with new rows, which are few, into its files."""
    IN_A_TASK = auto()
    """One task writes all of its rows; that of many tables."""
    IN_PARALLEL = auto()
    """Several tasks write its rows."""


@dataclass(frozen=True)
class QueryDeriver:
    """Updates the tables of one declared query."""

    spark: SparkSession
    committer: Committer
    query: DeclaredQuery
    routes: Mapping[str, str]
    """Routes by landed table."""
    read_all_rows: Callable[[OutdatedTable], OutdatedTable]
    """Returns a table with all rows of all its sources."""
    kept: KeptRows
    """Rows of derived tables that are kept from batch to batch."""

    def derive(self, tables: Sequence[OutdatedTable]) -> Iterator[Committed]:
        """Update tables, each in the way that costs the least."""
        by_way: dict[_Way, list[OutdatedTable]] = {}
        are_few = is_little(len(tables), sum(one.bytes for one in tables))
        for one in tables:
            by_way.setdefault(self._way(one, are_few), []).append(one)
        for way, some in by_way.items():
            yield from self._derive_alike(some, way)

    def _way(self, table: OutdatedTable, are_few: bool) -> _Way:
        snapshot = table.derived.snapshot
        if snapshot is not None and table.can_merge and self._has_indexed_keys(snapshot):
            is_cheap = are_few and self.committer.engine(snapshot) == "delta-rs"
            if is_cheap or table.has_few_new_rows:
                return _Way.BY_GROUP
        return _Way.IN_PARALLEL if table.is_large else _Way.IN_A_TASK

    def _derive_alike(self, tables: Sequence[OutdatedTable], way: _Way) -> Iterator[Committed]:
        """Update tables, grouped by the column types of their sources."""
        by_source = {one.source: table for table in tables for one in table.sources}
        select = self.query.select
        groups = group_by_types(
            [one for table in tables for one in table.sources],
            select.columns,
            select.surely_columns,
        )
        if self.query.by_route:
            for schema, sources in groups:
                mine = [by_source[one.source] for one in sources]
                yield from self._derive(self._rows(schema, sources, mine), mine, way)
        elif groups:
            frames = [self._rows(schema, sources, tables) for schema, sources in groups]
            yield from self._derive(union_of(frames), tables, way)

    def _rows(
        self, schema: pa.Schema, sources: Sequence[SourceRows], tables: Sequence[OutdatedTable]
    ) -> DataFrame:
        table_of = {one.source: at for at, table in enumerate(tables) for one in table.sources}
        routes = self.routes if self.query.select.has_route else None
        return rows_of_sources(self.spark, schema, sources, table_of, routes)

    def _colocate(self, rows: DataFrame, tables: Sequence[OutdatedTable], way: _Way) -> DataFrame:
        """Put all rows of a table into one task, which writes its files, unless they are many."""
        if way is _Way.IN_PARALLEL:
            return rows
        if is_little(sum(one.files for one in tables), sum(one.size for one in tables)):
            return rows.coalesce(1)
        tasks = min(len(tables), self.spark.sparkContext.defaultParallelism)
        return rows.repartition(tasks, TABLE)

    def _derive(
        self, rows: DataFrame, tables: Sequence[OutdatedTable], way: _Way
    ) -> Iterator[Committed]:
        with Views(self.spark) as views:
            view = views.add(rows)
            states = self.query.states
            if isinstance(states, Incremental):
                new = self.spark.sql(states.partial_sql(view))
                mismatched = [table for table in tables if not _states_match(table, new.schema)]
            else:
                new = self._selected(view, tables, views)
                mismatched = [table for table in tables if not _rows_match(table, new.schema)]
            if mismatched:
                # Columns of the sources have changed their types: rebuild those tables.
                yield from self.derive(
                    [self.read_all_rows(one) if one in mismatched else one for one in tables]
                )
                return
            are_exact = not any(_is_inexact(one.dataType) for one in new.schema)
            if isinstance(states, Incremental) and are_exact and way is _Way.BY_GROUP:
                merger = GroupMerger(self.spark, self.committer, states, self.kept)
                yield from merger.merge(new, list(map(self._derivation, tables)), views)
                return
            if isinstance(states, Incremental):
                new = self._merge_with_existing(states, new, tables, views, way)
            else:
                new = self._colocate(new, tables, way)
            yield from self._commit(new, tables, views)

    def _has_indexed_keys(self, table: Snapshot) -> bool:
        """Whether groups of a table can be found by their keys."""
        states = self.query.states
        if not isinstance(states, Incremental) or not states.keys:
            return False
        types = {field.name: field.type for field in table.schema}
        keys = [types.get(one.name) for one in states.keys]
        return all(one is not None and not pa.types.is_nested(one) for one in keys)

    def _selected(self, view: str, tables: Sequence[OutdatedTable], views: Views) -> DataFrame:
        text = self.query.select.by_table(view)
        if text is not None:
            return self.spark.sql(text)
        from pyspark.sql import functions as F

        # The query has to see each table separately: many branches, but one job.
        return union_of(
            self.spark.sql(
                self.query.select.over(
                    views.add(self.spark.table(view).where(F.col(TABLE) == index).drop(TABLE))
                )
            ).withColumn(TABLE, F.lit(index))
            for index in range(len(tables))
        )

    def _merge_with_existing(
        self,
        states: Incremental,
        new: DataFrame,
        tables: Sequence[OutdatedTable],
        views: Views,
        way: _Way,
    ) -> DataFrame:
        """Merge the groups of new rows with those of the tables, except for rebuilt tables."""
        from pyspark.sql.pandas.types import to_arrow_schema

        existing = [
            (snapshot, index)
            for index, table in enumerate(tables)
            if not table.is_whole and (snapshot := table.derived.snapshot) is not None
        ]
        merged = self._colocate(new, tables, way)
        if existing:
            columns = to_arrow_schema(new.drop(TABLE).schema, timezone="UTC")
            both = new.unionByName(derived_rows(self.spark, columns, existing))
            text = states.merge_sql(views.add(self._colocate(both, tables, way)))
            merged = in_types(self.spark.sql(text), new.schema)
        return self.spark.sql(states.outputs_sql(views.add(merged)))

    def _commit(
        self, result: DataFrame, tables: Sequence[OutdatedTable], views: Views
    ) -> Iterator[Committed]:
        lake = self.committer.lake
        states = self.query.states
        keys = [one.name for one in states.keys] if isinstance(states, Incremental) else []
        write = write_each(lake, [table.name for table in tables], keys)
        by_table = result.sortWithinPartitions(TABLE) if len(tables) > 1 else result
        written = by_table.mapInArrow(write, WRITTEN_DDL).collect()
        derivations = list(map(self._derivation, tables))
        committed = list(commit_all(self.committer, derivations, written))
        yield from committed
        done = {one.table for one in committed}
        # The query returned no rows for these tables; their marks are committed all the same.
        without_rows = [one for one in derivations if one.table not in done]
        if without_rows:
            rows = drop_untyped_columns(self._empty_result(result, views))
            for one in without_rows:
                yield commit_files(self.committer, one, [stage_rows(lake, one.table, rows)])

    def _derivation(self, table: OutdatedTable) -> Derivation:
        marks = [Mark(self.query.app_for(one.source), one.version) for one in table.sources]
        return Derivation(
            table.name,
            table.derived.snapshot,
            tuple(marks),
            appends=self.query.update_mode == "append" and not table.is_whole,
        )

    def _empty_result(self, result: DataFrame, views: Views) -> pa.Table:
        """Return the result for no rows: one row if the query has aggregates without groups."""
        from pyspark.sql.pandas.types import to_arrow_schema

        columns = to_arrow_schema(result.drop(TABLE).schema, timezone="UTC")
        if not self.query.select.is_one_row:
            return columns.empty_table()
        untyped = [(column, pa.null()) for column in self.query.select.columns]
        view = views.add(rows_of_sources(self.spark, pa.schema(untyped), (), {}))
        states = self.query.states
        text = (
            states.full_sql(view, extra_keys=())
            if isinstance(states, Incremental)
            else self.query.select.over(view)
        )
        return pa.Table.from_batches(self.spark.sql(text).toArrow().to_batches()).cast(columns)


def _states_match(table: OutdatedTable, states: StructType) -> bool:
    """Whether the table has states of the same types, so that new groups can be merged."""
    if table.is_whole:
        return True
    existing = _types_of(table)
    return all(
        existing.get(one.name) == one.dataType
        for one in states
        if one.name != TABLE and not _is_void(one.dataType)
    )


def _rows_match(table: OutdatedTable, rows: StructType) -> bool:
    """Whether the table has columns of the same types, so that rows can be appended."""
    if table.is_whole:
        return True
    existing = _types_of(table)
    return all(existing.get(one.name, one.dataType) == one.dataType for one in rows)


def _types_of(table: OutdatedTable) -> dict[str, DataType]:
    from pyspark.sql.pandas.types import from_arrow_schema

    snapshot = table.derived.snapshot
    assert snapshot is not None
    return {one.name: one.dataType for one in from_arrow_schema(snapshot.schema)}


def _is_inexact(kind: DataType) -> bool:
    """Whether equal values may differ as Python sees them, or the type is unknown."""
    return _is_void(kind) or " collate " in kind.simpleString()


def _is_void(kind: DataType) -> bool:
    """Whether the type, or a part of it, is unknown."""
    return "void" in kind.simpleString()
