"""What a change file turns out to be."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.reasons import Reason

LARGEST_FILE = 512 << 20
"""So many bytes may a file have once it is decompressed."""

MOST_CELLS = 1 << 27
"""So many values may the changes of a file have: what takes no bytes in a file does in memory."""

MOST_TABLES = 1_000
"""Of so many source tables may the changes in one file be."""


@dataclass(frozen=True)
class SourceTable:
    """A table of the source, as the metadata of its changes names it."""

    database: str | None
    schema: str | None
    table: str


@dataclass(frozen=True)
class Changes:
    """Changes of one source table, in the order of the file."""

    source: SourceTable
    metadata: pa.RecordBatch
    payload: pa.RecordBatch
    """The row's columns, each with what is known of its field."""
    positions: np.ndarray[tuple[int], np.dtype[np.int64]]
    """Which record of the file each one is."""


@dataclass(frozen=True)
class RejectedChange:
    """A record that is none, or whose values do not fit its own schema."""

    position: int
    reason: Reason
    detail: str
    raw: bytes
    """A file of its own, with this record alone."""
    source: SourceTable | None = None


@dataclass(frozen=True)
class OpenedFile:
    """The changes of one file; of one that is damaged anywhere, none."""

    changes: list[Changes] = field(default_factory=list)
    rejected: list[RejectedChange] = field(default_factory=list)
    has_schema: bool = False
    """Whether it names all columns of its tables, be they null in every row."""
    unreadable: str | None = None
    """Why the file as a whole cannot be read."""
    unfinished: bool = False
    """It ends in the middle of something, as one does that is still being written."""


class UnreadableFile(Exception):
    """The file as a whole cannot be read; the message says why."""


class UnfinishedFile(Exception):
    """The file ends too early, and nothing before is wrong with it."""
