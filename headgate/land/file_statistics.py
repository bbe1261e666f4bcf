"""What Delta's log says of a file, so that readers can skip it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MOST_COLUMNS = 40
_LONGEST_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"


def file_statistics(table: pa.Table) -> str:
    """The statistics of a file's rows in the form of a Delta log entry."""
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    all_bounded = True
    for field in list(table.schema)[:_MOST_COLUMNS]:
        if pa.types.is_nested(field.type):
            continue
        column = table.column(field.name)
        nulls[field.name] = column.null_count
        if column.null_count == len(column) or pa.types.is_binary(field.type):
            continue
        bounds = _bounds(column)
        if bounds is None:
            all_bounded = False
        else:
            minima[field.name], maxima[field.name] = bounds
    known: dict[str, Mapping[str, Any]] = {"nullCount": nulls}
    if all_bounded:
        # delta-rs takes a column that has no bounds beside others that do for an empty one.
        known = {"minValues": minima, "maxValues": maxima, **known}
    parts = [f'"{name}": {_json_object(values)}' for name, values in known.items()]
    return f'{{"numRecords": {table.num_rows}, {", ".join(parts)}}}'


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


def _json_object(values: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{_json(name)}: {_json(value)}' for name, value in values.items())}}}"


def _json(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")  # exactly: a rounded bound hides rows
    if isinstance(value, date):
        return f'"{value.isoformat().replace("+00:00", "Z")}"'
    # delta-rs reads the escapes of characters beyond U+1FFFF as other, smaller ones.
    return json.dumps(value, ensure_ascii=False)
