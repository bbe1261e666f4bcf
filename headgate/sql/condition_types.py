"""Types of values in a rule, and the type in which two of them are compared, as Spark has it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa

Value = pa.Array | pa.Scalar
"""A column, or what is the same in every row."""

NOTHING = pa.scalar(None, pa.null())
"""What has no meaning for the types it is asked of is unknown in every row."""
UNKNOWN = pa.scalar(None, pa.bool_())

LARGEST_PRECISION = 38
_MOMENT = pa.timestamp("us", "UTC")
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}

is_integer = pa.types.is_integer
is_floating = pa.types.is_floating
is_decimal = pa.types.is_decimal
is_timestamp = pa.types.is_timestamp
is_date = pa.types.is_date
is_boolean = pa.types.is_boolean
is_text = pa.types.is_string
is_null = pa.types.is_null


def is_numeric(kind: pa.DataType) -> bool:
    return bool(is_integer(kind) or is_floating(kind) or is_decimal(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """One type for all that hold the same kind of values."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if is_timestamp(kind):
        return _MOMENT if kind.tz else pa.timestamp("us")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if types.is_uint64(kind) else pa.int64()
    if is_decimal(kind) and kind.precision <= LARGEST_PRECISION:
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def digits_of(kind: pa.DataType) -> tuple[int, int]:
    """Precision and scale that a whole number or a decimal takes."""
    return (kind.precision, kind.scale) if is_decimal(kind) else (_DIGITS[kind], 0)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    wide = precision > LARGEST_PRECISION
    return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)


def common_type(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """None where values of these types cannot be compared."""
    return reduce(_common, kinds, pa.null())


def _common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None:
        return None
    if one == other or is_null(other):
        return one
    if is_null(one):
        return other
    if is_numeric(one) and is_numeric(other):
        return _common_number(one, other)
    for each, against in ((one, other), (other, one)):
        if is_text(each):
            return _of_text(against)
        if is_timestamp(each) and (is_timestamp(against) or is_date(against)):
            return _MOMENT if is_timestamp(against) else each
    return None


def _common_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if is_floating(one) or is_floating(other):
        return pa.float64()
    if is_integer(one) and is_integer(other):
        return pa.int64()
    (precision, scale), (other_precision, other_scale) = digits_of(one), digits_of(other)
    fraction = max(scale, other_scale)
    return decimal_type(max(precision - scale, other_precision - other_scale) + fraction, fraction)


def _of_text(against: pa.DataType) -> pa.DataType | None:
    """What a text is taken for beside a value that is none."""
    if is_integer(against):
        return pa.int64()
    if is_numeric(against):
        return pa.float64()
    known = is_date(against) or is_timestamp(against) or is_boolean(against)
    return against if known or pa.types.is_binary(against) else None
