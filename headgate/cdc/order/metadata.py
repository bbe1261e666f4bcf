"""The columns of metadata that orders are made of."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.changes import METADATA

_NEEDED = pa.schema(
    METADATA.field(name)
    for name in (
        "_uuid",
        "_change_type",
        "_source_timestamp",
        "_read_method",
        "_sort_keys",
        "_log_file",
        "_log_position",
        "_gtid",
        "_scn",
        "_rs_id",
        "_ssn",
        "_lsn",
    )
)


def needed_columns(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Changes with just what orders are made of, each column in its own type; null if not told."""
    there = set(changes.schema.names)
    return pa.record_batch(
        [
            changes.column(column.name).cast(column.type)
            if column.name in there
            else pa.nulls(len(changes), column.type)
            for column in _NEEDED
        ],
        schema=_NEEDED,
    )


def told(changes: pa.RecordBatch, name: str, sort_key: int) -> pa.Array:
    """A column as text; where it is null or empty, what the sort keys say at that place."""
    texts = changes.column(name).cast(pa.string())
    empty = pc.equal(pc.binary_length(texts), 0).fill_null(True)
    if not pc.any(empty).as_py():
        return texts
    return pc.if_else(empty, sort_key_at(changes, sort_key), texts)


def sort_key_at(changes: pa.RecordBatch, place: int) -> pa.Array:
    """One of the sort keys of each change; null where there are fewer."""
    keys = changes.column("_sort_keys")
    starts = keys.offsets[:-1]
    there = pc.greater(pc.list_value_length(keys), place)
    key = keys.values.take(pc.if_else(there, pc.add(starts, place), None))
    return pc.if_else(pc.equal(pc.binary_length(key), 0), None, key)


class Reading(IntEnum):
    """What an order is made of depends on this."""

    UNKNOWN = 0
    BACKFILL = 1
    MYSQL = 2
    ORACLE = 3
    POSTGRESQL = 4
    SQLSERVER = 5


SOURCES = {
    Reading.MYSQL: r"\A(mysql|mariadb)[-_]",
    Reading.ORACLE: r"\Aoracle[-_]",
    Reading.POSTGRESQL: r"\Apostgres",
    Reading.SQLSERVER: r"\Asqlserver[-_]",
}
_BACKFILL = "backfill|dump"
_OF_ANY_SOURCE = r"\A(cdc|backfill)\z"


def rows_by_reading(changes: pa.RecordBatch) -> dict[Reading, np.ndarray]:
    """The rows that were read in each way; all rows stand under one."""
    methods = changes.column("_read_method").dictionary_encode()
    sources = [_matches(methods.dictionary, pattern) for pattern in SOURCES.values()]
    of_any = _matches(methods.dictionary, _OF_ANY_SOURCE)
    backfill = _matches(methods.dictionary, _BACKFILL) & np.logical_or.reduce([*sources, of_any])
    readings = np.select([backfill, *sources], [Reading.BACKFILL, *SOURCES], Reading.UNKNOWN)
    by_method = methods.indices.fill_null(-1).to_numpy()
    of_rows = np.append(readings, Reading.UNKNOWN)[by_method]
    if of_any.any():
        asked = np.append(of_any & ~backfill, False)[by_method]
        of_rows[asked] = _by_position(changes)[asked]
    return {Reading(found): np.flatnonzero(of_rows == found) for found in np.unique(of_rows)}


def _by_position(changes: pa.RecordBatch) -> np.ndarray:
    """Oracle comes first: its changes name a log file too."""
    told = {
        Reading.ORACLE: _is_told(changes.column("_scn").cast(pa.string())),
        Reading.MYSQL: _is_told(changes.column("_log_file")) | _is_told(changes.column("_gtid")),
        Reading.POSTGRESQL: _matches(changes.column("_lsn"), "/"),
        Reading.SQLSERVER: _is_told(changes.column("_lsn")),
    }
    return np.select(list(told.values()), list(told), Reading.UNKNOWN)


def _is_told(texts: pa.Array) -> np.ndarray:
    return _as_truths(pc.greater(pc.binary_length(texts), 0))


def _matches(texts: pa.Array, pattern: str) -> np.ndarray:
    return _as_truths(pc.match_substring_regex(texts, pattern, ignore_case=True))


def _as_truths(found: pa.Array) -> np.ndarray:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
