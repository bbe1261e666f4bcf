"""The quarantine as it was at one moment: what is put in later is not seen."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Self

import pyarrow as pa

from headgate.engine.quarantine_table import QUARANTINE
from headgate.errors import LandingError
from headgate.lake.snapshot import Snapshot, table_url
from headgate.lake.tables import TableError
from headgate.quarantine.filter import QuarantineFilter

NamesOfRoute = Callable[[str], Collection[str]]
"""What a person may call a route, beside itself."""

_ONE_FILE_AT_A_TIME = {
    "datafusion.execution.batch_size": "512",
    "datafusion.execution.target_partitions": "1",
}
"""Records can be large: memory should hold few of them more than are asked for. And those that are
read one after the other should be in the same files, as a file is written anew to mark its rows."""


class QuarantineSnapshot:
    """Answers queries over `quarantine`, with columns that an older table may not have yet."""

    def __init__(self, table: Snapshot, names_of_route: NamesOfRoute) -> None:
        self.table = table
        self._names_of_route = names_of_route

    @classmethod
    def open(cls, lake: str, quarantine: str, names_of_route: NamesOfRoute) -> Self | None:
        """None where nothing was ever put in quarantine."""
        try:
            table = Snapshot.open(lake, quarantine)
        except (TableError, OSError) as error:
            raise unreadable(table_url(lake, quarantine), error) from error
        return None if table is None else cls(table, names_of_route)

    def sql(self, query: str) -> str:
        """The query as it can be asked of the table itself, known as `stored`."""
        missing = set(QUARANTINE.names) - {*self.table.schema.names}
        nothing = "".join(f", NULL AS {name}" for name in sorted(missing))
        return f"WITH quarantine AS (SELECT *{nothing} FROM stored) {query}"

    def rows(self, query: str) -> pa.RecordBatchReader:
        """A few at a time."""
        try:
            return self.table.query(self.sql(query), "stored", _ONE_FILE_AT_A_TIME)
        except (TableError, OSError) as error:
            raise unreadable(self.table.url, error) from error

    def condition(self, wanted: QuarantineFilter) -> str:
        if wanted.route is None:
            return wanted.condition()
        known = self.rows("SELECT DISTINCT route FROM quarantine WHERE route IS NOT NULL")
        routes = known.read_all().column("route").to_pylist()
        return wanted.condition(
            [route for route in routes if wanted.route in self._names_of_route(route)]
        )

    def counts(self, wanted: QuarantineFilter) -> dict[str, int]:
        """How many for which reason, the most frequent first."""
        found = self.rows(
            f"""
            SELECT reason, count(*) AS count FROM quarantine WHERE {self.condition(wanted)}
            GROUP BY reason ORDER BY count DESC, reason
            """
        ).read_all()
        reasons, counts = found.column("reason").to_pylist(), found.column("count").to_pylist()
        return dict(zip(reasons, counts, strict=True))


def unreadable(path: str, error: Exception) -> LandingError:
    message = f"the quarantine cannot be read: {str(error).splitlines()[0]}"
    return LandingError("lake-unreadable", message, where=path)
