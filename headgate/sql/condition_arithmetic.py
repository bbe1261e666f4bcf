"""Sums, products and rounding in a rule: exact where Spark is, and null where it would fail."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.sql.condition_cast import EXACT, cast, each, fit_decimal, rounded
from headgate.sql.condition_types import (
    LARGEST_PRECISION,
    NOTHING,
    Value,
    common_type,
    decimal_type,
    digits_of,
    is_decimal,
    is_floating,
    is_integer,
    is_numeric,
    is_text,
)

_SMALLEST_FRACTION = 6
_CHECKED = {"add": pc.add_checked, "sub": pc.subtract_checked, "mul": pc.multiply_checked}
_FLOATING = {"add": pc.add, "sub": pc.subtract, "mul": pc.multiply}
_EXACT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "add": EXACT.add,
    "sub": EXACT.subtract,
    "mul": EXACT.multiply,
    "div": EXACT.divide,
    "mod": EXACT.remainder,
}


def calculate(sign: str, one: Value, other: Value) -> Value:
    """`add`, `sub`, `mul`, `div` or `mod` of two numbers, or of texts that stand for some."""
    one, other = _number(one, other), _number(other, one)
    if not (is_numeric(one.type) and is_numeric(other.type)):
        return NOTHING
    if isinstance(one, pa.Scalar) and isinstance(other, pa.Scalar):
        return calculate(sign, pa.repeat(one, 1), other)[0]
    rows = len(other) if isinstance(one, pa.Scalar) else len(one)
    kind = common_type([one.type, other.type])
    if is_decimal(kind):
        return _of_decimals(sign, _as_decimal(one, rows), _as_decimal(other, rows))
    if sign == "div" and kind == pa.int64():
        kind = pa.float64()
    return _of_numbers(sign, _column(cast(one, kind), rows), _column(cast(other, kind), rows))


def negative(value: Value) -> Value:
    return calculate("sub", pa.scalar(0, pa.int8()), value)


def absolute(value: Value) -> Value:
    value = _number(value, value)
    if not is_numeric(value.type):
        return NOTHING
    if is_integer(value.type):
        below = pc.less(value, pa.scalar(0, value.type))
        return pc.if_else(below, negative(value), value.cast(pa.int64()))
    return pc.abs(value)


def round_to(value: Value, digits: int) -> Value:
    """Half up; a double by the digits that it is written with."""
    if isinstance(value, pa.Scalar):
        return round_to(pa.repeat(value, 1), digits)[0]
    value = _number(value, value)
    if is_floating(value.type):
        if digits == 0:
            return pc.round(value, 0, "half_towards_infinity")
        return each(value, lambda number: _rounded_double(number, digits), pa.float64())
    if not is_numeric(value.type) or (is_integer(value.type) and digits >= 0):
        return value if is_numeric(value.type) else NOTHING
    precision, scale = digits_of(value.type)
    kind = decimal_type(min(precision + 1, 76), max(0, min(scale, digits)))
    unit = Decimal(1).scaleb(-digits)
    return each(
        value,
        lambda number: rounded(
            EXACT.multiply(
                EXACT.divide(Decimal(number), unit).quantize(Decimal(1), ROUND_HALF_UP, EXACT), unit
            ),
            kind,
        ),
        kind,
    )


def whole(value: Value, upwards: bool) -> Value:
    value = _number(value, value)
    if not is_numeric(value.type) or is_integer(value.type):
        return value if is_numeric(value.type) else NOTHING
    if is_decimal(value.type):
        # Nine and a half becomes ten, which has a digit more.
        precision, scale = digits_of(value.type)
        value = value.cast(decimal_type(min(precision + 1, 76), scale))
    return pc.ceil(value) if upwards else pc.floor(value)


def _number(value: Value, beside: Value) -> Value:
    if pa.types.is_null(value.type):
        return value.cast(beside.type if is_numeric(beside.type) else pa.float64())
    if not is_text(value.type):
        return value
    return cast(value, pa.int64() if is_integer(beside.type) else pa.float64())


def _column(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def _as_decimal(value: Value, rows: int) -> pa.Array:
    """A whole number in as many digits as its type may need, a literal in those it has."""
    precision, scale = digits_of(value.type)
    if is_integer(value.type) and isinstance(value, pa.Scalar) and value.is_valid:
        precision = len(str(abs(value.as_py())))
    if precision > LARGEST_PRECISION:
        precision, scale = _bounded(precision, scale)
    return _column(cast(value, decimal_type(precision, scale)), rows)


def _of_numbers(sign: str, one: pa.Array, other: pa.Array) -> pa.Array:
    if sign in ("div", "mod"):
        zero = pa.scalar(0, other.type)
        other = pc.if_else(pc.equal(other, zero), pa.scalar(None, other.type), other)
        if sign == "div":
            return pc.divide(one, other)
        known = pc.and_(one.is_valid(), other.is_valid())
        left, right = (
            pc.if_else(known, side, pa.scalar(1, side.type)).to_numpy(zero_copy_only=False)
            for side in (one, other)
        )
        with np.errstate(invalid="ignore"):
            found = np.fmod(left, right)
        return pc.if_else(known, pa.array(found, one.type), pa.scalar(None, one.type))
    if is_floating(one.type):
        return _FLOATING[sign](one, other)
    try:
        return _CHECKED[sign](one, other)
    except pa.ArrowInvalid:
        exact = _pairs(one, other, _PLAIN[sign])
        fits = [None if number is None or not _is_long(number) else number for number in exact]
        return pa.array(fits, pa.int64())


def _of_decimals(sign: str, one: pa.Array, other: pa.Array) -> pa.Array:
    kind = _result(sign, *digits_of(one.type), *digits_of(other.type))
    if sign in _CHECKED:
        try:
            wide = [side.cast(pa.decimal256(*digits_of(side.type))) for side in (one, other)]
            return fit_decimal(_FLOATING[sign](*wide), kind)
        except pa.ArrowInvalid:
            pass
    exact = _EXACT[sign]

    def compute(left: Decimal, right: Decimal) -> Decimal | None:
        return None if not right and sign in ("div", "mod") else rounded(exact(left, right), kind)

    return pa.array(_pairs(one, other, compute), kind)


def _result(sign: str, precision: int, scale: int, other: int, other_scale: int) -> pa.DataType:
    """Spark's rules for the digits of a result."""
    whole, other_whole, fraction = precision - scale, other - other_scale, max(scale, other_scale)
    match sign:
        case "mul":
            digits = precision + other + 1, scale + other_scale
        case "div":
            found = max(_SMALLEST_FRACTION, scale + other + 1)
            digits = whole + other_scale + found, found
        case "mod":
            digits = min(whole, other_whole) + fraction, fraction
        case _:
            digits = max(whole, other_whole) + fraction + 1, fraction
    return decimal_type(*_bounded(*digits))


def _bounded(precision: int, scale: int) -> tuple[int, int]:
    """Too many digits cost fractions first, but for the first six."""
    if precision <= LARGEST_PRECISION:
        return max(precision, 1), scale
    least = min(scale, _SMALLEST_FRACTION)
    return LARGEST_PRECISION, max(LARGEST_PRECISION - (precision - scale), least)


def _pairs(one: pa.Array, other: pa.Array, function: Callable[[Any, Any], Any]) -> list[Any]:
    pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
    return [None if None in pair else function(*pair) for pair in pairs]


_PLAIN: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def _is_long(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def _rounded_double(number: float, digits: int) -> float:
    if not np.isfinite(number):
        return number
    unit = Decimal(1).scaleb(-digits)
    steps = EXACT.divide(Decimal(repr(number)), unit)
    if abs(steps.adjusted()) > 100:
        return number if steps.adjusted() > 0 else 0.0
    return float(EXACT.multiply(steps.quantize(Decimal(1), ROUND_HALF_UP, EXACT), unit))
