"""Brings the tables of one declaration up to their sources: one Spark job for all of them.

What the sources got since is aggregated for all tables at once and merged with the groups that the
tables have. So what is committed is always all of a table, or rows that are added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.gold.commit import COMMITTED, TABLE, Committed, Derivation, commit_each, commit_rows
from headgate.gold.declared import DeclaredQuery
from headgate.gold.source_table import OutdatedTable, SourceRows, alike
from headgate.gold.spark_rows import Views, kept_rows, rows_of, union_of
from headgate.lake.commit import Mark
from headgate.sql.incremental import Incremental

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class QueryDeriver:
    """Computes one declaration."""

    spark: SparkSession
    lake: str
    query: DeclaredQuery
    routes: Mapping[str, str]
    """Of the landed tables."""
    read_anew: Callable[[OutdatedTable], OutdatedTable]
    """A table with all rows of all its sources."""

    def derive(self, tables: Sequence[OutdatedTable]) -> Iterator[Committed]:
        by_source = {one.source: table for table in tables for one in table.sources}
        select = self.query.select
        groups = alike(
            [one for table in tables for one in table.sources],
            select.columns,
            select.surely_columns,
        )
        if self.query.by_route:
            for schema, sources in groups:
                mine = [by_source[one.source] for one in sources]
                yield from self._derive(self._rows(schema, sources, mine), mine)
        elif groups:
            frames = [self._rows(schema, sources, tables) for schema, sources in groups]
            yield from self._derive(union_of(frames), tables)

    def _rows(
        self, schema: pa.Schema, sources: Sequence[SourceRows], tables: Sequence[OutdatedTable]
    ) -> DataFrame:
        place = {one.source: at for at, table in enumerate(tables) for one in table.sources}
        routes = self.routes if self.query.select.has_route else None
        return rows_of(self.spark, schema, sources, place, routes)

    def _together(self, rows: DataFrame, tables: Sequence[OutdatedTable]) -> DataFrame:
        """All rows of a table in one task, where they stay until they are committed."""
        tasks = min(len(tables), self.spark.sparkContext.defaultParallelism)
        return rows.repartition(tasks, TABLE)

    def _derive(self, rows: DataFrame, tables: Sequence[OutdatedTable]) -> Iterator[Committed]:
        with Views(self.spark) as views:
            view = views.add(rows)
            states = self.query.states
            if isinstance(states, Incremental):
                new = self.spark.sql(states.partial_sql(view))
                misfits = [table for table in tables if not _keeps_states(table, new.schema)]
            else:
                new = self._selected(view, tables, views)
                misfits = [table for table in tables if not _takes_rows(table, new.schema)]
            if misfits:
                # Columns of the sources have other types by now.
                anew = [self.read_anew(one) if one in misfits else one for one in tables]
                yield from self.derive(anew)
                return
            if isinstance(states, Incremental):
                new = self._with_kept(states, new, tables, views)
            else:
                new = self._together(new, tables)
            yield from self._commit(new, tables, views)

    def _selected(self, view: str, tables: Sequence[OutdatedTable], views: Views) -> DataFrame:
        text = self.query.select.by_table(view)
        if text is not None:
            return self.spark.sql(text)
        from pyspark.sql import functions as F

        # It has to see each table by itself: many branches, but one job.
        return union_of(
            self.spark.sql(
                self.query.select.over(
                    views.add(self.spark.table(view).where(F.col(TABLE) == place).drop(TABLE))
                )
            ).withColumn(TABLE, F.lit(place))
            for place in range(len(tables))
        )

    def _with_kept(
        self, states: Incremental, new: DataFrame, tables: Sequence[OutdatedTable], views: Views
    ) -> DataFrame:
        """Groups of new rows with those that the tables have, of tables that are not made anew."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import to_arrow_schema

        files = [
            (file, place)
            for place, table in enumerate(tables)
            if not table.is_whole and (content := table.derived.content) is not None
            for file in content.files
        ]
        merged = self._together(new, tables)
        if files:
            columns = to_arrow_schema(new.drop(TABLE).schema, timezone="UTC")
            both = new.unionByName(kept_rows(self.spark, columns, files))
            text = states.merge_sql(views.add(self._together(both, tables)))
            # A sum of sums of decimals has more digits than a sum of values.
            merged = self.spark.sql(text).select(
                *(F.col(f"`{one.name}`").cast(one.dataType).alias(one.name) for one in new.schema)
            )
        return self.spark.sql(states.outputs_sql(views.add(merged)))

    def _commit(
        self, result: DataFrame, tables: Sequence[OutdatedTable], views: Views
    ) -> Iterator[Committed]:
        derivations = [(table.name, self._derivation(table)) for table in tables]
        job = result.groupBy(TABLE).applyInArrow(commit_each(self.lake, derivations), COMMITTED)
        told = [Committed(**row.asDict()) for row in job.collect()]
        yield from told
        done = {one.table for one in told}
        missing = [one for one in derivations if one[0] not in done]
        if missing:
            # Nothing passed the query: that is remembered too.
            rows = self._of_nothing(result, views)
            for table, derivation in missing:
                yield commit_rows(self.lake, table, [rows], derivation)

    def _derivation(self, table: OutdatedTable) -> Derivation:
        marks = [Mark(self.query.app_for(one.source), one.version) for one in table.sources]
        return Derivation(tuple(marks), appends=self.query.how == "append" and not table.is_whole)

    def _of_nothing(self, result: DataFrame, views: Views) -> pa.Table:
        """What the query gives for no rows: one row, if it has aggregates and no groups."""
        from pyspark.sql.pandas.types import to_arrow_schema

        columns = to_arrow_schema(result.drop(TABLE).schema, timezone="UTC")
        if not self.query.select.is_one_row:
            return columns.empty_table()
        nothing = [(column, pa.null()) for column in self.query.select.columns]
        view = views.add(rows_of(self.spark, pa.schema(nothing), (), {}))
        states = self.query.states
        text = (
            states.full_sql(view, extra_keys=())
            if isinstance(states, Incremental)
            else self.query.select.over(view)
        )
        return pa.Table.from_batches(self.spark.sql(text).toArrow().to_batches()).cast(columns)


def _keeps_states(table: OutdatedTable, states: StructType) -> bool:
    """Whether groups of the table can be merged with new ones."""
    if table.is_whole:
        return True
    kept = _types_of(table)
    return all(
        kept.get(one.name) == one.dataType
        for one in states
        if one.name != TABLE and not _is_void(one.dataType)
    )


def _takes_rows(table: OutdatedTable, rows: StructType) -> bool:
    """Whether rows can be added to the table."""
    if table.is_whole:
        return True
    there = _types_of(table)
    return all(there.get(one.name, one.dataType) == one.dataType for one in rows)


def _types_of(table: OutdatedTable) -> dict[str, DataType]:
    from pyspark.sql.pandas.types import from_arrow_schema

    content = table.derived.content
    assert content is not None
    return {one.name: one.dataType for one in from_arrow_schema(content.schema)}


def _is_void(kind: DataType) -> bool:
    """Whether nobody knows the type, or that of a part of it."""
    return "void" in kind.simpleString()
