"""Updates a declared union.

Each source is a partition. An upsert replaces the partitions of the sources that have changed, in
one commit. An append adds the rows that a source has got since the version in its mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.gold.commit import (
    TABLE,
    WRITTEN_DDL,
    Committed,
    marks_of,
    source_marks,
    write_each,
)
from headgate.gold.declared import DeclaredQuery, DeclaredUnion, Landed
from headgate.gold.source_table import (
    DerivedTable,
    SourceRows,
    SourceTables,
    group_by_types,
    rows_at_mark,
)
from headgate.gold.spark_rows import Views, rows_of_sources, union_of
from headgate.lake.commit import Commit, Committer
from headgate.lake.staged import StagedFile
from headgate.lake.storage import tables_at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "_source"
"""Column with the table that a row came from; unions are partitioned by it."""


@dataclass(frozen=True)
class UnionDeriver:
    """Updates one union with one Spark job and one commit, for any number of sources."""

    spark: SparkSession
    committer: Committer
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

        with ThreadPoolExecutor(tables_at_once(self.committer.lake)) as pool:
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
            files = list(self._write(rows, list(routes)))
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

    def _write(self, rows: DataFrame, sources: Sequence[str]) -> Iterator[StagedFile]:
        """Write the rows of each source to files of its partition."""
        tables = [self.union.name] * len(sources)
        write = write_each(
            self.committer.lake, tables, partition=lambda index: {SOURCE: sources[index]}
        )
        by_table = rows.repartition(TABLE).sortWithinPartitions(TABLE)
        for _, file, error in by_table.mapInArrow(write, WRITTEN_DDL).collect():
            if error is not None:
                raise RuntimeError(error)
            yield StagedFile.from_json(file)

    def _commit(
        self,
        derived: DerivedTable,
        touched: Sequence[SourceRows],
        files: Sequence[StagedFile],
        rebuild: bool,
    ) -> int | None:
        before = derived.snapshot
        if before is None and not files:
            return None
        columns = pa.unify_schemas([file.schema for file in files]) if files else pa.schema([])
        schema = pa.schema([*columns, pa.field(SOURCE, pa.string())])
        if before is not None and not files:
            schema = before.schema
        replaced = [one.source for one in touched if one.was_rewritten]
        if rebuild or self.union.declared.mode == "append":
            replaced = []
        marks = tuple(
            mark
            for one in touched
            for mark in source_marks(self.union.app_for(one.source), one, is_one_of_many=True)
        )
        adds = not (rebuild or replaced)
        return self.committer.commit(
            Commit(
                self.union.name,
                schema,
                tuple(files),
                marks,
                "replace" if rebuild else "append",
                (SOURCE,),
                tuple(replaced),
                based_on=before.version if before and not adds else None,
                required_marks=marks_of(before, marks) if adds else {},
            )
        )
