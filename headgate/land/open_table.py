"""Delta tables that may not be there yet."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError


def open_table(path: str | Path, version: int | None = None) -> DeltaTable | None:
    """As it is, or as it was at a version; None where there is none."""
    try:
        return DeltaTable(str(path), version=version)
    except TableNotFoundError:
        return None


class OpenTables:
    """Tables of a lake that are looked at again and again: to bring one up to date is quicker
    than to open it."""

    def __init__(self, lake: str | Path) -> None:
        self._lake = Path(lake)
        self._opened: dict[str, DeltaTable] = {}

    def newest(self, table: str) -> DeltaTable | None:
        opened = self._opened.pop(table, None)
        if opened is not None and self._goes_on(table, opened):
            opened.update_incremental()
        else:
            opened = open_table(self._lake / table)
        if opened is not None:
            self._opened[table] = opened
        return opened

    def _goes_on(self, table: str, opened: DeltaTable) -> bool:
        """Whether the log still has what is known of it: tables are dropped, and made anew."""
        return (self._lake / table / "_delta_log" / f"{opened.version():020d}.json").exists()
