"""Rows of data files that stay in memory from one merge to the next.

To read the rows of a large table takes a third of what a merge costs that touches all of its files.
"""

from __future__ import annotations

from threading import Lock

import pyarrow as pa

from headgate.lake.snapshot import Snapshot

_LIMIT = 256 << 20


class KeptRows:
    """Rows of files that merges have read or written. A file never changes, only a table's list.

    Rows are kept while there is room. They never displace others: of tables that are larger than
    the limit, and merged into in turn, each would displace just what is needed next.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._rows: dict[str, dict[str, pa.Table]] = {}
        """By URL of the table, and path of the file."""
        self._lock = Lock()

    def get(self, table: Snapshot, path: str) -> pa.Table | None:
        """Return all rows of a file in the columns of the table, if they are kept."""
        rows = self._rows.get(table.url, {}).get(path)
        return rows if rows is not None and rows.schema.equals(table.schema) else None

    def take(self, table: Snapshot, path: str) -> pa.Table | None:
        """Return the same for the last time: the file is about to be replaced."""
        rows = self.get(table, path)
        self._drop(table.url, path)
        return rows

    def put(self, table: Snapshot, path: str, rows: pa.Table) -> None:
        """Keep the rows of a file if there is room."""
        self._drop(table.url, path)
        with self._lock:
            if self._size + rows.nbytes <= self._limit:
                self._size += rows.nbytes
                self._rows.setdefault(table.url, {})[path] = rows

    def drop_replaced(self, table: Snapshot) -> None:
        """Drop the rows of files that the table no longer has."""
        for path in self._rows.get(table.url, {}).keys() - table.sizes.keys():
            self._drop(table.url, path)

    def _drop(self, url: str, path: str) -> None:
        with self._lock:
            rows = self._rows.get(url, {}).pop(path, None)
            if rows is not None:
                self._size -= rows.nbytes
