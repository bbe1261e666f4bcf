"""What a file tells of its changes, made the metadata columns of a change log.

A value that cannot be what its column is for is not lost: it stays where the record had it, in
`_more`, with everything that has no column of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelope.datastream.columns import METADATA
from headgate.envelope.datastream.json_text import json_text
from headgate.envelope.datastream.told_values import converted

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
