"""What the next run would do with the derived tables; nothing is written or computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate.config import PipelineConfig
from headgate.config.gold import ROUTE
from headgate.errors import nearest
from headgate.gold.declared import (
    DeclaredQuery,
    DeclaredUnion,
    Landed,
    declared_gold,
    landed,
    update_method,
)
from headgate.gold.source_table import app_of_version
from headgate.inspect.schema import open_table
from headgate.inspect.tables import TableKind, kind_of, map_parallel
from headgate.lake.ledger_entries import Kind
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.streams import app_id
from headgate.lake.tables import is_table, table_url
from headgate.sql.incremental import Incremental


@dataclass(frozen=True)
class ComingTable:
    """A landed table as it would be after the newest schemas."""

    table: str
    route: str | None
    columns: tuple[str, ...]
    is_created: bool


class GoldStep(StrEnum):
    """What a run would do with a derived table."""

    MAKE = "make"
    REBUILD = "rebuild"
    """Another declaration computed its rows."""
    FOLLOW = "follow"
    """It is up to date with some version of its sources, and continues from there."""


@dataclass(frozen=True)
class DerivedTablePlan:
    """One derived table."""

    table: str
    step: GoldStep
    sources: int
    """Number of tables that it is derived from."""
    read_bytes: int
    """Size of the files that are read to make or rebuild it."""


@dataclass(frozen=True)
class UnknownColumn:
    """A column that a declaration uses and no table has, so that it is null."""

    column: str
    meant: str | None
    """An existing column with a similar name."""


@dataclass(frozen=True)
class MissingColumn:
    """A column that a declaration uses and that only some tables have."""

    column: str
    tables: tuple[str, ...]
    """Tables without the column, where it is null."""


@dataclass(frozen=True)
class DerivedPlan:
    """One declaration of `gold`, and what a run would do with its tables."""

    name: str
    how: str
    """How its tables are kept up to date."""
    tables: tuple[DerivedTablePlan, ...]
    unknown: tuple[UnknownColumn, ...] = ()
    missing: tuple[MissingColumn, ...] = ()

    def those_to(self, step: GoldStep) -> tuple[DerivedTablePlan, ...]:
        return tuple(one for one in self.tables if one.step is step)

    def as_record(self) -> dict[str, Any]:
        return {
            **vars(self),
            "missing": [{**vars(one), "count": len(one.tables)} for one in self.missing],
        }


Declared = DeclaredQuery | DeclaredUnion


@dataclass(frozen=True)
class _Source:
    """A table that others are derived from."""

    table: str
    columns: tuple[str, ...]
    bytes: int = 0


def plan_gold(
    pipeline: PipelineConfig, ledger: LedgerSnapshot, coming: Iterable[ComingTable] = ()
) -> tuple[DerivedPlan, ...]:
    """Plan each declaration, in the order of the file."""
    if not pipeline.gold:
        return ()
    queries, unions = declared_gold(pipeline, app_id(pipeline.name))
    after = {one.table: one for one in coming}
    planning = _GoldPlanner(pipeline, after, queries, _landed(pipeline, ledger, after.values()))
    every: list[Declared] = [*queries, *unions]
    declared = {one.name: one for one in every}
    return tuple(planning.declaration(declared[name]) for name in pipeline.gold)


def _landed(
    pipeline: PipelineConfig, ledger: LedgerSnapshot, coming: Iterable[ComingTable]
) -> list[Landed]:
    """Return the tables in the lake, and those that the newest schemas would create."""
    totals = ledger.tables(Kind.MERGED if pipeline.lands_changes else Kind.TABLE)
    known = {table: one.route for table, one in totals.items() if _exists(pipeline, table)}
    if pipeline.lands_changes:
        known = {table: None for table in known if kind_of(pipeline, table) is TableKind.MERGED}
    created = {one.table: one.route or "" for one in coming if one.is_created}
    return landed(pipeline, {**known, **created}.items())


@dataclass
class _GoldPlanner:
    """Plans the declarations of one pipeline."""

    pipeline: PipelineConfig
    after: Mapping[str, ComingTable]
    queries: Sequence[DeclaredQuery]
    landed: Sequence[Landed]

    def __post_init__(self) -> None:
        self._known = map_parallel(self._source, (one.table for one in self.landed))

    def declaration(self, declared: Declared) -> DerivedPlan:
        sources = self._sources(declared)
        made_of = {one.table: one for group in sources.values() for one in group}
        columns = (
            declared.select.surely_columns
            if isinstance(declared, DeclaredQuery)
            else declared.select.columns
        )
        steps = map_parallel(lambda table: self._step(declared, table, sources[table]), sources)
        return DerivedPlan(
            name=declared.name,
            how=update_method(self.pipeline.gold[declared.name], self.pipeline.lands_changes),
            tables=tuple(steps.values()),
            unknown=tuple(_unknown(columns, made_of.values())),
            missing=tuple(_missing(columns, made_of.values())),
        )

    def _sources(self, declared: Declared) -> dict[str, list[_Source]]:
        """Return the tables of a declaration, each with those that it is derived from."""
        if isinstance(declared, DeclaredUnion):
            derived = self._derived()
            tables = [table for table, _ in declared.sources(self.queries, self.landed)]
            made_of = [self._known.get(table) or derived[table] for table in tables]
            return {declared.name: made_of} if made_of else {}
        found: dict[str, list[_Source]] = {}
        for one in self.landed:
            found.setdefault(declared.table_for(one.name), []).append(self._known[one.table])
        return found

    def _derived(self) -> dict[str, _Source]:
        """Return tables by route as sources of unions, with the columns of their declarations."""
        found = {}
        for query in self.queries:
            if ROUTE in query.name:
                outputs = [one.name for one in query.select.outputs]
                hidden = query.states.hidden if isinstance(query.states, Incremental) else ()
                for one in self.landed:
                    table = query.table_for(one.name)
                    found[table] = _Source(table, (*outputs, *hidden))
        return found

    def _step(self, declared: Declared, table: str, sources: Sequence[_Source]) -> DerivedTablePlan:
        step = GoldStep.MAKE
        if _exists(self.pipeline, table):
            opened = open_table(self.pipeline, table)
            known = any(opened.mark(app) is not None for app in self._apps(declared, sources))
            step = GoldStep.FOLLOW if known else GoldStep.REBUILD
        read = 0 if step is GoldStep.FOLLOW else sum(self._size(one) for one in sources)
        return DerivedTablePlan(table, step, len(sources), read)

    def _apps(self, declared: Declared, sources: Sequence[_Source]) -> Iterator[str]:
        """Yield the apps of the marks that a table has of its sources."""
        for source in sources:
            app = declared.app_for(source.table)
            if isinstance(declared, DeclaredUnion) or not declared.by_route:
                yield app
            elif _exists(self.pipeline, source.table):
                yield app_of_version(app, open_table(self.pipeline, source.table).table_id)

    def _size(self, source: _Source) -> int:
        """Return the size of a source; that of a derived table is looked up."""
        if source.table in self._known or not _exists(self.pipeline, source.table):
            return source.bytes
        return open_table(self.pipeline, source.table).bytes

    def _source(self, table: str) -> _Source:
        coming = self.after[table].columns if table in self.after else ()
        if not _exists(self.pipeline, table):
            return _Source(table, coming)
        opened = open_table(self.pipeline, table)
        columns = opened.schema.names
        return _Source(table, tuple(dict.fromkeys([*columns, *coming])), opened.bytes)


def _unknown(columns: Iterable[str], sources: Iterable[_Source]) -> Iterator[UnknownColumn]:
    """Yield columns that no source has, once there are sources."""
    there = {column for one in sources for column in one.columns}
    lower = {column.lower() for column in there}
    if there:
        for column in _asked_for(columns):
            if column.lower() not in lower:
                yield UnknownColumn(column, nearest(column, sorted(there)))


def _missing(columns: Iterable[str], sources: Iterable[_Source]) -> Iterator[MissingColumn]:
    """Yield columns that some sources have and others lack."""
    having = {one.table: {column.lower() for column in one.columns} for one in sources}
    for column in _asked_for(columns):
        lacking = tuple(table for table, there in having.items() if column.lower() not in there)
        if 0 < len(lacking) < len(having):
            yield MissingColumn(column, lacking)


def _asked_for(columns: Iterable[str]) -> list[str]:
    """Leave out `route`, which every source has."""
    return sorted(column for column in columns if column.lower() != "route")


def _exists(pipeline: PipelineConfig, table: str) -> bool:
    return is_table(table_url(pipeline.lake, table))
