"""Comparisons in a rule: each pair of types in the type that Spark compares them in."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.sql.condition_cast import cast
from headgate.sql.condition_types import (
    NOTHING,
    UNKNOWN,
    Value,
    common_type,
    is_decimal,
    is_floating,
    is_null,
)

_FUNCTIONS = {
    "eq": pc.equal,
    "neq": pc.not_equal,
    "lt": pc.less,
    "lte": pc.less_equal,
    "gt": pc.greater,
    "gte": pc.greater_equal,
}


def alike(values: Sequence[Value]) -> list[Value] | None:
    """All in one type; None where there is none for them."""
    kind = common_type(value.type for value in values)
    return None if kind is None else [cast(value, kind) for value in values]


def compare(key: str, one: Value, other: Value) -> Value:
    """`eq` and its kin; null where either side is."""
    if key in ("nullsafeeq", "nullsafeneq"):
        same = _null_safe(one, other)
        return pc.invert(same) if key == "nullsafeneq" else same
    sides = alike([one, other])
    if sides is None or is_null(sides[0].type) or pa.types.is_nested(sides[0].type):
        return UNKNOWN
    one, other = sides
    if is_floating(one.type):
        return _compare_floating(key, one, other)
    return _FUNCTIONS[key](one, other)


def is_among(value: Value, literals: Sequence[Value]) -> Value:
    """Whether it is in a list; unknown where it is not, but the list has a null."""
    sides = alike([value, *literals])
    if sides is None or is_null(sides[0].type) or pa.types.is_nested(sides[0].type):
        return UNKNOWN
    value, *listed = sides
    known = [each for each in listed if each.is_valid]
    if is_floating(value.type) or is_decimal(value.type):
        found = pa.scalar(False)
        for each in known:
            found = pc.or_kleene(found, compare("eq", value, each))
    else:
        members = pa.array([each.as_py() for each in known], value.type)
        found = pc.is_in(value, value_set=members)
        found = pc.if_else(pc.is_valid(value), found, UNKNOWN)
    return pc.or_kleene(found, UNKNOWN) if len(known) < len(listed) else found


def chosen(condition: Value, then: Value, otherwise: Value) -> Value:
    """The one where it is true, the other where it is false or unknown."""
    sides = alike([then, otherwise])
    if sides is None:
        return NOTHING
    if is_null(sides[0].type):
        return NOTHING
    return pc.if_else(pc.fill_null(truth(condition), False), *sides)


def truth(value: Value) -> Value:
    """What is neither true nor false is unknown."""
    return value if pa.types.is_boolean(value.type) else UNKNOWN


def _null_safe(one: Value, other: Value) -> Value:
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.fill_null(compare("eq", one, other), False))


def _compare_floating(key: str, one: Value, other: Value) -> Value:
    """No number is itself, and more than any other, in Spark."""
    is_odd, is_other_odd = pc.is_nan(one), pc.is_nan(other)
    match key:
        case "eq" | "neq":
            same = pc.or_(pc.equal(one, other), pc.and_(is_odd, is_other_odd))
            return same if key == "eq" else pc.invert(same)
        case "lt":
            return pc.or_(pc.less(one, other), pc.and_(is_other_odd, pc.invert(is_odd)))
        case "lte":
            return pc.or_(pc.less_equal(one, other), is_other_odd)
        case "gt":
            return _compare_floating("lt", other, one)
        case _:
            return _compare_floating("lte", other, one)
