"""Where in a database's log a change stands."""

from __future__ import annotations

_FIRST_POSITION = 4
_AROUND_ROWS = 180
"""Bytes of the events around those with rows: transaction, statement, table."""


class BinaryLog:
    """Grows by events, and goes on in a new file when one is full: mysql-bin.000001, …2."""

    def __init__(
        self, roll_over: int = 1_000_000, base_name: str = "mysql-bin", first_file: int = 1
    ) -> None:
        self._roll_over = roll_over
        self._base_name = base_name
        self._number = first_file
        self._position = _FIRST_POSITION

    @property
    def file(self) -> str:
        return f"{self._base_name}.{self._number:06d}"

    def append(self, size: int) -> tuple[str, int]:
        """One transaction with so many bytes of rows: its file, and the position of the rows."""
        if self._position > self._roll_over:
            self._number += 1
            self._position = _FIRST_POSITION
        self._position += _AROUND_ROWS + size
        return self.file, self._position
