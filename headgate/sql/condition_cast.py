"""Casts of values in a rule: as Spark does them, but what cannot be cast is null."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.sql.condition_types import (
    NOTHING,
    Value,
    decimal_type,
    digits_of,
    is_boolean,
    is_date,
    is_decimal,
    is_floating,
    is_integer,
    is_null,
    is_numeric,
    is_text,
    is_timestamp,
)

EXACT = Context(prec=160)
"""Enough for every product of two decimals."""

_WHOLE = r"^[+-]?[0-9]{1,40}$"
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})(?:[ T]([0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]*)?)?)"
    r"\s*(Z|UTC|[+-][0-9]{1,2}:[0-9]{2})?)?"
)
_MICROS = 1_000_000
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


def cast(value: Value, kind: pa.DataType) -> Value:
    """Never fails: a value that has no counterpart in that type is null."""
    if value.type == kind:
        return value
    if is_null(value.type):
        return value.cast(kind)
    if isinstance(value, pa.Scalar):
        return _cast_one(value, kind)
    if is_text(value.type):
        return _of_text(value, kind)
    if is_text(kind):
        return _to_text(value)
    if is_integer(kind):
        return _to_integer(value, kind)
    if is_floating(kind):
        return to_double(value).cast(kind, safe=False)
    if is_decimal(kind):
        return _to_decimal(value, kind)
    return _to_other(value, kind)


@lru_cache(maxsize=1024)
def _cast_one(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Literals are the same in every batch."""
    return cast(pa.repeat(value, 1), kind)[0]


def each(values: pa.Array, function: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """One value after the other, for what Arrow does not do or does otherwise."""
    told = [None if value is None else function(value) for value in values.to_pylist()]
    return pa.array(told, kind)


def rounded(number: Decimal, kind: pa.DataType) -> Decimal | None:
    """Half up, as Spark rounds; None where there are not enough digits for it."""
    if not number.is_finite():
        return None
    try:
        found = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
    except InvalidOperation:
        return None
    return found if abs(found) < Decimal(10) ** (kind.precision - kind.scale) else None


def fit_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals in that precision and scale, rounded half up; null where they are too large."""
    digits, scale = digits_of(values.type)
    if kind.scale >= scale and kind.precision - kind.scale >= digits - scale:
        return values.cast(kind)
    return each(values, lambda number: rounded(number, kind), kind)


def to_double(value: pa.Array) -> pa.Array:
    if is_decimal(value.type):
        # Arrow's own way from decimals to doubles is off by a bit now and then.
        return value.cast(pa.string()).cast(pa.float64())
    if is_timestamp(value.type):
        return pc.divide(value.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    if is_boolean(value.type) or is_numeric(value.type):
        return value.cast(pa.float64(), safe=False)
    return pa.nulls(len(value), pa.float64())


def _of_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return texts.cast(kind)
    trimmed = pc.ascii_trim_whitespace(texts)
    if is_integer(kind):
        whole = pc.match_substring_regex(trimmed, _WHOLE)
        kept = pc.if_else(whole, pc.ascii_ltrim(trimmed, "+"), pa.scalar(None, pa.string()))
        return _to_integer(kept.cast(decimal_type(40, 0)), kind)
    if is_boolean(kind):
        return each(trimmed, _truth, kind)
    if is_floating(kind):
        return each(trimmed, _double, pa.float64()).cast(kind, safe=False)
    if is_decimal(kind):
        return each(trimmed, lambda text: _decimal(text, kind), kind)
    if is_date(kind):
        return each(trimmed, _date, kind)
    if is_timestamp(kind):
        return each(trimmed, _moment, pa.timestamp("us", "UTC")).cast(kind)
    return pa.nulls(len(texts), kind)


def _to_text(values: pa.Array) -> Value:
    if is_floating(values.type):
        single = values.type == pa.float32()
        return each(values, lambda number: _java_text(number, single), pa.string())
    if is_decimal(values.type):
        return each(values, lambda number: f"{number:f}", pa.string())
    if is_timestamp(values.type):
        return pc.replace_substring_regex(
            pc.replace_substring_regex(
                values.cast(pa.timestamp("us")).cast(pa.string()), "0+$", ""
            ),
            r"\.$",
            "",
        )
    if is_integer(values.type) or is_boolean(values.type) or is_date(values.type):
        return values.cast(pa.string())
    if pa.types.is_binary(values.type):
        return each(values, lambda value: value.decode("utf-8", "replace"), pa.string())
    return NOTHING


def _to_integer(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if is_timestamp(values.type):
        return _to_integer(_seconds(values.cast(pa.int64())), kind)
    if is_boolean(values.type):
        return values.cast(kind)
    if not is_numeric(values.type):
        return pa.nulls(len(values), kind)
    if is_integer(values.type) and values.type.bit_width <= kind.bit_width:
        return values.cast(kind)
    least, most = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
    if is_floating(values.type):
        whole = pc.trunc(values.cast(pa.float64(), safe=False))
        # The most is no double: the next one is.
        fits = pc.and_(pc.greater_equal(whole, float(least)), pc.less(whole, float(most + 1)))
        return _where(fits, whole).cast(kind, safe=False)
    if is_decimal(values.type):
        whole = pc.trunc(values)
        limits = (pa.scalar(Decimal(each), decimal_type(40, 0)) for each in (least, most))
    else:
        whole, limits = values.cast(pa.int64()), (pa.scalar(each) for each in (least, most))
    low, high = limits
    fits = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    return _where(fits, whole).cast(kind, safe=False)


def _seconds(micros: pa.Array) -> pa.Array:
    """Whole ones, those before the epoch counted downwards."""
    towards_zero = pc.divide(micros, _MICROS)
    is_before = pc.less(micros, pc.multiply(towards_zero, _MICROS))
    return pc.subtract(towards_zero, is_before.cast(pa.int64()))


def _to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if is_boolean(values.type):
        values = values.cast(pa.int8())
    if is_integer(values.type):
        return fit_decimal(values.cast(pa.int64()).cast(pa.decimal128(20, 0)), kind)
    if is_decimal(values.type):
        return fit_decimal(values, kind)
    if is_floating(values.type):
        return each(values, lambda number: rounded(Decimal(repr(number)), kind), kind)
    return pa.nulls(len(values), kind)


def _to_other(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if is_boolean(kind) and is_numeric(values.type):
        return pc.not_equal(to_double(values), 0.0)
    if is_date(kind) and is_timestamp(values.type):
        return values.cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    if is_timestamp(kind) and (is_timestamp(values.type) or is_date(values.type)):
        return values.cast(pa.timestamp("us")).cast(kind)
    return pa.nulls(len(values), kind)


def _where(fits: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(fits, values, pa.scalar(None, values.type))


def _truth(text: str) -> bool | None:
    word = text.lower()
    return word in _TRUE if word in _TRUE | _FALSE else None


def _double(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    sign, word = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    found = _NOT_FINITE.get(word.lower())
    return None if found is None else sign * found


def _decimal(text: str, kind: pa.DataType) -> Decimal | None:
    return rounded(Decimal(text), kind) if _NUMBER.fullmatch(text) else None


def _date(text: str) -> date | None:
    found = _DATE.fullmatch(text)
    try:
        return date(*(int(part or 1) for part in found.groups())) if found else None
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    found = _MOMENT.fullmatch(text)
    day = _date(found[1]) if found else None
    if found is None or day is None:
        return None
    hours, zone = found[2] or "0:0", found[3]
    parts = [part.zfill(2) for part in re.split("[:.]", hours)[:3]]
    fraction = f".{hours.split('.')[1]:0<6.6}" if "." in hours else ""
    offset = "+00:00" if zone in (None, "Z", "UTC") else f"{zone[0]}{zone[1:].zfill(5)}"
    clock = ":".join(parts) + ("" if len(parts) == 3 else ":00")
    try:
        return datetime.fromisoformat(f"{day}T{clock}{fraction}{offset}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _java_text(number: float, single: bool) -> str:
    """A double as Java writes it."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    shortest = _shortest_single(number) if single else repr(number)
    size = abs(number)
    if size == 0 or 1e-3 <= size < 1e7:
        plain = f"{Decimal(shortest):f}"
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _shortest_single(number: float) -> str:
    import numpy as np

    return str(np.float32(number))
