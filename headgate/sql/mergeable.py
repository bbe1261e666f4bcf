"""Aggregates whose values of new rows can be merged with those kept for earlier rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from headgate.sql.expressions import call_name, innermost_call
from headgate.sql.parse import as_written, sql_of


@dataclass(frozen=True)
class PartialAggregate:
    """A value kept for each group: computed from rows, and merged by an aggregate."""

    suffix: str
    partial: str
    merge: str
    """A SQL aggregate; `{}` stands for the merged column."""


@dataclass(frozen=True)
class Merging:
    """The parts of an aggregate and its value; `{0}`, `{1}` stand for the columns of the parts."""

    parts: tuple[PartialAggregate, ...]
    value: str = "{0}"


@dataclass(frozen=True)
class NotMergeable:
    """The reason why groups have to be computed from all of their rows."""

    why: str


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: tuple[str, ...]
    filter: str | None
    ignores_nulls: bool
    literals: tuple[exp.Expr, ...]
    whole: str

    def over(self, aggregate: str, only_if: str | None = None) -> str:
        """Return another aggregate of the same rows."""
        asked = [each for each in (self.filter, only_if) if each]
        if not asked:
            return aggregate
        condition = asked[0] if len(asked) == 1 else " AND ".join(f"({each})" for each in asked)
        return f"{aggregate} FILTER(WHERE {condition})"


def merging_of(aggregate: exp.Expr) -> Merging | NotMergeable:
    """Return how to merge an aggregate, which may have FILTER or similar clauses around it."""
    node = innermost_call(aggregate)
    name = call_name(node) or ""
    written = as_written(aggregate)
    if name in _BY_ORDER:
        return NotMergeable(f"{written} depends on the order of rows; {_BY_ORDER[name]} does not")
    if aggregate.find(exp.WithinGroup, exp.Order) or name not in _RULES:
        return NotMergeable(f"{written} cannot be merged")
    if aggregate.find(exp.Distinct) and name not in _OF_DISTINCT:
        hint = "; approx_count_distinct can" if name == "count" else ""
        return NotMergeable(f"{written} cannot be merged{hint}")
    given = node.expressions if isinstance(node, exp.Anonymous) else [node.this.unnest()]
    filters = [each.expression.this for each in aggregate.walk() if isinstance(each, exp.Filter)]
    call = _Call(
        name=name,
        arguments=tuple(map(sql_of, given)),
        filter=sql_of(filters[0]) if filters else None,
        ignores_nulls=aggregate.find(exp.IgnoreNulls) is not None,
        literals=tuple(given),
        whole=sql_of(aggregate),
    )
    return _RULES[name](call) or NotMergeable(f"{written} cannot be merged")


def _merged_by(function: str) -> Callable[[_Call], Merging | None]:
    """Aggregates whose partial results are merged by one function."""

    def rule(call: _Call) -> Merging | None:
        return Merging((PartialAggregate(call.name, call.whole, f"{function}({{}})"),))

    return rule


def _any_value(call: _Call) -> Merging | None:
    ignores = call.ignores_nulls or [each.upper() for each in call.arguments[1:]] == ["TRUE"]
    merge = "any_value({}, true)" if ignores else "any_value({})"
    return Merging((PartialAggregate("any", call.whole, merge),))


def _average(call: _Call) -> Merging | None:
    """Keeps sum and count, so that nothing is rounded before the division."""
    (of,) = call.arguments
    parts = (
        PartialAggregate("sum", call.over(f"SUM({of})"), "sum({})"),
        PartialAggregate("count", call.over(f"COUNT({of})"), "sum({})"),
    )
    return Merging(parts, "try_divide({0}, {1})")


def _distinct_by_sketch(call: _Call) -> Merging | None:
    """Casts to text, because Spark's sketches take only numbers and texts."""
    of, *error = call.arguments
    size = ""
    if error:
        written = call.literals[1]
        if not isinstance(written, exp.Literal) or not 0 < float(written.name) < 1:
            return None
        size = f", {_size_of_sketch(float(written.name))}"
    sketch = call.over(f"HLL_SKETCH_AGG(CAST({of} AS STRING){size})")
    merge = "hll_union_agg({}, false)"
    return Merging((PartialAggregate("sketch", sketch, merge),), "hll_sketch_estimate({0})")


def _size_of_sketch(error: float) -> int:
    """Return the binary logarithm of the number of buckets for an error."""
    return min(max(math.ceil(2 * math.log2(1.04 / error)), 4), 21)


def _merged_sketch(call: _Call) -> Merging | None:
    return Merging((PartialAggregate("sketch", call.whole, "hll_union_agg({}, false)"),))


def _union_of_sketches(call: _Call) -> Merging | None:
    differing = call.arguments[1] if len(call.arguments) > 1 else "false"
    return Merging((PartialAggregate("sketch", call.whole, f"hll_union_agg({{}}, {differing})"),))


def _by_ordering(function: str) -> Callable[[_Call], Merging | None]:
    """Keeps the value with its ordering; of equal orderings, the greater or lesser value wins."""

    def rule(call: _Call) -> Merging | None:
        if len(call.arguments) != 2:
            return None
        value, ordering = call.arguments
        pair = f"NAMED_STRUCT('ordering', {ordering}, 'value', {value})"
        partial = call.over(f"{function.upper()}({pair})", only_if=f"{ordering} IS NOT NULL")
        return Merging((PartialAggregate("by", partial, f"{function}({{}})"),), "{0}.`value`")

    return rule


_RULES: dict[str, Callable[[_Call], Merging | None]] = {
    **dict.fromkeys(("count", "count_if", "sum"), _merged_by("sum")),
    "min": _merged_by("min"),
    "max": _merged_by("max"),
    **dict.fromkeys(("bool_and", "every"), _merged_by("bool_and")),
    **dict.fromkeys(("any", "bool_or", "some"), _merged_by("bool_or")),
    "bit_and": _merged_by("bit_and"),
    "bit_or": _merged_by("bit_or"),
    "bit_xor": _merged_by("bit_xor"),
    "any_value": _any_value,
    "avg": _average,
    "mean": _average,
    "approx_count_distinct": _distinct_by_sketch,
    "hll_sketch_agg": _merged_sketch,
    "hll_union_agg": _union_of_sketches,
    "max_by": _by_ordering("max"),
    "min_by": _by_ordering("min"),
}


_OF_DISTINCT = frozenset(
    ("min", "max", "bool_and", "every", "any", "bool_or", "some", "bit_and", "bit_or", "any_value")
)
"""Aggregates that ignore duplicates."""


_BY_ORDER = {
    **dict.fromkeys(("first", "first_value"), "min_by(value, time)"),
    **dict.fromkeys(("last", "last_value"), "max_by(value, time)"),
}
