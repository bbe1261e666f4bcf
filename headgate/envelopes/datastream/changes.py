"""The contents of an opened change file: changes with their metadata, and rejected records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.reasons import Reason

MAX_FILE_SIZE = 512 << 20
"""Limit on the bytes of a file after decompression."""

MAX_CELLS = 1 << 27
"""Limit on the values in a file: a value can take no bytes in the file, but does in memory."""

MAX_RECORDS = 5_000_000
"""Limit on the records in one file: the metadata of each takes memory, however small it is."""

MAX_TABLES = 1_000
"""Limit on the source tables in one file."""

MAX_REJECTED = 1_000
MAX_REJECTED_SIZE = 16 << 20
"""Limits on the rejected records of a file that are quarantined one by one, and on their bytes.

Beyond them, the file itself is quarantined: a few kilobytes of gzip can have millions of records.
"""

MAX_UNUSABLE = 100_000
"""Limit on the records of a file that are not changes; a file with more of them is unreadable."""

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

RESERVED_COLUMN_NAMES = LOG_COLUMN_NAMES | {"_valid_from", "_valid_to", "_is_current"}
"""Names that columns of a source do not get: those of the log, and those of history tables."""

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
    more_rejected: int = 0
    """Number of rejected records that are not in `rejected`, because they are too many."""
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


class RejectedChanges:
    """Collects the rejected records of a file: keeps at least the first, counts the others."""

    def __init__(self) -> None:
        self.kept: list[RejectedChange] = []
        self.more = 0
        self._size = 0

    @property
    def total(self) -> int:
        return len(self.kept) + self.more

    def add(
        self,
        position: int,
        reason: Reason,
        detail: str,
        raw: Callable[[], bytes],
        source: SourceTable | None = None,
    ) -> None:
        """Reject a record; `raw` returns a file with only this record."""
        if not self.more and len(self.kept) < MAX_REJECTED:
            content = raw()
            self._size += len(content)
            if not self.kept or self._size <= MAX_REJECTED_SIZE:
                self.kept.append(RejectedChange(position, reason, detail, content, source))
                return
        self.count(1)

    def count(self, records: int) -> None:
        """Reject records without keeping them."""
        self.more += records
        require_usable(self.total)


def require_usable(rejected: int) -> None:
    """Raise UnreadableFile if a file has too many records that are not changes."""
    if rejected > MAX_UNUSABLE:
        raise UnreadableFile(f"more than {MAX_UNUSABLE} records are not changes")


def require_few_records(records: int) -> None:
    """Raise UnreadableFile if a file has too many records."""
    if records > MAX_RECORDS:
        raise UnreadableFile(f"more than {MAX_RECORDS} records")


def no_changes() -> UnreadableFile:
    """Return the error of a file that begins with many records that are not changes."""
    return UnreadableFile(f"none of its first {MAX_REJECTED} records is a change")
