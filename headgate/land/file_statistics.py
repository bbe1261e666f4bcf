"""What Delta's log says of a file, so that readers can skip it."""

from __future__ import annotations

import json
import re
import uuid
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MOST_COLUMNS = 40
_LONGEST_TEXT = 32
_MARK = uuid.uuid4().hex
_EXACT = re.compile(f'"{_MARK}([0-9.-]+){_MARK}"')
"""JSON numbers have any number of digits, Python's have not: a rounded bound would hide rows."""
_LAST_CHARACTER = "\U0010ffff"


def file_statistics(table: pa.Table) -> str:
    """The statistics of a file's rows in the form of a Delta log entry."""
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    all_bounded = True
    for field, column in islice(zip(table.schema, table.columns, strict=True), _MOST_COLUMNS):
        if pa.types.is_nested(field.type):
            continue
        nulls[field.name] = column.null_count
        if column.null_count == len(column) or pa.types.is_binary(field.type):
            continue
        bounds = _bounds(column)
        if bounds is None:
            all_bounded = False
        else:
            minima[field.name], maxima[field.name] = bounds
    known: dict[str, Any] = {"numRecords": table.num_rows, "nullCount": nulls}
    if all_bounded:
        # delta-rs takes a column that has no bounds beside others that do for an empty one.
        known |= {"minValues": minima, "maxValues": maxima}
    # delta-rs reads the escapes of characters beyond U+1FFFF as other, smaller ones.
    text = json.dumps(known, ensure_ascii=False, default=_plain)
    return _EXACT.sub(r"\1", text) if _MARK in text else text


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Values that no other one is below or above; None where JSON has none for them."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None
    least_and_greatest = pc.min_max(column)
    try:
        low, high = least_and_greatest["min"].as_py(), least_and_greatest["max"].as_py()
    except (OverflowError, ValueError):  # a moment beyond Python's calendar
        return None
    return _lower(low), _upper(high)


def _lower(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """A text cut short must still be no smaller than the whole one."""
    if not isinstance(value, str) or value[_LONGEST_TEXT:][:1] in ("", _LAST_CHARACTER):
        return value
    return value[:_LONGEST_TEXT] + _LAST_CHARACTER


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}{_MARK}"
    return str(value.isoformat().replace("+00:00", "Z"))
