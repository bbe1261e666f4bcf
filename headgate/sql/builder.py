"""Builds expressions in DataFusion's SQL that mean what they mean in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.sql.casts import NOTHING, UNKNOWN, Value, cast, double_literal
from headgate.sql.types import BIGINT, BOOLEAN, DOUBLE, NULL, TEXT, Type, TypeFamily, common_type

COMPARISONS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
"""By the key of an expression."""


@dataclass
class Builder:
    """Builds the expressions of a query; `steps` are computed first, each over those before it."""

    fold: Callable[[Value], Value] = lambda value: value
    """Computes a value that is the same in every row."""
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Names and SQL of values that are used more than once."""

    def cast(self, value: Value, to: Type) -> Value:
        found = cast(value, to)
        return self.fold(found) if isinstance(value.literal, str) and found.type == to else found

    def once(self, value: Value) -> Value:
        """Return a value that can be used several times at the cost of one."""
        if value.is_cheap:
            return value
        for name, sql in self.steps:
            if sql == value.sql:
                return Value(name, value.type, is_column=True)
        name = f"v{len(self.steps)}"
        self.steps.append((name, value.sql))
        return Value(name, value.type, is_column=True)

    def number(self, value: Value, beside: Value) -> Value:
        """Return a text as the number that it stands for."""
        if value.type.kind is TypeFamily.TEXT:
            return self.cast(value, BIGINT if beside.type.kind is TypeFamily.INTEGER else DOUBLE)
        return value

    def text(self, value: Value) -> Value | None:
        """Return a value as it is written; None if it cannot be."""
        found = self.cast(value, TEXT)
        return found if found.type == TEXT else None

    def compared(self, operator: str, one: Value, other: Value) -> Value:
        """Compare by `eq`, `lt`, …; null where a side is, or where the types have no order."""
        sides = self.alike([one, other])
        if sides is None:
            return UNKNOWN
        one, other = sides
        return Value(f"({one.sql} {COMPARISONS[operator]} {other.sql})", BOOLEAN)

    def same(self, one: Value, other: Value) -> Value:
        """Compare with null as a value like others."""
        one, other = self.once(one), self.once(other)
        both_null = f"({one.sql} IS NULL AND {other.sql} IS NULL)"
        # A text that has no counterpart in the type of the other side is null only there.
        return Value(f"({both_null} OR {self.compared('eq', one, other).sql} IS TRUE)", BOOLEAN)

    def alike(self, values: Sequence[Value]) -> list[Value] | None:
        """Return values in the type in which they are compared, if there is one."""
        kind = common_type(value.type for value in values)
        if kind is None or not kind.is_comparable:
            return None
        return [_ordered(value, self.cast(value, kind)) for value in values]

    def chosen(self, branches: Sequence[tuple[Value | None, Value]]) -> Value:
        """Return CASE: the value of the first condition that is true, or of the one without."""
        kind = common_type(value.type for _, value in branches)
        if kind is None or kind == NULL:
            return NOTHING
        parts = [
            f"ELSE {self.cast(value, kind).sql}"
            if condition is None
            else f"WHEN {condition.sql} THEN {self.cast(value, kind).sql}"
            for condition, value in branches
        ]
        return Value(f"CASE {' '.join(parts)} END", kind)


def _ordered(value: Value, converted: Value) -> Value:
    """NaN equals NaN and sorts above all numbers, and there is one zero, once these are unified."""
    is_float = converted.type.kind is TypeFamily.FLOAT and value.type.kind in (
        TypeFamily.FLOAT,
        TypeFamily.TEXT,
    )
    if not is_float or converted.literal is not None:
        return converted
    zero = cast(double_literal(0.0), converted.type)
    nan = f"CAST('NaN' AS {converted.type.sql})"
    return Value(f"nanvl({converted.sql} + {zero.sql}, {nan})", converted.type)
