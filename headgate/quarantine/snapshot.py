"""A snapshot of the quarantine: records that are quarantined later are not in it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Self

import pyarrow as pa

from headgate.errors import LandingError
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError, table_url
from headgate.quarantine.filter import QuarantineFilter

NamesOfRoute = Callable[[str], Collection[str]]
"""Returns the other names of a route."""

_ONE_FILE_AT_A_TIME = {
    "datafusion.execution.batch_size": "512",
    "datafusion.execution.target_partitions": "1",
}
"""Records can be large, so read few at a time. Read file by file, because updating rows rewrites
their files."""


class QuarantineSnapshot:
    """Runs queries on the table, which they call `stored`."""

    def __init__(self, table: Snapshot, names_of_route: NamesOfRoute) -> None:
        self.table = table
        self._names_of_route = names_of_route

    @classmethod
    def open(cls, lake: str, quarantine: str, names_of_route: NamesOfRoute) -> Self | None:
        """Open the newest version; return None if there is no quarantine table."""
        try:
            table = Snapshot.open(lake, quarantine)
        except (TableError, OSError) as error:
            raise unreadable(table_url(lake, quarantine), error) from error
        return None if table is None else cls(table, names_of_route)

    def rows(self, query: str) -> pa.RecordBatchReader:
        """Run a query and stream its rows."""
        try:
            return self.table.query(query, _ONE_FILE_AT_A_TIME)
        except (TableError, OSError) as error:
            raise unreadable(self.table.url, error) from error

    def condition(self, wanted: QuarantineFilter) -> str:
        """Return the filter in SQL, with a table name resolved to its routes."""
        if wanted.route is None:
            return wanted.condition()
        found = self.rows("SELECT DISTINCT route FROM stored WHERE route IS NOT NULL")
        routes = found.read_all().column("route").to_pylist()
        return wanted.condition(
            [route for route in routes if wanted.route in self._names_of_route(route)]
        )

    def counts(self, wanted: QuarantineFilter) -> dict[str, int]:
        """Count records by reason, the most frequent first."""
        found = self.rows(
            f"""
            SELECT reason, count(*) AS count FROM stored WHERE {self.condition(wanted)}
            GROUP BY reason ORDER BY count DESC, reason
            """
        ).read_all()
        reasons, counts = found.column("reason").to_pylist(), found.column("count").to_pylist()
        return dict(zip(reasons, counts, strict=True))


def unreadable(path: str, error: Exception) -> LandingError:
    message = f"the quarantine cannot be read: {str(error).splitlines()[0]}"
    return LandingError("lake-unreadable", message, where=path)
