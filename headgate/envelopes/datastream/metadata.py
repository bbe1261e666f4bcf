"""Conversion of the metadata in change records to the metadata columns of a change log.

A value that its column cannot hold is not lost: it is kept in `_more`, under its original name,
with everything else that has no column of its own.
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

from headgate.envelopes.datastream.changes import METADATA
from headgate.envelopes.datastream.json_records import json_text
from headgate.formats.avro.types import PRIMITIVES

_RECORD_FIELDS = {
    "uuid": "_uuid",
    "source_timestamp": "_source_timestamp",
    "read_timestamp": "_read_timestamp",
    "read_method": "_read_method",
    "stream_name": "_stream",
    "object": "_object",
    "schema_key": "_schema_key",
    "sort_keys": "_sort_keys",
}
"""The columns of a record's own fields."""

_SOURCE_FIELDS = {
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
"""The columns of the fields in `source_metadata`.

MySQL streams that follow GTIDs have other names for the log position, and SQL Server streams
for the key; the first field with a value wins.
"""

FieldPath = tuple[str, ...]
"""The names that lead to a value in a record."""

COLUMNS: dict[FieldPath, str] = {
    **{(name,): column for name, column in _RECORD_FIELDS.items()},
    **{("source_metadata", name): column for name, column in _SOURCE_FIELDS.items()},
}
_CONTENT_NAMESPACE = UUID("6f2a7b0e-6a43-5f0c-9d5b-0f1d9a1d3c55")
_DELETIONS = pa.array(["DELETE", "UPDATE-DELETE"])

Extras = dict[int, dict[str, Any]]
"""Values without a column, by row and in the structure of the record."""


def metadata_columns(
    rows: int,
    values: Mapping[FieldPath, pa.Array],
    extras: Extras,
    value_at: Callable[[FieldPath, int], Any],
    contents: Callable[[Sequence[int]], Sequence[bytes]],
) -> pa.RecordBatch:
    """Return the metadata of changes from the `values` of their fields.

    `value_at` returns an original value for `_more`, and `contents` the bytes of some records.
    """
    columns = {field.name: pa.nulls(rows, field.type) for field in METADATA}
    for path, name in COLUMNS.items():
        raw = values.get(path)
        if raw is None:
            continue
        previous = columns[name]
        column = coerce(raw, previous.type)
        if column.null_count != raw.null_count or previous.null_count < rows:
            unused = pc.and_(raw.is_valid(), pc.or_(column.is_null(), previous.is_valid()))
            for row in np.flatnonzero(unused).tolist():
                add_extra(extras, row, path, value_at(path, row))
        columns[name] = column if previous.null_count == rows else pc.coalesce(previous, column)
    columns["_uuid"] = _with_content_uuids(columns["_uuid"], contents)
    columns.update(_change_types(columns))
    columns["_more"] = _json_texts(rows, extras)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=METADATA)


def add_extra(extras: Extras, row: int, path: FieldPath, value: Any) -> None:
    """Keep a value that has no column."""
    parent = extras.setdefault(row, {})
    for name in path[:-1]:
        parent = parent.setdefault(name, {})
    parent[path[-1]] = value


def _with_content_uuids(
    uuids: pa.Array, contents: Callable[[Sequence[int]], Sequence[bytes]]
) -> pa.Array:
    """Fill missing uuids from the content, so that the same record gets the same uuid again."""
    missing = pc.fill_null(pc.equal(uuids, ""), True)
    if not pc.any(missing).as_py():
        return uuids
    rows = np.flatnonzero(missing).tolist()
    digests = [hashlib.sha256(content).hexdigest() for content in contents(rows)]
    filled = [str(uuid5(_CONTENT_NAMESPACE, digest)) for digest in digests]
    return pc.replace_with_mask(uuids, missing, pa.array(filled, pa.string()))


def _change_types(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Complete the change type and the deletion flag from each other.

    Oracle streams report a row that left its key as an UPDATE-DELETE that is not deleted.
    """
    change_type, is_deleted = columns["_change_type"], columns["_is_deleted"]
    change_type = pc.replace_substring(pc.utf8_upper(change_type), "_", "-")
    deletes = pc.is_in(change_type, value_set=_DELETIONS)
    is_deleted = pc.or_(is_deleted.fill_null(False), deletes)
    if change_type.null_count:
        backfill = pc.match_substring_regex(columns["_read_method"], "(?i)backfill|dump")
        inserted = pc.if_else(pc.fill_null(backfill, False), "INSERT", None)
        change_type = pc.coalesce(change_type, pc.if_else(is_deleted, "DELETE", inserted))
    return {"_change_type": change_type.cast(pa.string()), "_is_deleted": is_deleted}


def _json_texts(rows: int, extras: Extras) -> pa.Array:
    if not extras:
        return pa.nulls(rows, pa.string())
    texts = (json_text(extras[row]) if row in extras else None for row in range(rows))
    return pa.array(texts, pa.string(), size=rows)


def python_values(array: pa.Array) -> list[Any]:
    """Return the values of an array; timestamps beyond Python's range as integers."""
    try:
        values: list[Any] = array.to_pylist()
        return values
    except (ValueError, OverflowError):
        return [python_value(scalar) for scalar in array]


def python_value(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {name: python_value(scalar[name]) for name in scalar.type.names}
    if pa.types.is_map(scalar.type):
        return {entry["key"].as_py(): python_value(entry["value"]) for entry in scalar.values}
    if pa.types.is_list(scalar.type):
        return python_values(scalar.values)
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


_TIMESTAMP = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_LONG = (1 << 63) - 1
_MAX_NUMBER_LENGTH = 40
_DECIMAL_CONTEXT = Context(prec=2 * _MAX_NUMBER_LENGTH)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def coerce(raw: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert values to the type of their column, from text too; null where that fails."""
    if raw.type.equals(target):
        return raw
    if pa.types.is_list(target):
        return _to_string_lists(raw)
    if pa.types.is_string(target):
        return _to_strings(raw)
    if target == _TIMESTAMP:
        return _to_timestamps(raw)
    if pa.types.is_integer(raw.type) and pa.types.is_integer(target):
        return raw.cast(target)
    return _parse_each(raw, _parse_long if pa.types.is_integer(target) else _parse_boolean, target)


def _to_strings(raw: pa.Array) -> pa.Array:
    if _is_union_of_primitives(raw.type):
        return pc.coalesce(*map(_to_strings, raw.flatten()))
    if pa.types.is_nested(raw.type):
        return pa.nulls(len(raw), pa.string())
    try:
        return raw.cast(pa.string())
    except pa.ArrowException:
        return pa.nulls(len(raw), pa.string())


def _is_union_of_primitives(data_type: pa.DataType) -> bool:
    """Whether a struct has the field names that an Avro union of primitive types gets."""
    if not pa.types.is_struct(data_type) or not data_type.num_fields:
        return False
    return PRIMITIVES.issuperset(data_type.names)


def _to_string_lists(raw: pa.Array) -> pa.Array:
    target = pa.list_(pa.string())
    if not pa.types.is_list(raw.type):
        return pa.nulls(len(raw), target)
    values = _to_strings(raw.values)
    if values.null_count > raw.values.null_count:
        return pa.nulls(len(raw), target)
    mask = raw.is_null() if raw.null_count else None
    return pa.ListArray.from_arrays(raw.offsets, values, type=target, mask=mask)


def _to_timestamps(raw: pa.Array) -> pa.Array:
    """Convert to timestamps; integers are milliseconds, and values without a zone are UTC."""
    try:
        if pa.types.is_timestamp(raw.type):
            return raw.cast(_TIMESTAMP)
        if pa.types.is_date(raw.type):
            return raw.cast(pa.timestamp("us")).cast(_TIMESTAMP)
        if pa.types.is_integer(raw.type):
            millis = raw.cast(pa.int64())
            return pc.multiply_checked(millis, pa.scalar(1_000, pa.int64())).cast(_TIMESTAMP)
        if pa.types.is_string(raw.type):
            return _parse_iso_timestamps(raw)
    except pa.ArrowException:
        pass
    return _parse_each(raw, _parse_micros, pa.int64()).cast(_TIMESTAMP)


def _parse_iso_timestamps(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(_TIMESTAMP)
    except pa.ArrowException:
        return raw.cast(pa.timestamp("us")).cast(_TIMESTAMP)


def _parse_each(raw: pa.Array, parse: Callable[[str], Any], target: pa.DataType) -> pa.Array:
    values = [None if text is None else parse(text) for text in _to_strings(raw).to_pylist()]
    return pa.array(values, target)


def _parse_long(text: str) -> int | None:
    return _parse_scaled(text, 0)


def _parse_boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.strip().lower())


def _parse_micros(text: str) -> int | None:
    micros = _parse_scaled(text, 3)
    if micros is not None:
        return micros
    try:
        timestamp = datetime.fromisoformat(text.strip())
        timestamp = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
        return (timestamp - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _parse_scaled(text: str, exponent: int) -> int | None:
    """Return a number times ten to the exponent, if that is a 64-bit integer."""
    if len(text) > _MAX_NUMBER_LENGTH or not text.isascii():
        return None
    try:
        number = Decimal(text.strip())
        if abs(number) > _MAX_LONG:
            return None
        scaled = number.scaleb(exponent, _DECIMAL_CONTEXT)
        integer = int(scaled)
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return integer if integer == scaled and abs(integer) <= _MAX_LONG else None
