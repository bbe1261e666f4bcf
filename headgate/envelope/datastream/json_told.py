"""What JSON records tell of their changes, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.envelope.datastream.columns import METADATA
from headgate.envelope.datastream.json_columns import values_by_name
from headgate.envelope.datastream.json_records import JsonRecord
from headgate.envelope.datastream.json_text import json_text
from headgate.envelope.datastream.told_metadata import (
    COLUMNS,
    More,
    Place,
    add_more,
    metadata_columns,
)

_PARTS = {("source_metadata",), ("payload",)}
_ALIKE = {str: pa.string(), bool: pa.bool_(), int: pa.int64()}


def told_by(records: Sequence[JsonRecord]) -> pa.RecordBatch:
    """The metadata of records that have a source table each."""
    values = [one.value or {} for one in records]
    sources = [one["source_metadata"] for one in values]
    told: dict[Place, pa.Array] = {}
    more: More = {}
    for above, holders in (((), values), (("source_metadata",), sources)):
        for name, found in values_by_name(holders).items():
            kinds = set(map(type, found)) - {NoneType}
            place = (*above, name)
            if not kinds or place in _PARTS:
                continue
            if place not in COLUMNS:
                _note(more, place, found)
            elif pa.types.is_list(METADATA.field(COLUMNS[place]).type):
                told[place] = _lists(found, kinds, place, more)
            else:
                told[place] = _scalars(found, kinds, place, more)

    def value_at(place: Place, row: int) -> Any:
        return (values if len(place) == 1 else sources)[row][place[-1]]

    return metadata_columns(
        len(records), told, more, value_at, lambda rows: [records[row].content for row in rows]
    )


def _scalars(found: list[Any], kinds: set[type], place: Place, more: More) -> pa.Array:
    """As they are if they are of one kind, else as text: every column can be read from that."""
    if len(kinds) == 1:
        try:
            return pa.array(found, _ALIKE[next(iter(kinds))])
        except (KeyError, OverflowError, pa.ArrowInvalid):
            pass
    for row, one in enumerate(found):
        if isinstance(one, list | dict):
            add_more(more, row, place, one)
    return pa.array([_scalar_text(one) for one in found], pa.string())


def _lists(found: list[Any], kinds: set[type], place: Place, more: More) -> pa.Array:
    for row, one in enumerate(found if kinds != {list} else ()):
        if one is not None and not isinstance(one, list):
            add_more(more, row, place, one)
            found[row] = None
    sizes = [0 if one is None else len(one) for one in found]
    items = list(chain.from_iterable(filter(None, found)))
    if set(map(type, items)) != {str}:
        items = [item if type(item) is str else _text(item) for item in items]
    ends = np.cumsum([0, *sizes], dtype=np.int32)
    mask = pa.array([one is None for one in found])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(items, pa.string()), mask=mask)


def _scalar_text(value: Any) -> str | None:
    return None if isinstance(value, list | dict) else _text(value)


def _text(value: Any) -> str | None:
    if type(value) is int:
        return str(value)
    return value if value is None or isinstance(value, str) else json_text(value)


def _note(more: More, place: Place, found: list[Any]) -> None:
    for row, value in enumerate(found):
        if value is not None:
            add_more(more, row, place, value)
