"""A place in the database's log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING

from headgate.simulate.shop.database.connect import connect

if TYPE_CHECKING:
    from headgate.local import Database


@total_ordering
@dataclass(frozen=True)
class LogPlace:
    """After everything that the log has before this position of this file."""

    file: str
    position: int

    def __lt__(self, other: LogPlace) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, int]:
        # The number behind the dot has six digits until it needs a seventh.
        return int(self.file.rpartition(".")[2]), self.position


def log_end(database: Database) -> LogPlace:
    """Where the log ends now; asked on a connection of its own, others may be in the middle."""
    with connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        row = cursor.fetchone()
    assert row is not None
    return LogPlace(str(row[0]), int(row[1]))
