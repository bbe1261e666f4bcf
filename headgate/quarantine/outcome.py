"""What becomes of records that were taken out of quarantine, noted before anything is committed.

A replay that is cut short is completed from this note: whatever has changed meanwhile, the same
rows are settled in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.engine.quarantined import QUARANTINE, QuarantineState
from headgate.errors import LandingError
from headgate.lake.snapshot import Snapshot, table_url
from headgate.lake.staged import NoteFile
from headgate.lake.tables import CommitConflict, TableError
from headgate.lake.write import MergeClauses, fill_columns, merge_rows

OUTCOME_COLUMNS = pa.schema(
    [
        QUARANTINE.field(name)
        for name in ("id", "state", "reason", "detail", "route", "schema_id", "in_bronze", "_batch")
    ]
)
_ABOUT = b"headgate"


@dataclass(frozen=True)
class ReplayOutcome:
    """The outcome for the records of one portion."""

    version: int
    state: QuarantineState
    """What those are that left the quarantine."""
    at: datetime
    taken: int
    remaining: Mapping[str, int]
    """How many stay in quarantine, for which reason."""
    wanted: Mapping[str, str]
    """Which were asked for, as the ledger tells it."""
    rows: pa.Table
    """The rows of the quarantine that change, as they shall be."""

    @property
    def left(self) -> int:
        return self.taken - sum(self.remaining.values())


class OutcomeNote:
    """Holds one settlement, the newest of a pipeline."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._note = NoteFile(lake, f"{pipeline}.parquet")

    def write(self, outcome: ReplayOutcome) -> None:
        about = {**vars(outcome), "at": outcome.at.isoformat()}
        del about["rows"]
        noted = outcome.rows.replace_schema_metadata({_ABOUT: json.dumps(about)})
        sink = pa.BufferOutputStream()
        pq.write_table(noted, sink)
        self._note.write(sink.getvalue().to_pybytes())

    def read(self, version: int) -> ReplayOutcome | None:
        """That of one version, if it is the one that is held."""
        content = self._note.read()
        if content is None:
            return None
        rows = pq.ParquetFile(pa.BufferReader(content)).read()
        about: dict[str, Any] = json.loads(rows.schema.metadata[_ABOUT])
        about["state"] = QuarantineState(about["state"])
        about["at"] = datetime.fromisoformat(about["at"])
        if about["version"] != version:
            return None
        return ReplayOutcome(**about, rows=rows.replace_schema_metadata(None))

    def clear(self) -> None:
        self._note.clear()


_MAX_TRIES = 20
_UPDATED = ("state", "reason", "detail", "route", "schema_id", "in_bronze")
_ERASED = ("value", "_key", "_headers")
_Result = TypeVar("_Result")


def record_outcome(lake: str, quarantine: str, outcome: ReplayOutcome) -> int:
    """Mark all rows in one commit, however often it is done; return the table's version then."""
    rows = outcome.rows
    if not rows.num_rows:
        return _retry(lake, quarantine, lambda table: table.version)
    updates = {name: f"change.{name}" for name in _UPDATED}
    updates["settled_at"] = "change.settled_at"
    if outcome.state is QuarantineState.DROPPED:
        updates |= dict.fromkeys(_ERASED, "NULL")
    timestamp = QUARANTINE.field("settled_at").type
    still_open = pc.equal(rows.column("state"), QuarantineState.OPEN.value)
    times = pc.if_else(still_open, pa.scalar(None, timestamp), pa.scalar(outcome.at, timestamp))
    source = rows.append_column("settled_at", times)
    batches = pc.min_max(rows.column("_batch"))
    clauses = MergeClauses(
        # Between the batches, so that files of other batches need not be read.
        on="row.id = change.id AND "
        f"row._batch BETWEEN {batches['min'].as_py()} AND {batches['max'].as_py()}",
        update="row.state = 'open'",
        set=updates,
    )

    def merge(table: Snapshot) -> int:
        return merge_rows(table, source, clauses, compress=True).version

    return _retry(lake, quarantine, merge)


def name_rows(lake: str, quarantine: str) -> None:
    """Give rows of a version that did not name them what every row has."""

    def name(table: Snapshot) -> None:
        fill_columns(
            table, QUARANTINE, {"id": "replace(uuid(), '-', '')", "state": "'open'"}, "id IS NULL"
        )

    _retry(lake, quarantine, name)


def _retry(lake: str, quarantine: str, change: Callable[[Snapshot], _Result]) -> _Result:
    """Retry when others commit to the table first."""
    for attempt in range(1, _MAX_TRIES + 1):
        try:
            table = Snapshot.open(lake, quarantine)
            assert table is not None
            return change(table)
        except (TableError, OSError) as error:
            if attempt < _MAX_TRIES and isinstance(error, CommitConflict):
                continue
            raise LandingError(
                "quarantine-unwritable",
                f"records could not be marked in the quarantine: {str(error).splitlines()[0]}",
                hint="fix the table; the next `headgate quarantine replay` completes this one",
                where=table_url(lake, quarantine),
            ) from error
    raise AssertionError("the last try has ended")
