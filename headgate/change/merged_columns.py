"""The columns of a merged table: the source's own, and what may go beside them."""

from __future__ import annotations

import pyarrow as pa

from headgate.change.table_key import ROW_ID, TableKey
from headgate.envelope.datastream.columns import LOG_COLUMN_NAMES

ORDER = "_order"
MERGED_METADATA = ("_change_type", "_source_timestamp", ORDER)
"""Beside the source's columns, unless the pipeline wants none."""

APPENDED_METADATA = ("_uuid", "_is_deleted", *MERGED_METADATA)
"""Of tables without a key, whose changes are all there."""

_LOOKED_AT = frozenset(("_primary_keys", ROW_ID, *APPENDED_METADATA))


def columns_to_merge(log: pa.Schema) -> list[str]:
    """All that a merge looks at: most of what a log tells of a change is not among it."""
    return [name for name in log.names if name not in LOG_COLUMN_NAMES or name in _LOOKED_AT]


def merged_columns(log: pa.Schema, key: TableKey, metadata: bool) -> pa.Schema:
    """The source's columns first; those of the key remember that they are."""
    beside = set(MERGED_METADATA if metadata else ())
    if not key:
        beside |= set(APPENDED_METADATA)
    if key.by_row_id:
        beside.add(ROW_ID)
    own = [field for field in log if field.name not in LOG_COLUMN_NAMES]
    told = [field for field in log if field.name in beside]
    return key.keep_in(pa.schema([*own, *told]))
