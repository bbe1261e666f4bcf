"""Which columns of its input an expression uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

_PARTS = ("this", "table", "db", "catalog")
_QUALIFIED = "qualified"


def root_of(column: exp.Column) -> str:
    """The column itself where a field inside of it is asked for: `a` of `a.b`."""
    return column.parts[0].name


def columns_in(nodes: Iterable[exp.Expr]) -> Iterator[exp.Column]:
    for node in nodes:
        yield from node.find_all(exp.Column, bfs=False)


def distinct_names(names: Iterable[str]) -> frozenset[str]:
    """Each name once, as it is written first: Spark reads names in any case."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return frozenset(found.values())


def without_qualifier(column: exp.Column, qualifiers: frozenset[str]) -> exp.Column:
    """`user_name` for `silver.user_name`."""
    parts = column.parts
    if len(parts) == 1 or parts[0].name.lower() not in qualifiers:
        return column
    bare = column_of(parts[1:])
    bare.meta[_QUALIFIED] = True
    return bare


def column_of(parts: Sequence[exp.Expr]) -> exp.Column:
    return exp.Column(**dict(zip(_PARTS, reversed(parts), strict=False)))


def inside_of(column: exp.Column) -> Iterator[tuple[exp.Column, list[exp.Expr]]]:
    """What a field is inside of, and the names that lead from there to it: `a.b` of `a.b.c`."""
    parts = [each.copy() for each in column.parts]
    for length in range(1, len(parts)):
        yield column_of(parts[:length]), parts[length:]


def is_surely_of_input(column: exp.Column) -> bool:
    """Whether it was written with the name of its table, so that it cannot be an output."""
    return bool(column.meta.get(_QUALIFIED))
