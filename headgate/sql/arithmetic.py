"""Arithmetic of rules in DataFusion's SQL: exact where Spark is, and null where it would fail."""

from __future__ import annotations

from decimal import Decimal

from headgate.sql.builder import Builder
from headgate.sql.casts import NOTHING, ROUND, Value, double_literal, number_literal
from headgate.sql.types import (
    BIGINT,
    DOUBLE,
    MAX_PRECISION,
    MAX_WIDE_PRECISION,
    Type,
    TypeFamily,
    arithmetic_type,
    bounded,
    common_type,
    decimal,
)

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
"""By the key of an expression."""
_DIVISION_DIGITS = 4
"""Digits that a division in DataFusion adds to the scale of the dividend."""


def calculate(build: Builder, operator: str, one: Value, other: Value) -> Value:
    one, other = build.number(one, other), build.number(other, one)
    if not (one.type.is_numeric and other.type.is_numeric):
        return NOTHING
    kind = common_type([one.type, other.type])
    if kind is None or kind.kind is TypeFamily.DECIMAL:
        return _of_decimals(build, operator, one, other)
    if kind.kind is TypeFamily.INTEGER and operator == "div":
        kind = DOUBLE
    if kind.kind is TypeFamily.INTEGER:
        return _of_integers(build, operator, one, other)
    left, right = (build.cast(each, kind).sql for each in (one, other))
    if operator in ("div", "mod"):
        zero = f"CAST('0' AS {kind.sql})"
        right = f"nullif({right} + {zero}, {zero})"
    return Value(f"({left} {OPERATORS[operator]} {right})", kind)


def _of_integers(build: Builder, operator: str, one: Value, other: Value) -> Value:
    """DataFusion wraps around on overflow, but not in decimals."""
    left, right = (build.cast(each, BIGINT).sql for each in (one, other))
    if operator == "mod":
        return Value(f"({left} % nullif({right}, 0))", BIGINT)
    sign = OPERATORS[operator]
    if _is_short(one) and _is_short(other):
        return Value(f"({left} {sign} {right})", BIGINT)
    wide = f"CAST({left} AS DECIMAL(20, 0)) {sign} CAST({right} AS DECIMAL(20, 0))"
    return Value(f"TRY_CAST({wide} AS BIGINT)", BIGINT)


def _is_short(value: Value) -> bool:
    """Whether it has 32 bits at most, so that sums and products of two have 64."""
    is_small = isinstance(value.literal, int) and abs(value.literal) < 1 << 31
    return is_small or value.type.bits <= 32


def _of_decimals(build: Builder, operator: str, one: Value, other: Value) -> Value:
    one, other = _as_decimal(build, one), _as_decimal(build, other)
    kind = arithmetic_type(operator, one.type.digits, other.type.digits)
    if operator == "div":
        return _quotient(build, one, other, kind)
    aligned = common_type([one.type, other.type])
    if kind.precision == MAX_PRECISION or (aligned and aligned.precision > MAX_PRECISION):
        one, other = _wide(one), _wide(other)
    divisor = _nonzero(other) if operator == "mod" else other.sql
    return Value(f"TRY_CAST({one.sql} {OPERATORS[operator]} {divisor} AS {kind.sql})", kind)


def _quotient(build: Builder, one: Value, other: Value, kind: Type) -> Value:
    """Divide to a digit more than the result has, and round that half up."""
    needed = kind.scale + 1 - _DIVISION_DIGITS
    if (surplus := one.type.scale - needed) > 0:
        # Digits that the result does not need could be too many for the division.
        one = _shifted(one, surplus)
        other = _shifted(other, surplus)
    precision, scale = one.type.digits
    room = MAX_WIDE_PRECISION - needed - _DIVISION_DIGITS - other.type.scale
    if precision - scale > room:
        one = build.once(one)
        fits = f"abs({_wide(one).sql}) < {_power_of_ten(room)}"
        one = Value(f"CASE WHEN {fits} THEN {one.sql} END", one.type)
    dividend = f"CAST({one.sql} AS DECIMAL({MAX_WIDE_PRECISION}, {needed}))"
    return Value(f"TRY_CAST({dividend} / {_nonzero(_wide(other))} AS {kind.sql})", kind)


def _shifted(value: Value, digits: int) -> Value:
    """Return the value times a power of ten, with as many digits less in its fraction."""
    precision, scale = value.type.digits
    kind = decimal(max(precision, precision - scale + digits), max(scale - digits, 0))
    return Value(f"CAST({_wide(value).sql} * {_power_of_ten(digits)} AS {kind.sql})", kind)


def _power_of_ten(exponent: int) -> str:
    return f"CAST('1{'0' * exponent}' AS DECIMAL({MAX_WIDE_PRECISION}, 0))"


def _wide(value: Value) -> Value:
    kind = decimal(MAX_WIDE_PRECISION, value.type.scale)
    return Value(f"CAST({value.sql} AS {kind.sql})", kind)


def _nonzero(value: Value) -> str:
    return f"nullif({value.sql}, CAST('0' AS {value.type.sql}))"


def _as_decimal(build: Builder, value: Value) -> Value:
    """An integer in as many digits as its type may need, a literal in those it has."""
    precision, scale = value.type.digits
    if isinstance(value.literal, int):
        precision = len(str(abs(value.literal)))
    return build.cast(value, bounded(precision, scale))


def negate(build: Builder, value: Value) -> Value:
    match value.literal:
        case int() | Decimal():
            return number_literal(-value.literal)
        case float():
            return double_literal(-value.literal)
    value = build.number(value, value)
    if value.type.kind is TypeFamily.INTEGER:
        return _of_integers(build, "sub", number_literal(0), value)
    return Value(f"(- {value.sql})", value.type) if value.type.is_numeric else NOTHING


def absolute(build: Builder, value: Value) -> Value:
    value = build.number(value, value)
    if value.type.kind is TypeFamily.INTEGER:
        wide = f"abs(CAST({value.sql} AS DECIMAL(20, 0)))"
        return Value(f"TRY_CAST({wide} AS BIGINT)", BIGINT)
    return Value(f"abs({value.sql})", value.type) if value.type.is_numeric else NOTHING


def round_to_integer(build: Builder, function: str, value: Value) -> Value:
    """Apply `floor` or `ceil`; nine and a half becomes ten, which has a digit more."""
    value = build.number(value, value)
    if not value.type.is_numeric or value.type.kind is TypeFamily.INTEGER:
        return value if value.type.is_numeric else NOTHING
    if value.type.kind is TypeFamily.DECIMAL:
        value = build.cast(value, _with_a_digit_more(value.type, value.type.scale))
    return Value(f"{function}({value.sql})", value.type)


def round_half_up(build: Builder, value: Value, digits: int) -> Value:
    value = build.number(value, value)
    if value.type.kind is TypeFamily.FLOAT:
        double = build.cast(value, DOUBLE).sql
        return Value(f"{ROUND}({double}, {digits})" if digits else f"round({double})", DOUBLE)
    if not value.type.is_numeric or (value.type.kind is TypeFamily.INTEGER and digits >= 0):
        return value if value.type.is_numeric else NOTHING
    _, scale = value.type.digits
    kind = _with_a_digit_more(value.type, max(0, min(scale, digits)))
    if digits >= 0:
        return build.cast(value, kind)
    digits = min(-digits, MAX_PRECISION + 1)
    unit = _power_of_ten(digits)
    units = f"CAST({value.sql} AS DECIMAL({MAX_WIDE_PRECISION}, {scale})) / {unit}"
    return Value(f"TRY_CAST(CAST({units} AS DECIMAL(40, 0)) * {unit} AS {kind.sql})", kind)


def _with_a_digit_more(kind: Type, scale: int) -> Type:
    return decimal(min(kind.digits[0] + 1, MAX_WIDE_PRECISION), scale)
