"""Updates a declared union.

Each source is a partition. An upsert replaces the partitions of the sources that have changed, in
one commit. An append adds the rows that a source has got since the version in its mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from headgate.gold.commit import TABLE, Commit, Committed, drop_table_column, split_into_files
from headgate.gold.declared import DeclaredQuery, DeclaredUnion, Landed
from headgate.gold.source_table import (
    DerivedTable,
    SourceRows,
    SourceTables,
    group_by_types,
    rows_at_mark,
)
from headgate.gold.spark_rows import Views, rows_of_sources, union_of
from headgate.lake.commit import Mark
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile
from headgate.lake.write import commit_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "_source"
"""Column with the table that a row came from; unions are partitioned by it."""

_MAX_WORKERS = 16


@dataclass(frozen=True)
class UnionDeriver:
    """Updates one union with one Spark job and one commit, for any number of sources."""

    spark: SparkSession
    lake: str
    union: DeclaredUnion
    queries: Sequence[DeclaredQuery]
    sources: SourceTables
    all_landed: Sequence[Landed]
    """All landed tables, to rebuild the union from."""

    def derive(
        self, derived: DerivedTable, landed: Iterable[Landed], rebuild: bool
    ) -> Iterator[Committed]:
        """Update the union from sources that may have changed, or rebuild it from all sources."""
        routes = dict(self.union.sources(self.queries, self.all_landed if rebuild else landed))

        def outdated(table: str) -> SourceRows | None:
            return self.sources.rows_since(table, derived, self.union.app_for(table), rebuild)

        with ThreadPoolExecutor(_MAX_WORKERS) as pool:
            touched = [one for one in pool.map(outdated, routes) if one is not None]
        if not touched:
            return
        with Views(self.spark) as views:
            rows = self._rows(touched, routes, views, rebuild)
            rows, changed = (rows, ()) if rebuild else self._cast_to_table(derived, rows)
            if changed and self.union.declared.mode == "upsert":
                yield from self.derive(derived, (), rebuild=True)
                return
            if changed:
                raise TypeError(f"cannot append {', '.join(changed)}: the type has changed")
            job = rows.groupBy(TABLE).applyInArrow(
                _write_each(self.lake, self.union.name, list(routes)), "file string"
            )
            files = [StagedFile.from_json(row.file) for row in job.collect()]
        version = self._commit(derived, touched, files, rebuild)
        yield Committed(self.union.name, sum(file.rows for file in files), version)

    def _rows(
        self, touched: Sequence[SourceRows], routes: Mapping[str, str], views: Views, rebuild: bool
    ) -> DataFrame:
        """Return all rows of the sources; when appending, those that are new."""
        index_of = {source: at for at, source in enumerate(routes)}
        columns = self.union.select.columns
        known_routes = routes if self.union.select.has_route else None

        def selected(sources: Sequence[SourceRows]) -> DataFrame:
            frames = [
                rows_of_sources(self.spark, schema, members, index_of, known_routes)
                for schema, members in group_by_types(sources, columns, columns)
            ]
            view = views.add(union_of(frames))
            return self.spark.sql(self.union.select.sql(view, extra=TABLE))

        rows = selected(touched)
        if self.union.declared.mode == "append" and not rebuild:
            before = [old for one in touched if one.was_rewritten and (old := rows_at_mark(one))]
            if before:
                rows = rows.exceptAll(selected(before))
        return rows

    def _cast_to_table(
        self, derived: DerivedTable, rows: DataFrame
    ) -> tuple[DataFrame, tuple[str, ...]]:
        """Cast rows to the table's types; also return columns that would need a wider type."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        if derived.snapshot is None:
            return rows, ()
        types = from_arrow_schema(derived.snapshot.schema)
        existing = self.spark.createDataFrame([], types).drop(SOURCE)
        both = existing.unionByName(rows.drop(TABLE), allowMissingColumns=True).schema
        changed = [one.name for one in existing.schema if both[one.name].dataType != one.dataType]
        columns = [
            F.col(f"`{name}`").cast(both[name].dataType).alias(name)
            for name in rows.columns
            if name != TABLE
        ]
        return rows.select(TABLE, *columns), tuple(changed)

    def _commit(
        self,
        derived: DerivedTable,
        touched: Sequence[SourceRows],
        files: Sequence[StagedFile],
        rebuild: bool,
    ) -> int | None:
        columns = pa.unify_schemas([file.schema for file in files]) if files else pa.schema([])
        schema = pa.schema([*columns, pa.field(SOURCE, pa.string())])
        if derived.snapshot is None and not files:
            return None
        replaced = [one.source for one in touched if one.was_rewritten]
        if rebuild or self.union.declared.mode == "append":
            replaced = []
        return commit_files(
            self.lake,
            self.union.name,
            derived.snapshot,
            files,
            schema=schema if files or not rebuild else None,
            marks=[Mark(self.union.app_for(one.source), one.version) for one in touched],
            replace=rebuild,
            partition_by=[SOURCE],
            replace_partitions=replaced,
        )


def _write_each(lake: str, table: str, sources: Sequence[str]) -> Commit:
    """Return a function that writes the rows of each source, grouped by its index."""

    def write(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        source = sources[key[0].as_py()]
        for rows in split_into_files(drop_table_column(batches)):
            name = f"part-{uuid4()}.parquet"
            file = write_parquet(lake, table, name, rows, partition={SOURCE: source})
            yield pa.RecordBatch.from_pydict({"file": [file.to_json()]})

    return write
