"""The contents of an opened change file: changes with their metadata, and rejected records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.reasons import Reason

MAX_FILE_SIZE = 512 << 20
"""Limit on the bytes of a file after decompression."""

MAX_CELLS = 1 << 27
"""Limit on the values in a file: a value can take no bytes in the file, but does in memory."""

MAX_TABLES = 1_000
"""Limit on the source tables in one file."""

_TIMESTAMP = pa.timestamp("us", "UTC")

METADATA = pa.schema(
    [
        pa.field("_uuid", pa.string()),
        pa.field("_change_type", pa.string()),
        pa.field("_is_deleted", pa.bool_()),
        pa.field("_source_timestamp", _TIMESTAMP),
        pa.field("_read_timestamp", _TIMESTAMP),
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
"""The metadata of a change; `_more` is JSON with everything that has no column of its own."""

LOG_COLUMNS = pa.schema(
    [
        *METADATA,
        pa.field("_file", pa.string()),
        pa.field("_order", pa.string()),
    ]
)
"""The metadata, the file that a change came from, and its order among all changes of its table."""

LOG_COLUMN_NAMES = frozenset(LOG_COLUMNS.names)

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class SourceTable:
    """A table of the source database, as the metadata of its changes names it."""

    database: str | None
    schema: str | None
    table: str


@dataclass(frozen=True)
class Changes:
    """Changes of one source table, in the order of the file."""

    source: SourceTable
    metadata: pa.RecordBatch
    payload: pa.RecordBatch
    """The columns of the row, with field metadata."""
    positions: Positions
    """Positions of the records in the file."""


@dataclass(frozen=True)
class RejectedChange:
    """A record that is not a change, or whose values do not match its schema."""

    position: int
    reason: Reason
    detail: str
    raw: bytes
    """A file with only this record."""
    source: SourceTable | None = None


@dataclass(frozen=True)
class OpenedFile:
    """The changes of one file; a file that is damaged anywhere has none."""

    changes: list[Changes] = field(default_factory=list)
    rejected: list[RejectedChange] = field(default_factory=list)
    has_schema: bool = False
    """Whether the file declares all columns of its tables, even those that are always null."""
    unreadable: str | None = None
    """Why the file as a whole cannot be read."""
    unfinished: bool = False
    """Whether the file ends too early, as a file does that is still being written."""


class UnreadableFile(Exception):
    """The file as a whole cannot be read; the message says why."""


class UnfinishedFile(Exception):
    """The file ends too early, but is valid up to there."""
