"""The quarantine as it was at one moment: what is put in later is not seen."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.engine.quarantined import QUARANTINE
from headgate.errors import LandingError
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

    def __init__(self, path: str, names_of_route: NamesOfRoute) -> None:
        self.path = path
        self.table = DeltaTable(path)
        self._names_of_route = names_of_route

    @classmethod
    def open(cls, lake: str, quarantine: str, names_of_route: NamesOfRoute) -> Self | None:
        """None where nothing was ever put in quarantine."""
        path = str(Path(lake, quarantine))
        try:
            return cls(path, names_of_route)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise unreadable(path, error) from error

    def sql(self, query: str) -> str:
        """The query as it can be asked of the table itself, known as `stored`."""
        missing = set(QUARANTINE.names) - {field.name for field in self.table.schema().fields}
        nothing = "".join(f", NULL AS {name}" for name in sorted(missing))
        return f"WITH quarantine AS (SELECT *{nothing} FROM stored) {query}"

    def rows(self, query: str) -> pa.RecordBatchReader:
        """A few at a time."""
        try:
            found = (
                QueryBuilder(_ONE_FILE_AT_A_TIME)
                .register("stored", self.table)
                .execute(self.sql(query))
            )
        except (DeltaError, OSError) as error:
            raise unreadable(self.path, error) from error
        return pa.RecordBatchReader.from_stream(found)

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
