"""The columns of source records, and the columns on their origin that every landed row has."""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORD_COLUMNS = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The columns of a stream of records."""

SOURCE_COLUMNS = pa.schema([*RECORD_COLUMNS, pa.field("file", pa.string())])
"""The columns of any source, of records or of files."""

ORIGIN = pa.schema(
    [pa.field(f"_{field.name}", field.type) for field in RECORD_COLUMNS if field.name != "value"]
    + [pa.field("_schema_id", pa.int64())]
)
"""The metadata columns of a silver table, which precede those of the message."""

UNKNOWN_FIELDS = pa.field("_unknown_fields", pa.binary())
"""Bytes of a protobuf payload that its own schema does not know; only in tables that have some."""

ORIGIN_COLUMNS = frozenset([*ORIGIN.names, UNKNOWN_FIELDS.name])
"""Names of Headgate's own columns in a silver table: fields of messages get others."""


def as_records(rows: pa.Table) -> pa.Table:
    """Return the rows of a source with all source columns; missing ones are null."""
    for field in SOURCE_COLUMNS:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(SOURCE_COLUMNS.names).cast(SOURCE_COLUMNS)
