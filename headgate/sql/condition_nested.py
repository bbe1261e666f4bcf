"""Columns in a rule, and what is inside of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.sql.condition_cast import cast
from headgate.sql.condition_types import NOTHING, Value, plain_type


def column(rows: pa.RecordBatch, name: str) -> Value:
    """A column that the table lacks is null."""
    at = _place(name, rows.schema.names)
    return NOTHING if at is None else _plain(rows.column(at))


def field(value: Value, name: str) -> Value:
    """The field of a struct, or the item of a map, of that name."""
    if pa.types.is_map(value.type):
        return item(value, name)
    if not pa.types.is_struct(value.type):
        return NOTHING
    at = _place(name, [each.name for each in value.type])
    return NOTHING if at is None else _plain(pc.struct_field(value, [at]))


def item(value: Value, place: str | int) -> Value:
    """The element of a list at that place, or that of a map with that key; null where none is."""
    kind = value.type
    if pa.types.is_map(kind):
        key = cast(pa.scalar(place), plain_type(kind.key_type))
        if not key.is_valid:
            return NOTHING
        return _plain(pc.map_lookup(value, key.cast(kind.key_type), "last"))
    if not _is_list(kind) or not isinstance(place, int) or place < 0:
        return NOTHING
    starts, lengths = value.offsets.to_numpy()[:-1], np.diff(value.offsets.to_numpy())
    there = value.is_valid().to_numpy(zero_copy_only=False) & (lengths > place)
    return _plain(value.values.take(pa.array(np.where(there, starts + place, 0), mask=~there)))


def size(value: Value) -> Value:
    """Of a list or a map; that of none is unknown."""
    if not (pa.types.is_map(value.type) or _is_list(value.type)):
        return NOTHING
    lengths = pa.array(np.diff(value.offsets.to_numpy()), pa.int64())
    return pc.if_else(value.is_valid(), lengths, pa.scalar(None, pa.int64()))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _place(name: str, names: list[str]) -> int | None:
    """As Spark finds it, whatever the case; one of just this case first."""
    if name in names:
        return names.index(name)
    lower = [each.lower() for each in names]
    return lower.index(name.lower()) if name.lower() in lower else None


def _plain(values: pa.Array) -> pa.Array:
    kind = plain_type(values.type)
    return values if kind == values.type else values.cast(kind, safe=False)
