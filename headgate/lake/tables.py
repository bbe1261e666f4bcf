"""Open Delta tables, and a cache of them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

TableError = DeltaError
"""Raised by reading or writing a table."""

CommitConflict = CommitFailedError
"""Raised by a commit that lost against a concurrent one."""


class NotWritable(DeltaError):
    """Raised before anything is written, for a table that only another engine can write."""


_MAX_OPEN = 2_000
"""Beyond this number, the least recently used table is evicted."""


def open_table(path: str | Path, version: int | None = None) -> DeltaTable | None:
    """Open the newest version of a table, or an older one; return None if it does not exist."""
    try:
        return DeltaTable(str(path), version=version)
    except TableNotFoundError:
        return None


def is_table(url: str) -> bool:
    """Whether a URL is that of a Delta table."""
    return DeltaTable.is_deltatable(url)


def tables_in(lake: str | Path) -> list[str]:
    """Return the names of all tables of a lake."""
    return sorted(log.parent.name for log in Path(lake).glob("*/_delta_log"))


class TableCache:
    """Open tables of a lake. Updating an open table is faster than opening it again."""

    def __init__(self, lake: str | Path) -> None:
        self._lake = Path(lake)
        self._opened: dict[str, tuple[DeltaTable, _Entry]] = {}

    def newest(self, table: str) -> DeltaTable | None:
        """Return the newest version of a table; None if it does not exist."""
        opened, known = self._opened.pop(table, (None, None))
        if opened is not None and known == self._entry(table, opened.version()):
            if self._entry(table, opened.version() + 1) is not None:
                opened.update_incremental()
        else:
            # Not cached, or replaced by another table of the same name.
            opened = open_table(self._lake / table)
        if opened is not None:
            self._opened[table] = opened, self._entry(table, opened.version())
        if len(self._opened) > _MAX_OPEN:
            self._opened.pop(next(iter(self._opened)))
        return opened

    def _entry(self, table: str, version: int) -> _Entry:
        try:
            file = os.stat(f"{self._lake}/{table}/_delta_log/{version:020d}.json")
        except FileNotFoundError:
            return None
        return file.st_ino, file.st_mtime_ns


_Entry = tuple[int, int] | None
"""Inode and time of the log entry of a version, which differ if the table is replaced."""


@cache
def table_cache(lake: str) -> TableCache:
    """Return the cache of a lake, shared by all tasks that Spark runs in this process."""
    return TableCache(lake)


_PLAIN_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Reader features that do not change how rows are read from files."""

_COLUMN_MAPPING = 2
"""The reader version of column mapping, before there were features."""


def is_plain_parquet(table: DeltaTable) -> bool:
    """Whether a table can be read from its Parquet files alone, without deletion vectors etc."""
    protocol = table.protocol()
    if protocol.min_reader_version == _COLUMN_MAPPING:
        return False
    return not set(protocol.reader_features or ()) - _PLAIN_FEATURES


def size_of(table: DeltaTable) -> int:
    """Return the size of all files of a table in bytes."""
    return sum(map(int, table.get_add_actions().column("size_bytes").to_pylist()))
