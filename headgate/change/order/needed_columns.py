"""The columns of metadata that orders are made of."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelope.datastream.columns import METADATA

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
