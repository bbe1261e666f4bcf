"""Updates all derived tables of a pipeline.

A derived table has a mark per source: the version that it includes. After a crash, only the tables
without the newest marks are updated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import perf_counter
from typing import TYPE_CHECKING

from headgate.config import PipelineConfig
from headgate.engine.events import GoldDerived, GoldFailed, Listener, TableRebuilt
from headgate.errors import first_line
from headgate.gold.commit import Committed
from headgate.gold.declared import DeclaredQuery, DeclaredUnion, Landed, declared_gold
from headgate.gold.query import QueryDeriver
from headgate.gold.source_table import DerivedTable, OutdatedTable, SourceRows, SourceTables
from headgate.gold.union import UnionDeriver
from headgate.lake.commit import Committer
from headgate.lake.kept_rows import KeptRows
from headgate.lake.ledger_entries import GoldEntry
from headgate.lake.open_tables import TableCache
from headgate.lake.other_writers import changed_by_others
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import tables_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class GoldDeriver:
    """Updates and rebuilds the derived tables of a pipeline."""

    spark: SparkSession
    committer: Committer
    pipeline: PipelineConfig
    app: str
    listener: Listener
    known: dict[str, Landed] = field(default_factory=dict)
    """All landed tables, by name."""
    written: dict[str, int] = field(default_factory=dict)
    """Newest versions of derived tables that are known to be ours."""

    def __post_init__(self) -> None:
        self._queries, unions = declared_gold(self.pipeline, self.app)
        # Unions last: they may read tables of the queries.
        every: list[DeclaredQuery | DeclaredUnion] = [*self._queries, *unions]
        self._declared = [one for one in every if self._is_own(one)]
        self._failed: dict[str, Landed] = {}
        """Landed tables that a failed derivation may have to read again."""
        self._errors: dict[str, str] = {}
        """The last errors of tables that have failed ever since."""
        self._changed: set[str] = set()
        """Derived tables whose rows others have changed, until they are rebuilt."""
        self._tables = TableCache(self.pipeline.lake)
        self._kept = KeptRows()
        self._sources = SourceTables(self.pipeline.lake, self._tables)

    def _is_own(self, declared: DeclaredQuery | DeclaredUnion) -> bool:
        """Whether this stream derives the tables: the first has those over all routes."""
        by_route = isinstance(declared, DeclaredQuery) and declared.by_route
        return by_route or self.pipeline.stream.is_first

    def derive(self, landed: Sequence[Landed]) -> list[GoldEntry]:
        """Update derived tables from landed ones; those without new rows are skipped.

        What fails is tried again with the next call, whether its sources have changed or not.
        """
        new = {one.table: one for one in landed}
        self.known |= new
        due = self._failed | new
        began = perf_counter()
        committed = list(self._derive([*due.values()])) if due else []
        self._failed = due if any(one.error is not None for one in committed) else {}
        return self._report(committed, perf_counter() - began)

    def refresh(self, tables: Sequence[str]) -> list[GoldEntry]:
        """Rebuild derived tables from all rows; each is replaced in one commit."""
        began = perf_counter()
        committed = list(self._derive(list(self.known.values()), frozenset(tables)))
        return self._report(committed, perf_counter() - began)

    def tables(self, patterns: Iterable[str] = ("*",)) -> list[str]:
        """Return the derived tables of all landed ones, by name pattern."""
        names = {
            one.table_for(landed.name) if isinstance(one, DeclaredQuery) else one.name
            for landed in self.known.values()
            for one in self._declared
        }
        return sorted(
            name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    def _derive(
        self, landed: Sequence[Landed], rebuild: frozenset[str] | None = None
    ) -> Iterator[Committed]:
        self._sources = SourceTables(self.pipeline.lake, self._tables)
        for declared in self._declared:
            try:
                if isinstance(declared, DeclaredQuery):
                    yield from self._query(declared, landed, rebuild)
                else:
                    yield from self._union(declared, landed, rebuild)
            except Exception as error:  # must not fail the other declarations
                yield Committed(declared.name, 0, None, first_line(error))

    def _query(
        self, query: DeclaredQuery, landed: Sequence[Landed], rebuild: frozenset[str] | None
    ) -> Iterator[Committed]:
        if query.by_route:
            tables = self._by_route(query, landed, rebuild)
        else:
            tables = self._over_all(query, landed, rebuild)
        routes = {table: one.route for table, one in self.known.items()}
        deriver = QueryDeriver(
            self.spark,
            self.committer,
            query,
            routes,
            lambda one: self._with_all_rows(query, one),
            self._kept,
        )
        if tables:
            yield from deriver.derive(tables)

    def _by_route(
        self, query: DeclaredQuery, landed: Sequence[Landed], rebuild: frozenset[str] | None
    ) -> list[OutdatedTable]:
        """Return the outdated tables of a query with one table per source."""
        landed = [one for one in landed if self.pipeline.stream.has(one.route)]

        def outdated(one: Landed) -> OutdatedTable | None:
            name = query.table_for(one.name)
            if rebuild is not None and name not in rebuild:
                return None
            derived = self._derived(name)
            rows = self._sources.rows_since(one.table, derived, query.app, rebuild is not None)
            if rows is not None and query.update_mode == "replace" and not rows.is_whole:
                rows = self._sources.rows_since(one.table, derived, query.app, full=True)
            return None if rows is None else OutdatedTable(derived, (rows,), rows.is_whole)

        with ThreadPoolExecutor(tables_at_once(self.pipeline.lake)) as pool:
            return [one for one in pool.map(outdated, landed) if one is not None]

    def _over_all(
        self, query: DeclaredQuery, landed: Sequence[Landed], rebuild: frozenset[str] | None
    ) -> list[OutdatedTable]:
        """Return the table over all sources if it is outdated.

        It is rebuilt if rows of a source have changed; new rows and new sources are added to it.
        """
        if rebuild is not None and query.name not in rebuild:
            return []
        derived = self._derived(query.name)
        rows = self._rows(derived, query, landed)
        if not rows and rebuild is None:
            return []
        is_whole = (
            rebuild is not None
            or query.update_mode == "replace"
            or any(one.was_rewritten for one in rows)
            or not self._was_derived_by(query, derived)
        )
        if is_whole:
            rows = self._rows(derived, query, self.known.values(), full=True)
        return [OutdatedTable(derived, tuple(rows), is_whole)]

    def _union(
        self, union: DeclaredUnion, landed: Sequence[Landed], rebuild: frozenset[str] | None
    ) -> Iterator[Committed]:
        if rebuild is not None and union.name not in rebuild:
            return
        all_landed = list(self.known.values())
        deriver = UnionDeriver(
            self.spark, self.committer, union, self._queries, self._sources, all_landed
        )
        derived = self._derived(union.name)
        yield from deriver.derive(
            derived, landed, rebuild is not None or not self._was_derived_by(union, derived)
        )

    def _derived(self, name: str) -> DerivedTable:
        lake = self.pipeline.lake
        table = Snapshot.newest(lake, name, self._tables)
        if table is not None:
            if changed_by_others(table, f"{self.app}:gold:", self.written.get(name)):
                self._changed.add(name)
            self.written[name] = table.version
        return DerivedTable(lake, name, table, was_changed=name in self._changed)

    def _with_all_rows(self, query: DeclaredQuery, table: OutdatedTable) -> OutdatedTable:
        """Return a table with all rows of all its sources, to rebuild it."""
        sources = (
            [self.known[one.source] for one in table.sources]
            if query.by_route
            else self.known.values()
        )
        rows = self._rows(table.derived, query, sources, full=True)
        return OutdatedTable(table.derived, tuple(rows), is_whole=True)

    def _rows(
        self,
        derived: DerivedTable,
        query: DeclaredQuery,
        landed: Iterable[Landed],
        full: bool = False,
    ) -> list[SourceRows]:
        since = self._sources.rows_since
        found = [since(one.table, derived, query.app_for(one.table), full) for one in landed]
        return [one for one in found if one is not None]

    def _was_derived_by(
        self, declared: DeclaredQuery | DeclaredUnion, derived: DerivedTable
    ) -> bool:
        """Whether this declaration derived a table, not an earlier one of the same name."""
        marks = (declared.app_for(source) for source in self._sources_of(declared))
        return any(derived.marked(app) is not None for app in marks)

    def _sources_of(self, declared: DeclaredQuery | DeclaredUnion) -> Iterator[str]:
        if isinstance(declared, DeclaredUnion):
            for table, _ in declared.sources(self._queries, self.known.values()):
                yield table
        else:
            yield from self.known

    def _note_version(self, committed: Committed) -> None:
        """Know a version as ours, unless others have committed between this and the last one."""
        table, version = committed.table, committed.version
        if version is not None and version == self.written.get(table, -1) + 1:
            self.written[table] = version
        if table in self._changed:
            self._changed.discard(table)
            self.listener(TableRebuilt(table, "another writer has changed its rows"))

    def _report(self, committed: Iterable[Committed], seconds: float) -> list[GoldEntry]:
        """Emit events, and return the entries for the ledger; an error that stays counts once."""
        entries = []
        for one in committed:
            if one.error is None:
                self._errors.pop(one.table, None)
                self._note_version(one)
            elif self._errors.get(one.table) == one.error:
                continue
            else:
                self._errors[one.table] = one.error
                self.listener(GoldFailed(one.table, one.error))
            entries.append(GoldEntry(one.table, one.rows, one.version, one.error))
        updated = [entry for entry in entries if entry.error is None]
        if updated:
            rows = sum(entry.rows for entry in updated)
            self.listener(GoldDerived(len(updated), rows, seconds))
        return entries
