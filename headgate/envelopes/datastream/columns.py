"""What is told of a change beside its row: the metadata columns of every change log."""

from __future__ import annotations

import pyarrow as pa

_MOMENT = pa.timestamp("us", "UTC")

METADATA = pa.schema(
    [
        pa.field("_uuid", pa.string()),
        pa.field("_change_type", pa.string()),
        pa.field("_is_deleted", pa.bool_()),
        pa.field("_source_timestamp", _MOMENT),
        pa.field("_read_timestamp", _MOMENT),
        pa.field("_read_method", pa.string()),
        pa.field("_stream", pa.string()),
        pa.field("_object", pa.string()),
        pa.field("_schema_key", pa.string()),
        pa.field("_sort_keys", pa.list_(pa.string())),
        pa.field("_primary_keys", pa.list_(pa.string())),
        pa.field("_database", pa.string()),
        pa.field("_schema", pa.string()),
        pa.field("_table", pa.string()),
        pa.field("_log_file", pa.string()),
        pa.field("_log_position", pa.int64()),
        pa.field("_gtid", pa.string()),
        pa.field("_scn", pa.int64()),
        pa.field("_rs_id", pa.string()),
        pa.field("_ssn", pa.int64()),
        pa.field("_row_id", pa.string()),
        pa.field("_lsn", pa.string()),
        pa.field("_tx_id", pa.string()),
        pa.field("_more", pa.string()),
    ]
)
"""As the file tells it; `_more` is JSON of everything that has no column of its own."""

LOG_COLUMNS = pa.schema(
    [
        *METADATA,
        pa.field("_file", pa.string()),
        pa.field("_order", pa.string()),
    ]
)
"""With the file that a change came in, and its place among all changes of its table."""

LOG_COLUMN_NAMES = frozenset(LOG_COLUMNS.names)
