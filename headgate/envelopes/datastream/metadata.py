"""What a file tells of its changes, made the metadata columns of a change log.

A value that cannot be what its column is for is not lost: it stays where the record had it, in
`_more`, with everything that has no column of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.columns import METADATA
from headgate.envelopes.datastream.json_records import json_text
from headgate.formats.avro.types import PRIMITIVES

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


_TOP = {
    "uuid": "_uuid",
    "source_timestamp": "_source_timestamp",
    "read_timestamp": "_read_timestamp",
    "read_method": "_read_method",
    "stream_name": "_stream",
    "object": "_object",
    "schema_key": "_schema_key",
    "sort_keys": "_sort_keys",
}
"""The fields of a record, and their columns."""

_SOURCE = {
    "change_type": "_change_type",
    "is_deleted": "_is_deleted",
    "primary_keys": "_primary_keys",
    "database": "_database",
    "schema": "_schema",
    "table": "_table",
    "log_file": "_log_file",
    "log_position": "_log_position",
    "gtid": "_gtid",
    "scn": "_scn",
    "rs_id": "_rs_id",
    "ssn": "_ssn",
    "row_id": "_row_id",
    "lsn": "_lsn",
    "tx_id": "_tx_id",
    "binlog_file": "_log_file",
    "binlog_position": "_log_position",
    "replication_index": "_primary_keys",
}
"""The fields of its `source_metadata`, and their columns.

Streams of MySQL that follow GTIDs call the place in the log otherwise, and those of SQL Server
the key: the first name that tells something counts.
"""

Place = tuple[str, ...]
"""The names that lead to a value in a record."""

COLUMNS: dict[Place, str] = {
    **{(name,): column for name, column in _TOP.items()},
    **{("source_metadata", name): column for name, column in _SOURCE.items()},
}
_OF_CONTENT = UUID("6f2a7b0e-6a43-5f0c-9d5b-0f1d9a1d3c55")
_DELETIONS = pa.array(["DELETE", "UPDATE-DELETE"])

More = dict[int, dict[str, Any]]
"""Of some rows, what has no column: as it stands in the record."""


def metadata_columns(
    rows: int,
    told: Mapping[Place, pa.Array],
    more: More,
    value_at: Callable[[Place, int], Any],
    contents: Callable[[Sequence[int]], Sequence[bytes]],
) -> pa.RecordBatch:
    """The metadata of so many changes, `told` having what is told at each place.

    `value_at` gives one value back as it was told, and `contents` the bytes of some records.
    """
    columns = {field.name: pa.nulls(rows, field.type) for field in METADATA}
    for place, name in COLUMNS.items():
        raw = told.get(place)
        if raw is None:
            continue
        before = columns[name]
        column = converted(raw, before.type)
        if column.null_count != raw.null_count or before.null_count < rows:
            unused = pc.and_(raw.is_valid(), pc.or_(column.is_null(), before.is_valid()))
            for row in np.flatnonzero(unused).tolist():
                add_more(more, row, place, value_at(place, row))
        columns[name] = column if before.null_count == rows else pc.coalesce(before, column)
    columns["_uuid"] = _uuids(columns["_uuid"], contents)
    columns.update(_kinds(columns))
    columns["_more"] = _more_texts(rows, more)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=METADATA)


def add_more(more: More, row: int, place: Place, value: Any) -> None:
    """Note a value that has no column where the record has it."""
    inside = more.setdefault(row, {})
    for name in place[:-1]:
        inside = inside.setdefault(name, {})
    inside[place[-1]] = value


def _uuids(told: pa.Array, contents: Callable[[Sequence[int]], Sequence[bytes]]) -> pa.Array:
    """Where there is none, one of the record's own content: the same for the same record."""
    missing = pc.fill_null(pc.equal(told, ""), True)
    if not pc.any(missing).as_py():
        return told
    rows = np.flatnonzero(missing).tolist()
    made = [
        str(uuid5(_OF_CONTENT, hashlib.sha256(content).hexdigest())) for content in contents(rows)
    ]
    return pc.replace_with_mask(told, missing, pa.array(made, pa.string()))


def _kinds(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The kind of change and whether it deletes: either can be told by the other alone.

    Oracle's streams call a row that has left its key an UPDATE-DELETE, and not deleted.
    """
    kind, is_deleted = columns["_change_type"], columns["_is_deleted"]
    kind = pc.replace_substring(pc.utf8_upper(kind), "_", "-")
    deletes = pc.is_in(kind, value_set=_DELETIONS)
    is_deleted = pc.or_(is_deleted.fill_null(False), deletes)
    if kind.null_count:
        backfill = pc.match_substring_regex(columns["_read_method"], "(?i)backfill|dump")
        inserted = pc.if_else(pc.fill_null(backfill, False), "INSERT", None)
        kind = pc.coalesce(kind, pc.if_else(is_deleted, "DELETE", inserted))
    return {"_change_type": kind.cast(pa.string()), "_is_deleted": is_deleted}


def _more_texts(rows: int, more: More) -> pa.Array:
    if not more:
        return pa.nulls(rows, pa.string())
    texts = (json_text(more[row]) if row in more else None for row in range(rows))
    return pa.array(texts, pa.string(), size=rows)
