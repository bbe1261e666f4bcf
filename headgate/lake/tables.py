"""Delta tables that may not be there yet."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

TableError = DeltaError
"""What reading or writing a table raises."""

CommitConflict = CommitFailedError
"""What a commit raises that came second."""

_MOST_OPEN = 2_000
"""Of those that are open, the one that nobody has asked for the longest is let go."""


def open_table(path: str | Path, version: int | None = None) -> DeltaTable | None:
    """As it is, or as it was at a version; None where there is none."""
    try:
        return DeltaTable(str(path), version=version)
    except TableNotFoundError:
        return None


def is_table(url: str) -> bool:
    """Whether there is a Delta table at an address."""
    return DeltaTable.is_deltatable(url)


class OpenTables:
    """Tables of a lake that are looked at again and again: to bring one up to date is quicker
    than to open it."""

    def __init__(self, lake: str | Path) -> None:
        self._lake = Path(lake)
        self._opened: dict[str, tuple[DeltaTable, _Entry]] = {}

    def newest(self, table: str) -> DeltaTable | None:
        opened, known = self._opened.pop(table, (None, None))
        if opened is not None and known == self._entry(table, opened):
            opened.update_incremental()
        else:
            # It is new, or what was known of it was another table by this name.
            opened = open_table(self._lake / table)
        if opened is not None:
            self._opened[table] = opened, self._entry(table, opened)
        if len(self._opened) > _MOST_OPEN:
            self._opened.pop(next(iter(self._opened)))
        return opened

    def _entry(self, table: str, opened: DeltaTable) -> _Entry:
        log = self._lake / table / "_delta_log"
        try:
            told = (log / f"{opened.version():020d}.json").stat()
        except FileNotFoundError:
            return None
        return told.st_ino, told.st_mtime_ns


_Entry = tuple[int, int] | None
"""The file of the log that made a version, if it is still there: another table has another one."""


@cache
def tables_kept_open(lake: str) -> OpenTables:
    """As long as the process lives: Spark gives the tasks of many batches to one."""
    return OpenTables(lake)


_READ_AS_IT_IS = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""With these alone, a table's rows are those of its files."""


def reads_as_it_is(table: DeltaTable) -> bool:
    """Whether the rows of a table are those of its files."""
    return not set(table.protocol().reader_features or ()) - _READ_AS_IT_IS


def size_of(table: DeltaTable) -> int:
    """The bytes of all files that a table has."""
    return sum(map(int, table.get_add_actions().column("size_bytes").to_pylist()))
