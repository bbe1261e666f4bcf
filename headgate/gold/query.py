"""Updates the tables of one declared query, with one Spark job for all of them.

New rows of the sources are aggregated for all tables at once, and merged with the groups that the
tables already have. A commit replaces all rows of a table, appends to it, or changes some groups.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    source_marks,
    storable_columns,
    write_each,
)
from headgate.gold.declared import DeclaredQuery
from headgate.gold.merge_groups import GroupMerger
from headgate.gold.source_table import OutdatedTable, SourceRows, group_by_types
from headgate.gold.spark_rows import (
    Reader,
    Views,
    derived_rows,
    in_types,
    is_little,
    rows_of_sources,
    union_of,
)
from headgate.gold.states import KeptGroups, can_merge
from headgate.lake.commit import Committer
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
class _Share:
    """The new rows of some tables."""

    of: Sequence[OutdatedTable]
    """The tables of all shares."""
    indexes: Sequence[int]
    """Those of this one."""
    rows: DataFrame
    """With the indexes of their tables."""

    @property
    def is_one_of_many(self) -> bool:
        return len(self.indexes) < len(self.of)


_MAX_SHARES = 32
"""Each one is a branch of Spark's plan."""


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

    def _derive_alike(
        self, tables: Sequence[OutdatedTable], way: _Way, in_memory: bool = True
    ) -> Iterator[Committed]:
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
                yield from self._derive(self._shares(schema, mine, way), way, in_memory)
        elif groups:
            rows = [self._rows(schema, {0: sources}) for schema, sources in groups]
            yield from self._derive([_Share(tables, range(1), union_of(rows))], way, in_memory)

    def _shares(
        self, schema: pa.Schema, tables: Sequence[OutdatedTable], way: _Way
    ) -> list[_Share]:
        """Divide tables among tasks that each read, merge and write some of them.

        These exchange nothing with each other. One share has all tables if there is little to do,
        or if several tasks write each table.
        """
        tables = sorted(tables, key=lambda one: one.size)  # so that shares are of a similar size
        number = 1
        if not self._sees_many_tables:
            number = len(tables)
        elif way is _Way.IN_A_TASK:
            number = min(self._tasks(tables), _MAX_SHARES)
        reader = None
        if number > 1 and way is _Way.IN_A_TASK:
            reader = Reader.DRIVER if _are_little(tables) else Reader.ONE_TASK
        indexes = [range(first, len(tables), number) for first in range(number)]
        rows = [
            self._rows(schema, {at: tables[at].sources for at in some}, reader) for some in indexes
        ]
        return [_Share(tables, *one) for one in zip(indexes, rows, strict=True)]

    def _tasks(self, tables: Sequence[OutdatedTable]) -> int:
        """Return the number of tasks that there is enough for, if each table is in one."""
        if _are_little(tables):
            return 1
        return min(len(tables), self.spark.sparkContext.defaultParallelism)

    @property
    def _sees_many_tables(self) -> bool:
        """Whether one SELECT computes the rows of many tables."""
        select = self.query.select
        return isinstance(self.query.states, Incremental) or select.by_table("") is not None

    def _rows(
        self,
        schema: pa.Schema,
        sources: Mapping[int, Sequence[SourceRows]],
        reader: Reader | None = None,
    ) -> DataFrame:
        table_of = {one.source: at for at, some in sources.items() for one in some}
        every = [one for some in sources.values() for one in some]
        routes = self.routes if self.query.select.has_route else None
        return rows_of_sources(self.spark, schema, every, table_of, routes, reader)

    def _derive(self, shares: Sequence[_Share], way: _Way, in_memory: bool) -> Iterator[Committed]:
        tables, states = shares[0].of, self.query.states
        with Views(self.spark) as views:
            each = [self._selected(share, views) for share in shares]
            new = union_of(each)
            match = _states_match if isinstance(states, Incremental) else _rows_match
            mismatched = [table for table in tables if not match(table, new.schema)]
            if mismatched:
                # Columns of the sources have changed their types: rebuild those tables.
                yield from self.derive(
                    [self.read_all_rows(one) if one in mismatched else one for one in tables]
                )
                return
            kept = None
            if isinstance(states, Incremental):
                in_memory = in_memory and not any(_is_inexact(one.dataType) for one in new.schema)
                if in_memory and way is _Way.BY_GROUP:
                    merger = GroupMerger(self.spark, self.committer, states, self.kept)
                    yield from merger.merge(new, list(map(self._derivation, tables)), views)
                    return
                if in_memory and way is _Way.IN_A_TASK:
                    kept = self._kept_groups(states, tables, new.schema)
                by_spark = kept is None
                each = [
                    self._outputs(states, share, rows, way, by_spark, views)
                    for share, rows in zip(shares, each, strict=True)
                ]
            else:
                each = [
                    self._colocated(rows, one, way) for one, rows in zip(shares, each, strict=True)
                ]
            result = union_of(each)
            if way is _Way.IN_A_TASK:
                result = result.coalesce(self._tasks(tables))
            left = yield from self._commit(result, tables, kept, views)
        if left:
            yield from self._derive_alike(left, way, in_memory=False)

    def _has_indexed_keys(self, table: Snapshot) -> bool:
        """Whether groups of a table can be found by their keys."""
        states = self.query.states
        if not isinstance(states, Incremental) or not states.keys:
            return False
        types = {field.name: field.type for field in table.schema}
        keys = [types.get(one.name) for one in states.keys]
        return all(one is not None and not pa.types.is_nested(one) for one in keys)

    def _selected(self, share: _Share, views: Views) -> DataFrame:
        """Return the states, or else the rows, that the query selects from new rows."""
        from pyspark.sql import functions as F

        view = views.add(share.rows)
        states, select = self.query.states, self.query.select
        if isinstance(states, Incremental):
            return self.spark.sql(states.partial_sql(view))
        text = select.by_table(view)
        if text is not None:
            return self.spark.sql(text)
        (index,) = share.indexes
        alone = views.add(share.rows.drop(TABLE))
        return self.spark.sql(select.over(alone)).withColumn(TABLE, F.lit(index))

    def _colocated(self, rows: DataFrame, share: _Share, way: _Way) -> DataFrame:
        """Put all rows of a table into one task, which writes its files, unless they are many."""
        if way is _Way.IN_PARALLEL:
            return rows
        if share.is_one_of_many or _are_little(share.of):
            return rows.coalesce(1)
        return rows.repartition(self._tasks(share.of), TABLE)

    def _kept_groups(
        self, states: Incremental, tables: Sequence[OutdatedTable], new: StructType
    ) -> KeptGroups | None:
        """Return the groups of tables if tasks can merge new states with them in memory."""
        from pyspark.sql.pandas.types import to_arrow_schema

        existing = {at: one.kept for at, one in enumerate(tables) if one.kept is not None}
        if (
            can_merge(states, to_arrow_schema(new, timezone="UTC"))
            and all(tables[at].can_merge for at in existing)
            and all(map(self._has_indexed_keys, existing.values()))
        ):
            return KeptGroups(states, {at: one.files for at, one in existing.items()})
        return None

    def _outputs(
        self,
        states: Incremental,
        share: _Share,
        new: DataFrame,
        way: _Way,
        by_spark: bool,
        views: Views,
    ) -> DataFrame:
        """Return the rows of tables, from new states and, unless tasks merge them, kept ones."""
        from pyspark.sql.pandas.types import to_arrow_schema

        existing = [(kept, at) for at in share.indexes if (kept := share.of[at].kept) is not None]
        merged = self._colocated(new, share, way)
        if by_spark and existing:
            columns = to_arrow_schema(new.drop(TABLE).schema, timezone="UTC")
            reader = Reader.ONE_TASK if share.is_one_of_many else None
            both = new.unionByName(derived_rows(self.spark, columns, existing, reader))
            text = states.merge_sql(views.add(self._colocated(both, share, way)))
            merged = in_types(self.spark.sql(text), new.schema)
        return self.spark.sql(states.outputs_sql(views.add(merged)))

    def _commit(
        self,
        result: DataFrame,
        tables: Sequence[OutdatedTable],
        kept: KeptGroups | None,
        views: Views,
    ) -> Generator[Committed, None, list[OutdatedTable]]:
        """Commit the rows of tables; return the tables whose groups only Spark can merge."""
        lake = self.committer.lake
        states = self.query.states
        keys = [one.name for one in states.keys] if isinstance(states, Incremental) else []
        merge = None if kept is None else kept.merged_with
        write = write_each(lake, [table.name for table in tables], keys, merge=merge)
        by_table = result.sortWithinPartitions(TABLE) if len(tables) > 1 else result
        written = by_table.mapInArrow(write, WRITTEN_DDL).collect()
        left = [tables[index] for index, file, error in written if file is None and error is None]
        derivations = list(map(self._derivation, tables))
        committed = list(commit_all(self.committer, derivations, written))
        yield from committed
        done = {one.table for one in committed} | {one.name for one in left}
        # There are no rows for these tables; their marks are committed all the same.
        idle = [at for at, one in enumerate(tables) if one.name not in done]
        unchanged = [at for at in idle if kept is not None and at in kept.files]
        for at in unchanged:
            yield commit_files(self.committer, replace(derivations[at], appends=True), ())
        empty = [derivations[at] for at in idle if at not in unchanged]
        if empty:
            rows = storable_columns(self._empty_result(result, views))
            for one in empty:
                yield commit_files(self.committer, one, [stage_rows(lake, one.table, rows)])
        return left

    def _derivation(self, table: OutdatedTable) -> Derivation:
        marks = (
            mark
            for one in table.sources
            for mark in source_marks(self.query.app_for(one.source), one, not self.query.by_route)
        )
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


def _are_little(tables: Sequence[OutdatedTable]) -> bool:
    return is_little(sum(one.files for one in tables), sum(one.size for one in tables))


def _states_match(table: OutdatedTable, states: StructType) -> bool:
    """Whether the table has states of the same types, so that new groups can be merged."""
    if table.is_whole:
        return True
    existing = _types_of(table)
    return all(
        existing.get(one.name) == one.dataType.simpleString()
        for one in states
        if one.name != TABLE and not _is_void(one.dataType)
    )


def _rows_match(table: OutdatedTable, rows: StructType) -> bool:
    """Whether the table has columns of the same types, so that rows can be appended."""
    if table.is_whole:
        return True
    existing = _types_of(table)
    types = {one.name: one.dataType.simpleString() for one in rows}
    return all(existing.get(name, kind) == kind for name, kind in types.items())


def _types_of(table: OutdatedTable) -> dict[str, str]:
    """Return the types of the table's columns, without whether a part of them may be null."""
    from pyspark.sql.pandas.types import from_arrow_schema

    snapshot = table.derived.snapshot
    assert snapshot is not None
    types = from_arrow_schema(snapshot.schema)
    return {one.name: one.dataType.simpleString() for one in types}


def _is_inexact(kind: DataType) -> bool:
    """Whether equal values may differ as Python sees them, or the type is unknown."""
    return _is_void(kind) or " collate " in kind.simpleString()


def _is_void(kind: DataType) -> bool:
    """Whether the type, or a part of it, is unknown."""
    return "void" in kind.simpleString()
