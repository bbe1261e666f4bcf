"""One table of the rows of many.

In an upsert, all rows of a source that has changed take the place of those that it had there; the
rows of a source are a partition, so that this is one commit. When appending, a source adds the rows
that it did not have when it was last looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from headgate.gold.commit import TABLE, Commit, Committed, portions, without_table
from headgate.gold.declared import DeclaredQuery, DeclaredUnion, Landed
from headgate.gold.source_table import DerivedTable, SourceRows, SourceTables, alike, rows_then
from headgate.gold.spark_rows import Views, rows_of, union_of
from headgate.lake.commit import Mark
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile
from headgate.lake.write import commit_files

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
        columns = pa.unify_schemas([file.schema for file in files]) if files else pa.schema([])
        schema = pa.schema([*columns, pa.field(SOURCE, pa.string())])
        if derived.content is None and not files:
            return None
        replaced = [one.source for one in touched if one.was_rewritten]
        if anew or self.union.declared.mode == "append":
            replaced = []
        return commit_files(
            self.lake,
            self.union.name,
            derived.content,
            files,
            schema=schema if files or not anew else None,
            marks=[Mark(self.union.app_for(one.source), one.version) for one in touched],
            replace=anew,
            partition_by=[SOURCE],
            replace_partitions=replaced,
        )


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
