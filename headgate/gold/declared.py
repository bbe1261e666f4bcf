"""The derived tables that a pipeline declares, ready to be computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal

from headgate.config import GoldQuery, GoldUnion, Pipeline
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
    """A landed table: what it is called, and the value that decided so."""

    table: str
    name: str
    """What stands for `{route}` in the names of derived tables."""
    route: str


def landed(pipeline: Pipeline, tables: Iterable[tuple[str, str | None]]) -> list[Landed]:
    """Tables with their routes; those of a change pipeline are routes of their own."""
    if pipeline.lands_changes:
        return [Landed(table, table, table) for table, _ in tables]
    before, after = pipeline.silver.split("{route}")
    return [
        Landed(table, table.removeprefix(before).removesuffix(after), route)
        for table, route in tables
        if route is not None and table not in pipeline.own_tables.values()
    ]


How = Literal["merge", "append", "replace"]
"""What new rows of a source do to a derived table: change groups, add rows, or make all anew."""


@dataclass(frozen=True)
class DeclaredQuery:
    """One SELECT over the landed tables."""

    name: str
    select: GoldSelect
    app: str
    """Whose mark in a table says up to which version of its source it has everything. Another
    declaration has another one, so that its tables are computed anew."""

    @property
    def by_route(self) -> bool:
        return ROUTE in self.name

    @cached_property
    def states(self) -> Incremental | NotMergeable:
        return incremental(self.select)

    @property
    def how(self) -> How:
        if isinstance(self.states, Incremental):
            return "merge"
        return "append" if self.select.row_by_row else "replace"

    def app_for(self, source: str) -> str:
        """One table of all sources has a mark for each of them."""
        return self.app if self.by_route else f"{self.app}:{source}"

    def table_for(self, route_name: str) -> str:
        return self.name.replace(ROUTE, route_name)


@dataclass(frozen=True)
class DeclaredUnion:
    """Rows of many tables in one."""

    name: str
    declared: GoldUnion
    select: UnionSelect
    app: str
    of_landed: bool
    """Whether it is of the landed tables themselves."""

    def app_for(self, source: str) -> str:
        return f"{self.app}:{source}"

    def sources(
        self, queries: Iterable[DeclaredQuery], landed: Iterable[Landed]
    ) -> Iterator[tuple[str, str]]:
        """The tables that it is of, each with its route."""
        for one in landed:
            if self.of_landed:
                yield one.table, one.route
                continue
            for query in queries:
                table = query.table_for(one.name)
                if query.by_route and self.declared.takes(table):
                    yield table, one.route


def declared_gold(pipeline: Pipeline, app: str) -> tuple[list[DeclaredQuery], list[DeclaredUnion]]:
    """Queries first: unions are of what they give."""
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
    """What a declared union is made of. Raises `InvalidPipeline` if that cannot be read."""
    outputs = analyze_columns(union.select)
    where = None if union.where is None else parse_condition(union.where)
    nodes = [*(each.node for each in outputs), *([] if where is None else [where])]
    return UnionSelect(
        outputs=tuple(OutputColumn(each.name, sql_of(each.node)) for each in outputs),
        where=None if where is None else sql_of(where),
        columns=distinct_names(map(root_name, columns_in(nodes))),
    )


def describe(name: str, declared: GoldQuery | GoldUnion) -> str:
    """`gold_{route}_player_agg: incremental (4 states)`."""
    return f"{name}: {how_it_follows(declared)}"


def how_it_follows(declared: GoldQuery | GoldUnion, rows_change: bool = False) -> str:
    """Where rows change and go, as in merged tables, nothing can be added to what there was."""
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
