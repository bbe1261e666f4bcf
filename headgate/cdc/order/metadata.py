"""The metadata that orders are derived from, and the layout of the order of each change."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.changes import METADATA

_ORDER_COLUMNS = pa.schema(
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


def order_columns(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that orders depend on; missing ones are null."""
    names = set(changes.schema.names)
    return pa.record_batch(
        [
            changes.column(column.name).cast(column.type)
            if column.name in names
            else pa.nulls(len(changes), column.type)
            for column in _ORDER_COLUMNS
        ],
        schema=_ORDER_COLUMNS,
    )


def column_or_sort_key(changes: pa.RecordBatch, name: str, sort_key: int) -> pa.Array:
    """Return a column as text, with the sort key of that index where it is null or empty."""
    texts = changes.column(name).cast(pa.string())
    empty = pc.equal(pc.binary_length(texts), 0).fill_null(True)
    if not pc.any(empty).as_py():
        return texts
    return pc.if_else(empty, sort_key_at(changes, sort_key), texts)


def sort_key_at(changes: pa.RecordBatch, index: int) -> pa.Array:
    """Return the sort keys of that index; null if a change has fewer."""
    keys = changes.column("_sort_keys")
    starts = keys.offsets[:-1]
    exists = pc.greater(pc.list_value_length(keys), index)
    key = keys.values.take(pc.if_else(exists, pc.add(starts, index), None))
    return pc.if_else(pc.equal(pc.binary_length(key), 0), None, key)


class Layout(IntEnum):
    """The layout of an order, which depends on the source database."""

    UNKNOWN = 0
    BACKFILL = 1
    MYSQL = 2
    ORACLE = 3
    POSTGRESQL = 4
    SQLSERVER = 5


DATABASES = {
    Layout.MYSQL: ("mysql-", "mysql_", "mariadb-", "mariadb_"),
    Layout.ORACLE: ("oracle-", "oracle_"),
    Layout.POSTGRESQL: ("postgres",),
    Layout.SQLSERVER: ("sqlserver-", "sqlserver_"),
}
"""How the read methods of each database begin."""
_BACKFILLS = ("backfill", "dump")
_GENERIC = ("cdc", "backfill")
"""Read methods that do not name the database."""


def rows_by_layout(changes: pa.RecordBatch) -> dict[Layout, np.ndarray]:
    """Return the rows of each layout; every row has exactly one."""
    methods = changes.column("_read_method").dictionary_encode(null_encoding="encode")
    layouts = [_layout(method) for method in methods.dictionary.to_pylist()]
    if len(layouts) == 1 and layouts[0] is not None:
        return {layouts[0]: np.arange(len(changes))}
    row_layouts = np.array([-1 if one is None else one for one in layouts], np.int64)
    row_layouts = row_layouts[methods.indices.to_numpy()]
    unresolved = row_layouts < 0
    if unresolved.any():
        row_layouts[unresolved] = _layouts_by_position(changes)[unresolved]
    return {
        Layout(layout): np.flatnonzero(row_layouts == layout) for layout in np.unique(row_layouts)
    }


def _layout(method: str | None) -> Layout | None:
    """Return the layout that a read method names; None if positions have to tell."""
    text = (method or "").lower()
    named = next((one for one, starts in DATABASES.items() if text.startswith(starts)), None)
    is_generic = text in _GENERIC
    if (named or is_generic) and any(word in text for word in _BACKFILLS):
        return Layout.BACKFILL
    return None if is_generic else named or Layout.UNKNOWN


def _layouts_by_position(changes: pa.RecordBatch) -> np.ndarray:
    """Infer layouts from the columns with a position."""
    has_position = {
        # Oracle comes first, because its changes have a log file too.
        Layout.ORACLE: _has_text(changes.column("_scn").cast(pa.string())),
        Layout.MYSQL: _has_text(changes.column("_log_file")) | _has_text(changes.column("_gtid")),
        Layout.POSTGRESQL: _matches(changes.column("_lsn"), "/"),
        Layout.SQLSERVER: _has_text(changes.column("_lsn")),
    }
    return np.select(list(has_position.values()), list(has_position), Layout.UNKNOWN)


def _has_text(texts: pa.Array) -> np.ndarray:
    return _mask(pc.greater(pc.binary_length(texts), 0))


def _matches(texts: pa.Array, pattern: str) -> np.ndarray:
    return _mask(pc.match_substring_regex(texts, pattern, ignore_case=True))


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
