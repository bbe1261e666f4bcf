"""Values as they are told, in the type that their column has; null where they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.schema.avro.kinds import PRIMITIVES

_MOMENT = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = (1 << 63) - 1
_LONGEST_NUMBER = 40
_DIGITS = Context(prec=2 * _LONGEST_NUMBER)
_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def converted(raw: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values in the wanted type: numbers may come as text, and the other way round."""
    if raw.type.equals(wanted):
        return raw
    if pa.types.is_list(wanted):
        return _texts(raw)
    if pa.types.is_string(wanted):
        return _text(raw)
    if wanted == _MOMENT:
        return _moment(raw)
    if pa.types.is_integer(raw.type) and pa.types.is_integer(wanted):
        return raw.cast(wanted)
    return _by_text(raw, _number if pa.types.is_integer(wanted) else _truth, wanted)


def _text(raw: pa.Array) -> pa.Array:
    kind = raw.type
    if pa.types.is_struct(kind) and kind.num_fields and PRIMITIVES.issuperset(kind.names):
        return pc.coalesce(*map(_text, raw.flatten()))
    if pa.types.is_nested(kind):
        return pa.nulls(len(raw), pa.string())
    try:
        return raw.cast(pa.string())
    except pa.ArrowException:
        return pa.nulls(len(raw), pa.string())


def _texts(raw: pa.Array) -> pa.Array:
    kind = pa.list_(pa.string())
    if not pa.types.is_list(raw.type):
        return pa.nulls(len(raw), kind)
    values = _text(raw.values)
    if values.null_count > raw.values.null_count:
        return pa.nulls(len(raw), kind)
    mask = raw.is_null() if raw.null_count else None
    return pa.ListArray.from_arrays(raw.offsets, values, type=kind, mask=mask)


def _moment(raw: pa.Array) -> pa.Array:
    """Numbers are milliseconds, and a moment without a zone is one of UTC."""
    kind = raw.type
    try:
        if pa.types.is_timestamp(kind):
            return raw.cast(_MOMENT)
        if pa.types.is_date(kind):
            return raw.cast(pa.timestamp("us")).cast(_MOMENT)
        if pa.types.is_integer(kind):
            millis = raw.cast(pa.int64())
            return pc.multiply_checked(millis, pa.scalar(1_000, pa.int64())).cast(_MOMENT)
        if pa.types.is_string(kind):
            return _iso_moment(raw)
    except pa.ArrowException:
        pass
    return _by_text(raw, _micros, pa.int64()).cast(_MOMENT)


def _iso_moment(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(_MOMENT)
    except pa.ArrowException:
        return raw.cast(pa.timestamp("us")).cast(_MOMENT)


def _by_text(raw: pa.Array, read: Callable[[str], Any], wanted: pa.DataType) -> pa.Array:
    values = [None if text is None else read(text) for text in _text(raw).to_pylist()]
    return pa.array(values, wanted)


def _number(text: str) -> int | None:
    return _whole(text, 0)


def _truth(text: str) -> bool | None:
    return _TRUTHS.get(text.strip().lower())


def _micros(text: str) -> int | None:
    found = _whole(text, 3)
    if found is not None:
        return found
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _whole(text: str, places: int) -> int | None:
    """The number moved by so many places, if it is whole then."""
    if len(text) > _LONGEST_NUMBER or not text.isascii():
        return None
    try:
        number = Decimal(text.strip())
        if abs(number) > _MOST:
            return None
        moved = number.scaleb(places, _DIGITS)
        found = int(moved)
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return found if found == moved and abs(found) <= _MOST else None


def plain_values(array: pa.Array) -> list[Any]:
    """Python's values of an array, and the bare number of a moment that its calendar has not."""
    try:
        found: list[Any] = array.to_pylist()
        return found
    except (ValueError, OverflowError):
        return [plain_value(one) for one in array]


def plain_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        return {name: plain_value(value[name]) for name in value.type.names}
    if pa.types.is_map(value.type):
        return {one["key"].as_py(): plain_value(one["value"]) for one in value.values}
    if pa.types.is_list(value.type):
        return plain_values(value.values)
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.value
