"""Brings derived tables up to what they are derived from: one Spark job for each declaration.

A derived table remembers up to which version of its source it has everything. What the source got
since is aggregated for all tables at once, merged with the groups that there are, and committed
with the new version as a mark. A job that was cut short is done again for the tables that lack
their mark, and changes nothing in the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.gold.commit_gold import COMMITTED, TABLE, GoldCommit, commit_gold, commit_rows
from headgate.gold.declared_gold import DeclaredQuery, declared_gold
from headgate.gold.landed import Landed
from headgate.gold.source_table import SourceRows, alike, rows_since
from headgate.gold.spark_rows import Views, folder, rows_of
from headgate.gold.unite_gold import unite
from headgate.land.event import GoldDerived, GoldFailed, Listener
from headgate.land.ledger import Entry, Kind
from headgate.pipeline import AnyPipeline
from headgate.query.states import Incremental

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SIDE_BY_SIDE = 16


@dataclass
class GoldDeriver:
    """Derives all that a pipeline declares."""

    spark: SparkSession
    pipeline: AnyPipeline
    app: str
    listener: Listener
    committed: list[Entry] = field(default_factory=list)

    def derive(self, landed: Sequence[Landed], batch: int | None = None) -> list[Entry]:
        """From the tables that may have got something; nothing happens to those that have not."""
        self.committed = []
        began = perf_counter()
        queries, unions = declared_gold(self.pipeline, self.app)
        for query in queries:
            self._derive(query, landed)
        for union in unions:
            united = unite(self.spark, self.pipeline.lake, union, queries, landed)
            self._note([united] if united else [])
        if self.committed:
            tables = len({entry.table for entry in self.committed})
            rows = sum(entry.rows or 0 for entry in self.committed)
            self.listener(GoldDerived(batch, tables, rows, perf_counter() - began))
        return self.committed

    def _derive(self, query: DeclaredQuery, landed: Sequence[Landed]) -> None:
        names = {one.table: one for one in landed}
        sources = self._touched(query, landed)
        routes = {table: one.route for table, one in names.items()}
        if not query.by_route and any(one.is_whole for one in sources):
            # One table of all sources: one that is read anew makes all of it anew.
            every = [replace_anew(self.pipeline.lake, query, one.table) for one in landed]
            sources = [one for one in every if one is not None]
        groups = [
            (rows_of(self.spark, schema, members, routes), members)
            for schema, members in alike(sources, query.select.columns)
        ]
        if not query.by_route and groups:
            # Spark finds the types that hold the values of all.
            together = reduce(lambda one, other: one.unionByName(other), (one for one, _ in groups))
            groups = [(together, sources)]
        for rows, members in groups:
            self._note(_computed(self.spark, self.pipeline.lake, query, rows, members))

    def _touched(self, query: DeclaredQuery, landed: Sequence[Landed]) -> list[SourceRows]:
        lake = self.pipeline.lake

        def since(one: Landed) -> SourceRows | None:
            table = query.table_for(one.name)
            app = query.app if query.by_route else f"{query.app}:{one.table}"
            return rows_since(lake, one.table, table, app)

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            return [one for one in pool.map(since, landed) if one is not None]

    def _note(self, committed: Iterable[Mapping[str, Any]]) -> None:
        for one in committed:
            if one["error"] is not None:
                self.listener(GoldFailed(one["table"], one["error"]))
                continue
            self.committed.append(
                Entry(Kind.GOLD, table=one["table"], rows=one["rows"], table_version=one["version"])
            )


def replace_anew(lake: str, query: DeclaredQuery, source: str) -> SourceRows | None:
    """All rows of a source."""
    return rows_since(lake, source, query.name, app="")


def _computed(
    spark: SparkSession,
    lake: str,
    query: DeclaredQuery,
    frame: DataFrame,
    sources: Sequence[SourceRows],
) -> list[dict[str, Any]]:
    """One Spark job: rows of all sources in, commits to all of their derived tables out."""
    with Views(spark) as views:
        rows = views.add(frame)
        states = query.states
        if isinstance(states, Incremental):
            new = views.add(spark.sql(states.partial_sql(rows)))
            kept = _kept(spark, lake, sources, states)
            if kept is not None:
                new = views.add(spark.sql(states.merge_sql(new, views.add(kept))))
            result = spark.sql(states.outputs_sql(new))
        else:
            text = query.select.by_table(rows)
            result = spark.sql(text) if text else _one_by_one(spark, query, rows, sources, views)
        commits = _commits(query, sources)
        job = (
            result.repartition(TABLE)
            .sortWithinPartitions(TABLE)
            .mapInArrow(partial(commit_gold, lake, commits), COMMITTED)
        )
        told = [row.asDict() for row in job.collect()]
        missing = commits.keys() - {one["table"] for one in told}
        if missing:
            empty = _empty(result)
            for table in sorted(missing):
                # Nothing of it passed the query: that is remembered too.
                told += commit_rows(lake, table, empty, commits[table]).to_pylist()
    return told


def _commits(query: DeclaredQuery, sources: Sequence[SourceRows]) -> dict[str, GoldCommit]:
    if query.by_route:
        return {
            one.table: GoldCommit(
                {query.app: one.version}, "replace" if one.is_whole else query.how, query.key
            )
            for one in sources
        }
    marks = {f"{query.app}:{one.source}": one.version for one in sources}
    anew = any(one.is_whole for one in sources)
    return {query.name: GoldCommit(marks, "replace" if anew else query.how, query.key)}


def _kept(
    spark: SparkSession, lake: str, sources: Sequence[SourceRows], states: Incremental
) -> DataFrame | None:
    """Groups that derived tables have already, of those that are not made anew."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from headgate.change.change_log import ChangeLog

    tables = {one.table for one in sources if not one.is_whole}
    there = [log for name in sorted(tables) if (log := ChangeLog.open(lake, name)) is not None]
    if not there:
        return None
    names = [key.name for key in states.keys] + [state.name for state in states.states]
    frames = []
    by_types: dict[str, list[ChangeLog]] = {}
    for log in there:
        kept = pa.schema([log.schema.field(name) for name in names])
        by_types.setdefault(str(kept.remove_metadata()), []).append(log)
    for logs in by_types.values():
        types = from_arrow_schema(pa.schema([logs[0].schema.field(name) for name in names]))
        paths = [str(log.path / name) for log in logs for name in log.files]
        if paths:
            frames.append(spark.read.schema(types).parquet(*paths).withColumn(TABLE, folder()))
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else None


def _one_by_one(
    spark: SparkSession,
    query: DeclaredQuery,
    rows: str,
    sources: Sequence[SourceRows],
    views: Views,
) -> DataFrame:
    """A query that has to see each table by itself: many branches, but one job."""
    from pyspark.sql import functions as F

    result: DataFrame | None = None
    for table in sorted({one.table for one in sources}):
        mine = spark.table(rows).where(F.col(TABLE) == table).drop(TABLE)
        one = spark.sql(query.select.over(views.add(mine))).withColumn(TABLE, F.lit(table))
        result = one if result is None else result.unionByName(one)
    assert result is not None
    return result


def _empty(frame: DataFrame) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = frame.drop(TABLE).schema
    return to_arrow_schema(columns, timezone="UTC").empty_table()
