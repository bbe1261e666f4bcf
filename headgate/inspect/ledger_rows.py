"""What a pipeline's ledger says; every view of it starts here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.errors import LandingError
from headgate.inspect.query_table import query_table, quoted
from headgate.pipeline import AnyPipeline
from headgate.replay.replay_names import name_in_ledger


class LedgerRows:
    """The pipeline's rows of the ledger as it was when it was opened."""

    def __init__(self, pipeline: AnyPipeline) -> None:
        self._pipeline = pipeline
        self._path = str(Path(pipeline.lake, pipeline.ledger))
        try:
            self._table: DeltaTable | None = DeltaTable(self._path)
        except TableNotFoundError:
            self._table = None
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error

    def query(self, sql: str) -> list[dict[str, Any]]:
        """What a query gives; nothing where the pipeline was never run.

        `ledger` has what the stream did, `everything` what replays did as well.
        """
        if self._table is None:
            return []
        name, replays = self._pipeline.name, name_in_ledger(self._pipeline.name)
        both = f"SELECT * FROM stored WHERE pipeline IN ({quoted(name)}, {quoted(replays)})"
        mine = f"SELECT * FROM everything WHERE pipeline = {quoted(name)}"
        try:
            return query_table(
                self._table, f"WITH everything AS ({both}), ledger AS ({mine}) {sql}"
            )
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    @property
    def silver_only(self) -> str:
        """A condition that leaves out what the pipeline's own tables, such as bronze, got."""
        own = self._pipeline.own_tables.values()
        return f'"table" NOT IN ({", ".join(map(quoted, own))})'

    def _unreadable(self, error: Exception) -> LandingError:
        return LandingError(
            "lake-unreadable",
            f"the ledger cannot be read: {str(error).splitlines()[0]}",
            hint="check `lake`, and that you may read the folder",
            where=self._path,
        )
