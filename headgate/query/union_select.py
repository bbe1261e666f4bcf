"""A union of `gold`, as what runs it needs to know it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.pipeline import GoldUnion
from headgate.pipeline.sql.columns import columns_in, distinct_names, root_of
from headgate.pipeline.sql.dialect import quoted, sql_of
from headgate.pipeline.sql.read_rule import read_rule
from headgate.pipeline.sql.read_union import read_columns
from headgate.query.gold_select import OutputColumn


@dataclass(frozen=True)
class UnionSelect:
    """Which rows of the tables go into the union, and what of them."""

    outputs: tuple[OutputColumn, ...]
    where: str | None
    columns: frozenset[str]
    """Columns of the tables that it uses, as it writes them; `route` is one if it is asked for."""

    @property
    def has_route(self) -> bool:
        """Whether it asks for the route that a row came by."""
        return any(name.lower() == "route" for name in self.columns)

    def sql(self, view: str, extra: str | None = None) -> str:
        """The rows, from a view of all tables; with a column more that the view has, if wanted."""
        outputs = [
            each.expression
            if each.expression == quoted(each.name)
            else f"{each.expression} AS {quoted(each.name)}"
            for each in self.outputs
        ]
        columns = ", ".join([*([quoted(extra)] if extra else []), *outputs])
        where = f"\nWHERE {self.where}" if self.where else ""
        return f"SELECT {columns}\nFROM {quoted(view)}{where}"


def union_select(union: GoldUnion) -> UnionSelect:
    """What a declared union is made of. Raises `InvalidPipeline` if that cannot be read."""
    outputs = read_columns(union.select)
    where = None if union.where is None else read_rule(union.where)
    nodes = [*(each.node for each in outputs), *([] if where is None else [where])]
    return UnionSelect(
        outputs=tuple(OutputColumn(each.name, sql_of(each.node)) for each in outputs),
        where=None if where is None else sql_of(where),
        columns=distinct_names(map(root_of, columns_in(nodes))),
    )
