"""The gold declarations of a pipeline, parsed and with their sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal

from headgate.config import GoldQuery, GoldUnion, PipelineConfig
from headgate.config.gold import ROUTE
from headgate.sql.expressions import columns_in, distinct_names, root_name
from headgate.sql.gold_select import GoldSelect, OutputColumn, UnionSelect, parse_gold
from headgate.sql.incremental import Incremental, incremental
from headgate.sql.mergeable import NotMergeable
from headgate.sql.parse import sql_of
from headgate.sql.rules import parse_condition
from headgate.sql.select import (
    analyze_columns,
)


@dataclass(frozen=True)
class Landed:
    """A landed table and its route."""

    table: str
    name: str
    """The value of `{route}` in the names of derived tables."""
    route: str


def landed(pipeline: PipelineConfig, tables: Iterable[tuple[str, str | None]]) -> list[Landed]:
    """Return the landed tables among `tables`; a merged table is its own route."""
    if pipeline.lands_changes:
        return [Landed(table, table, table) for table, _ in tables]
    before, after = pipeline.silver.split("{route}")
    return [
        Landed(table, table.removeprefix(before).removesuffix(after), route)
        for table, route in tables
        if route is not None and table not in pipeline.own_tables.values()
    ]


UpdateMode = Literal["merge", "append", "replace"]
"""How new rows of a source update a derived table: merge into groups, append, or rebuild it."""


@dataclass(frozen=True)
class DeclaredQuery:
    """One SELECT over the landed tables."""

    name: str
    select: GoldSelect
    app: str
    """Transaction app id of the mark that records the source version a table includes. It depends
    on the declaration, so that tables are rebuilt when the declaration changes."""

    @property
    def by_route(self) -> bool:
        return ROUTE in self.name

    @cached_property
    def states(self) -> Incremental | NotMergeable:
        return incremental(self.select)

    @property
    def update_mode(self) -> UpdateMode:
        if isinstance(self.states, Incremental):
            return "merge"
        return "append" if self.select.row_by_row else "replace"

    def app_for(self, source: str) -> str:
        """Return the app id of a source, whichever table has its name.

        A table over all sources has one for each.
        """
        return self.app if self.by_route else f"{self.app}:{source}"

    def table_for(self, route_name: str) -> str:
        return self.name.replace(ROUTE, route_name)


@dataclass(frozen=True)
class DeclaredUnion:
    """A declared union of many tables."""

    name: str
    declared: GoldUnion
    select: UnionSelect
    app: str
    of_landed: bool
    """Whether it reads the landed tables, not other gold tables."""

    def app_for(self, source: str) -> str:
        return f"{self.app}:{source}"

    def sources(
        self, queries: Iterable[DeclaredQuery], landed: Iterable[Landed]
    ) -> Iterator[tuple[str, str]]:
        """Yield the tables that the union reads, each with its route."""
        for one in landed:
            if self.of_landed:
                yield one.table, one.route
                continue
            for query in queries:
                table = query.table_for(one.name)
                if query.by_route and self.declared.takes(table):
                    yield table, one.route


def declared_gold(
    pipeline: PipelineConfig, app: str
) -> tuple[list[DeclaredQuery], list[DeclaredUnion]]:
    """Return the declared queries and the unions, which may read tables of the queries."""
    queries, unions = [], []
    for name, declared in pipeline.gold.items():
        if isinstance(declared, GoldQuery):
            select = parse_gold(declared.sql)
            queries.append(DeclaredQuery(name, select, _app(app, name, select.canonical)))
        else:
            text = repr(declared)
            unions.append(
                DeclaredUnion(
                    name,
                    declared,
                    union_select(declared),
                    _app(app, name, text),
                    of_landed=declared.from_ == pipeline.gold_source,
                )
            )
    return queries, unions


def _app(app: str, name: str, text: str) -> str:
    return f"{app}:gold:{sha256(f'{name} {text}'.encode()).hexdigest()[:12]}"


def union_select(union: GoldUnion) -> UnionSelect:
    """Parse a declared union. Raises `InvalidPipeline` if it is not valid SQL."""
    outputs = analyze_columns(union.select)
    where = None if union.where is None else parse_condition(union.where)
    nodes = [*(each.node for each in outputs), *([] if where is None else [where])]
    return UnionSelect(
        outputs=tuple(OutputColumn(each.name, sql_of(each.node)) for each in outputs),
        where=None if where is None else sql_of(where),
        columns=distinct_names(map(root_name, columns_in(nodes))),
    )


def describe(name: str, declared: GoldQuery | GoldUnion) -> str:
    """Return a line such as `gold_{route}_player_agg: incremental (4 states)`."""
    return f"{name}: {update_method(declared)}"


def update_method(declared: GoldQuery | GoldUnion, rows_change: bool = False) -> str:
    """Describe how a table is updated; `rows_change` if its sources have updates or deletes."""
    if isinstance(declared, GoldUnion):
        return f"union of {declared.from_} by {declared.mode}"
    if rows_change:
        return "recomputed for touched tables: rows of merged tables are updated and deleted"
    select = parse_gold(declared.sql)
    if select.row_by_row:
        return "row by row"
    found = incremental(select)
    if isinstance(found, NotMergeable):
        return f"recomputed for touched tables: {found.why}"
    count = len(found.states)
    return f"incremental ({count} {'state' if count == 1 else 'states'})"
