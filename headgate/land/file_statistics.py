"""What Delta's log says of a file, so that readers can skip it."""

from __future__ import annotations

import json
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
    for field in list(table.schema)[:_MOST_COLUMNS]:
        if pa.types.is_nested(field.type):
            continue
        column = table.column(field.name)
        nulls[field.name] = column.null_count
        if column.null_count == len(column) or not _has_order(field.type):
            continue
        bounds = pc.min_max(column)
        try:
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        except (OverflowError, ValueError):  # a moment beyond Python's calendar
            continue
        if pa.types.is_floating(field.type) and not pc.all(pc.is_finite(column)).as_py():
            continue
        minima[field.name], maxima[field.name] = _lower(low), _upper(high)
    return json.dumps(
        {
            "numRecords": table.num_rows,
            "minValues": minima,
            "maxValues": maxima,
            "nullCount": nulls,
        },
        default=_plain,
        # delta-rs reads the escapes of characters beyond U+1FFFF as other, smaller ones.
        ensure_ascii=False,
    )


def _has_order(kind: pa.DataType) -> bool:
    # JSON readers round decimals with a fraction, and a rounded bound hides rows.
    fraction = pa.types.is_decimal(kind) and kind.scale > 0
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind) or fraction)


def _lower(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """A text cut short must still be no smaller than the whole one."""
    if not isinstance(value, str) or value[_LONGEST_TEXT:][:1] in ("", _LAST_CHARACTER):
        return value
    return value[:_LONGEST_TEXT] + _LAST_CHARACTER


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    return value.isoformat().replace("+00:00", "Z")
