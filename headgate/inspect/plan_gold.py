"""What the next run would make of each declaration of `gold`; nothing is written or computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.config import Pipeline
from headgate.config.gold import ROUTE
from headgate.errors import nearest
from headgate.gold.declared import (
    DeclaredQuery,
    DeclaredUnion,
    Landed,
    declared_gold,
    how_it_follows,
    landed,
)
from headgate.inspect.ask_registry import side_by_side
from headgate.inspect.ledger import LedgerRows
from headgate.inspect.own_tables import TableKind, kind_of
from headgate.inspect.planned import (
    DerivedPlan,
    DerivedTablePlan,
    GoldStep,
    MissingColumn,
    TablePlan,
    UnknownColumn,
)
from headgate.inspect.schema import open_table
from headgate.lake.ledger import Ledger
from headgate.lake.tables import size_of
from headgate.sql.incremental import Incremental

Declared = DeclaredQuery | DeclaredUnion


@dataclass(frozen=True)
class _Source:
    """A table that others are derived from, as far as that matters here."""

    table: str
    columns: tuple[str, ...]
    bytes: int = 0


def plan_gold(
    pipeline: Pipeline, ledger: LedgerRows, tables: Iterable[TablePlan] = ()
) -> tuple[DerivedPlan, ...]:
    """In the order of the file; `tables` is what newer schemas would do to landed ones."""
    if not pipeline.gold:
        return ()
    app = Ledger(pipeline.lake, pipeline.ledger, pipeline.name).app
    queries, unions = declared_gold(pipeline, app)
    after = {one.table: one for one in tables}
    planning = _Planning(pipeline, after, queries, _landed(pipeline, ledger, after.values()))
    every: list[Declared] = [*queries, *unions]
    declared = {one.name: one for one in every}
    return tuple(planning.declaration(declared[name]) for name in pipeline.gold)


def _landed(pipeline: Pipeline, ledger: LedgerRows, tables: Iterable[TablePlan]) -> list[Landed]:
    """Those that the lake has, and those that the newest schemas would make."""
    kind = "table" if not pipeline.lands_changes else "merged"
    rows = ledger.query(
        f"""
        SELECT "table", max(route) AS route FROM everything
        WHERE kind = '{kind}' GROUP BY "table" ORDER BY "table"
        """
    )
    known = {row["table"]: row["route"] for row in rows if _exists(pipeline, row["table"])}
    if pipeline.lands_changes:
        known = {table: None for table in known if kind_of(pipeline, table) is TableKind.MERGED}
    coming = {one.table: one.route or "" for one in tables if one.is_created}
    return landed(pipeline, {**known, **coming}.items())


@dataclass
class _Planning:
    """What all declarations have in common."""

    pipeline: Pipeline
    after: Mapping[str, TablePlan]
    queries: Sequence[DeclaredQuery]
    landed: Sequence[Landed]

    def __post_init__(self) -> None:
        self._known = side_by_side(self._look, (one.table for one in self.landed))

    def declaration(self, declared: Declared) -> DerivedPlan:
        sources = self._sources(declared)
        made_of = {one.table: one for group in sources.values() for one in group}
        columns = (
            declared.select.surely_columns
            if isinstance(declared, DeclaredQuery)
            else declared.select.columns
        )
        steps = side_by_side(lambda table: self._step(declared, table, sources[table]), sources)
        return DerivedPlan(
            name=declared.name,
            how=how_it_follows(self.pipeline.gold[declared.name], self.pipeline.lands_changes),
            tables=tuple(steps.values()),
            unknown=tuple(_unknown(columns, made_of.values())),
            missing=tuple(_missing(columns, made_of.values())),
        )

    def _sources(self, declared: Declared) -> dict[str, list[_Source]]:
        """The tables that a declaration gives, each with those that it is derived from."""
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
        """Tables by route as sources of unions: their columns are those of their declarations."""
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
            marks = (declared.app_for(one.table) for one in sources)
            known = any(opened.transaction_version(mark) is not None for mark in marks)
            step = GoldStep.FOLLOW if known else GoldStep.REBUILD
        read = 0 if step is GoldStep.FOLLOW else sum(self._size(one) for one in sources)
        return DerivedTablePlan(table, step, len(sources), read)

    def _size(self, source: _Source) -> int:
        """Of derived tables, what they have so far."""
        if source.table in self._known or not _exists(self.pipeline, source.table):
            return source.bytes
        return size_of(open_table(self.pipeline, source.table))

    def _look(self, table: str) -> _Source:
        coming = self.after[table].columns if table in self.after else ()
        if not _exists(self.pipeline, table):
            return _Source(table, coming)
        opened = open_table(self.pipeline, table)
        columns = pa.schema(opened.schema()).names
        return _Source(table, tuple(dict.fromkeys([*columns, *coming])), size_of(opened))


def _unknown(columns: Iterable[str], sources: Iterable[_Source]) -> Iterator[UnknownColumn]:
    """Those that none of the tables has; nobody knows that before there are any."""
    there = {column for one in sources for column in one.columns}
    lower = {column.lower() for column in there}
    if there:
        for column in _asked_for(columns):
            if column.lower() not in lower:
                yield UnknownColumn(column, nearest(column, sorted(there)))


def _missing(columns: Iterable[str], sources: Iterable[_Source]) -> Iterator[MissingColumn]:
    """Those that some tables have and others lack."""
    having = {one.table: {column.lower() for column in one.columns} for one in sources}
    for column in _asked_for(columns):
        lacking = tuple(table for table, there in having.items() if column.lower() not in there)
        if 0 < len(lacking) < len(having):
            yield MissingColumn(column, lacking)


def _asked_for(columns: Iterable[str]) -> list[str]:
    """The route that a row came by is known everywhere."""
    return sorted(column for column in columns if column.lower() != "route")


def _exists(pipeline: Pipeline, table: str) -> bool:
    return Path(pipeline.lake, table, "_delta_log").is_dir()
