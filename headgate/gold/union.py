"""One table of the rows of many.

In an upsert, all rows of a source that has changed take the place of those that it had there; the
rows of a source are a partition, so that this is one commit. When appending, a source adds the rows
that it did not have when it was last looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, Schema, Transaction
from deltalake.transaction import create_table_with_add_actions

from headgate.gold.commit import TABLE, Commit, Committed, portions, widen, without_table
from headgate.gold.declared import DeclaredQuery, DeclaredUnion, Landed
from headgate.gold.source_table import DerivedTable, SourceRows, SourceTables, alike, rows_then
from headgate.gold.spark_rows import Views, rows_of, union_of
from headgate.lake.delta_rs import add_action, hooks_after
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "_source"
"""The table that a row came from, in every union."""

_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class UnionDeriver:
    """Computes one union: one Spark job and one commit, however many sources have changed."""

    spark: SparkSession
    lake: str
    union: DeclaredUnion
    queries: Sequence[DeclaredQuery]
    sources: SourceTables
    everything: Sequence[Landed]
    """All landed tables, for when all of it has to be made anew."""

    def derive(
        self, derived: DerivedTable, landed: Iterable[Landed], anew: bool
    ) -> Iterator[Committed]:
        """From sources that may have changed, or anew from all."""
        routes = dict(self.union.sources(self.queries, self.everything if anew else landed))

        def outdated(table: str) -> SourceRows | None:
            return self.sources.rows_since(table, derived, self.union.app_for(table), anew)

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            touched = [one for one in pool.map(outdated, routes) if one is not None]
        if not touched:
            return
        with Views(self.spark) as views:
            rows = self._rows(touched, routes, views, anew)
            rows, other = (rows, ()) if anew else self._in_types_of(derived, rows)
            if other and self.union.declared.mode == "upsert":
                yield from self.derive(derived, (), anew=True)
                return
            if other:
                raise TypeError(f"{', '.join(other)} cannot be appended: of another type by now")
            job = rows.groupBy(TABLE).applyInArrow(
                _write_each(self.lake, self.union.name, list(routes)), "file string"
            )
            files = [StagedFile.from_json(row.file) for row in job.collect()]
        version = self._commit(derived, touched, files, anew)
        yield Committed(self.union.name, sum(file.rows for file in files), version)

    def _rows(
        self, touched: Sequence[SourceRows], routes: Mapping[str, str], views: Views, anew: bool
    ) -> DataFrame:
        """All rows of the sources; when appending, those that they did not have before."""
        place = {source: at for at, source in enumerate(routes)}
        columns = self.union.select.columns
        told = routes if self.union.select.has_route else None

        def selected(sources: Sequence[SourceRows]) -> DataFrame:
            frames = [
                rows_of(self.spark, schema, members, place, told)
                for schema, members in alike(sources, columns, columns)
            ]
            view = views.add(union_of(frames))
            return self.spark.sql(self.union.select.sql(view, extra=TABLE))

        rows = selected(touched)
        if self.union.declared.mode == "append" and not anew:
            before = [then for one in touched if one.was_rewritten and (then := rows_then(one))]
            if before:
                rows = rows.exceptAll(selected(before))
        return rows

    def _in_types_of(
        self, derived: DerivedTable, rows: DataFrame
    ) -> tuple[DataFrame, tuple[str, ...]]:
        """Rows in the types that the table has, and columns of which it cannot hold the values."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        if derived.content is None:
            return rows, ()
        types = from_arrow_schema(derived.content.schema)
        there = self.spark.createDataFrame([], types).drop(SOURCE)
        both = there.unionByName(rows.drop(TABLE), allowMissingColumns=True).schema
        other = [one.name for one in there.schema if both[one.name].dataType != one.dataType]
        columns = [
            F.col(f"`{name}`").cast(both[name].dataType).alias(name)
            for name in rows.columns
            if name != TABLE
        ]
        return rows.select(TABLE, *columns), tuple(other)

    def _commit(
        self,
        derived: DerivedTable,
        touched: Sequence[SourceRows],
        files: Sequence[StagedFile],
        anew: bool,
    ) -> int | None:
        marks = [Transaction(self.union.app_for(one.source), one.version) for one in touched]
        properties = CommitProperties(app_transactions=marks)
        actions = [add_action(file) for file in files]
        columns = pa.unify_schemas([file.schema for file in files]) if files else pa.schema([])
        schema = pa.schema([*columns, pa.field(SOURCE, pa.string())])
        if derived.opened is None:
            if not files:
                return None
            create_table_with_add_actions(
                str(Path(self.lake, self.union.name)),
                Schema.from_arrow(schema),
                actions,
                partition_by=[SOURCE],
                commit_properties=properties,
            )
            return 0
        table = derived.opened
        replaced = [one.source for one in touched if one.was_rewritten]
        if self.union.declared.mode == "append":
            replaced = []
        if not anew:
            widen(table, schema)
        table.create_write_transaction(
            [*actions],
            "overwrite" if replaced or anew else "append",
            Schema.from_arrow(schema) if anew and files else table.schema(),
            partition_by=[SOURCE],
            partition_filters=None if anew or not replaced else [(SOURCE, "in", replaced)],
            commit_properties=properties,
            post_commithook_properties=hooks_after(table),
        )
        return int(table.version()) + 1


def _write_each(lake: str, table: str, sources: Sequence[str]) -> Commit:
    """Files for the rows of each source, which are grouped by its place."""

    def write(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        source = sources[key[0].as_py()]
        for rows in portions(without_table(batches)):
            name = f"part-{uuid4()}.parquet"
            file = write_parquet(lake, table, name, rows, partition={SOURCE: source})
            yield pa.RecordBatch.from_pydict({"file": [file.to_json()]})

    return write
