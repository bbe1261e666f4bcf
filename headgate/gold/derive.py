"""Brings all that a pipeline derives up to what it is derived from.

A derived table has a mark: up to which version of which source it has everything. Whatever was cut
short is done again for the tables that lack their mark, and changes nothing in the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import perf_counter
from typing import TYPE_CHECKING

from headgate.config import Pipeline
from headgate.engine.events import GoldDerived, GoldFailed, Listener
from headgate.gold.commit import Committed
from headgate.gold.declared import DeclaredQuery, DeclaredUnion, Landed, declared_gold
from headgate.gold.query import QueryDeriver
from headgate.gold.source_table import DerivedTable, OutdatedTable, SourceRows, SourceTables
from headgate.gold.union import UnionDeriver
from headgate.lake.ledger_entries import GoldEntry
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableCache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIDE_BY_SIDE = 16


@dataclass
class GoldDeriver:
    """Derives what a pipeline declares."""

    spark: SparkSession
    pipeline: Pipeline
    app: str
    listener: Listener
    known: dict[str, Landed] = field(default_factory=dict)
    """All landed tables, by name."""

    def __post_init__(self) -> None:
        self._queries, unions = declared_gold(self.pipeline, self.app)
        # Unions last: they are of what the others give.
        self._declared: list[DeclaredQuery | DeclaredUnion] = [*self._queries, *unions]
        self._tables = TableCache(self.pipeline.lake)
        self._sources = SourceTables(self.pipeline.lake, self._tables)

    def derive(self, landed: Sequence[Landed]) -> list[GoldEntry]:
        """From tables that may have got something; nothing happens to those that have not."""
        self.known |= {one.table: one for one in landed}
        return self._told(self._derive(landed))

    def refresh(self, tables: Sequence[str]) -> list[GoldEntry]:
        """Make derived tables anew, from all rows that there are; each is replaced at once."""
        return self._told(self._derive(list(self.known.values()), frozenset(tables)))

    def tables(self, patterns: Iterable[str] = ("*",)) -> list[str]:
        """The derived tables that the pipeline makes of what has landed, by pattern."""
        names = {
            one.table_for(landed.name) if isinstance(one, DeclaredQuery) else one.name
            for landed in self.known.values()
            for one in self._declared
        }
        return sorted(
            name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    def _derive(
        self, landed: Sequence[Landed], anew: frozenset[str] | None = None
    ) -> Iterator[Committed]:
        self._sources = SourceTables(self.pipeline.lake, self._tables)
        for declared in self._declared:
            try:
                if isinstance(declared, DeclaredQuery):
                    yield from self._query(declared, landed, anew)
                else:
                    yield from self._union(declared, landed, anew)
            except Exception as error:  # what one declaration lacks is not the others' trouble
                yield Committed(declared.name, 0, None, _first_line(error))

    def _query(
        self, query: DeclaredQuery, landed: Sequence[Landed], anew: frozenset[str] | None
    ) -> Iterator[Committed]:
        if query.by_route:
            tables = self._by_route(query, landed, anew)
        else:
            tables = self._of_all(query, landed, anew)
        routes = {table: one.route for table, one in self.known.items()}
        deriver = QueryDeriver(
            self.spark, self.pipeline.lake, query, routes, lambda one: self._anew(query, one)
        )
        if tables:
            yield from deriver.derive(tables)

    def _by_route(
        self, query: DeclaredQuery, landed: Sequence[Landed], anew: frozenset[str] | None
    ) -> list[OutdatedTable]:
        """Each source has a derived table of its own."""

        def outdated(one: Landed) -> OutdatedTable | None:
            name = query.table_for(one.name)
            if anew is not None and name not in anew:
                return None
            derived = self._derived(name)
            rows = self._sources.rows_since(one.table, derived, query.app, anew is not None)
            if rows is not None and query.how == "replace" and not rows.is_whole:
                rows = self._sources.rows_since(one.table, derived, query.app, anew=True)
            return None if rows is None else OutdatedTable(derived, (rows,), rows.is_whole)

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            return [one for one in pool.map(outdated, landed) if one is not None]

    def _of_all(
        self, query: DeclaredQuery, landed: Sequence[Landed], anew: frozenset[str] | None
    ) -> list[OutdatedTable]:
        """All sources have one derived table. A new source adds to it; one of which rows have
        changed makes all of it anew."""
        if anew is not None and query.name not in anew:
            return []
        derived = self._derived(query.name)
        rows = self._rows(derived, query, landed)
        if not rows and anew is None:
            return []
        is_whole = (
            anew is not None
            or query.how == "replace"
            or any(one.was_rewritten for one in rows)
            or not self._is_of(query, derived)
        )
        if is_whole:
            rows = self._rows(derived, query, self.known.values(), anew=True)
        return [OutdatedTable(derived, tuple(rows), is_whole)]

    def _union(
        self, union: DeclaredUnion, landed: Sequence[Landed], anew: frozenset[str] | None
    ) -> Iterator[Committed]:
        if anew is not None and union.name not in anew:
            return
        everything = list(self.known.values())
        deriver = UnionDeriver(
            self.spark, self.pipeline.lake, union, self._queries, self._sources, everything
        )
        derived = self._derived(union.name)
        yield from deriver.derive(
            derived, landed, anew is not None or not self._is_of(union, derived)
        )

    def _derived(self, name: str) -> DerivedTable:
        lake = self.pipeline.lake
        return DerivedTable(lake, name, Snapshot.newest(lake, name, self._tables))

    def _anew(self, query: DeclaredQuery, table: OutdatedTable) -> OutdatedTable:
        """A table with all rows of all its sources."""
        sources = (
            [self.known[one.source] for one in table.sources]
            if query.by_route
            else self.known.values()
        )
        rows = self._rows(table.derived, query, sources, anew=True)
        return OutdatedTable(table.derived, tuple(rows), is_whole=True)

    def _rows(
        self,
        derived: DerivedTable,
        query: DeclaredQuery,
        landed: Iterable[Landed],
        anew: bool = False,
    ) -> list[SourceRows]:
        since = self._sources.rows_since
        found = [since(one.table, derived, query.app_for(one.table), anew) for one in landed]
        return [one for one in found if one is not None]

    def _is_of(self, declared: DeclaredQuery | DeclaredUnion, derived: DerivedTable) -> bool:
        """Whether a table was made by this declaration, not by another of the same name."""
        marks = (declared.app_for(source) for source in self._sources_of(declared))
        return any(derived.marked(app) is not None for app in marks)

    def _sources_of(self, declared: DeclaredQuery | DeclaredUnion) -> Iterator[str]:
        if isinstance(declared, DeclaredUnion):
            for table, _ in declared.sources(self._queries, self.known.values()):
                yield table
        else:
            yield from self.known

    def _told(self, committed: Iterable[Committed]) -> list[GoldEntry]:
        began = perf_counter()
        entries = []
        for one in committed:
            if one.error is not None:
                self.listener(GoldFailed(one.table, one.error))
            entries.append(GoldEntry(one.table, one.rows, one.version, one.error))
        followed = [entry for entry in entries if entry.error is None]
        if followed:
            rows = sum(entry.rows for entry in followed)
            self.listener(GoldDerived(len(followed), rows, perf_counter() - began))
        return entries


def _first_line(error: Exception) -> str:
    """Spark's messages go on for pages."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
