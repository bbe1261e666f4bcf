"""The derived tables that a pipeline declares, ready to be computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal

from headgate.gold.landed import Landed
from headgate.pipeline import AnyPipeline, GoldQuery, GoldUnion
from headgate.pipeline.gold import ROUTE
from headgate.query.gold_select import GoldSelect, parse_gold
from headgate.query.incremental import incremental
from headgate.query.mergeable import NotMergeable
from headgate.query.states import Incremental
from headgate.query.union_select import UnionSelect, union_select

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


def declared_gold(
    pipeline: AnyPipeline, app: str
) -> tuple[list[DeclaredQuery], list[DeclaredUnion]]:
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
