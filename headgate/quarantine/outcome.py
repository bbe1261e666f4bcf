"""The outcome of a replay or drop, noted before anything is committed.

An interrupted replay is completed from the note, so that the same rows get the same outcome
whatever has changed since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.engine.quarantine_table import QUARANTINE, QuarantineState
from headgate.errors import LandingError
from headgate.lake.commit import Committer, MergeCommit, MergeRule
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import NoteFile
from headgate.lake.tables import CommitConflict, TableError, table_url

OUTCOME_COLUMNS = pa.schema(
    [
        QUARANTINE.field(name)
        for name in ("id", "state", "reason", "detail", "route", "schema_id", "in_bronze", "_batch")
    ]
)
_METADATA = b"headgate"


@dataclass(frozen=True)
class ReplayOutcome:
    """The outcome of a replay or drop for the records of one portion."""

    version: int
    state: QuarantineState
    """The state of records that left the quarantine: replayed or dropped."""
    at: datetime
    taken: int
    remaining: Mapping[str, int]
    """Number of records that stay in quarantine, by reason."""
    wanted: Mapping[str, str]
    """The filter, as the ledger stores it."""
    rows: pa.Table
    """The changed rows of the quarantine, with their new values."""

    @property
    def left(self) -> int:
        """Number of records that left the quarantine."""
        return self.taken - sum(self.remaining.values())


class OutcomeNote:
    """Stores the newest outcome of a pipeline."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._note = NoteFile(lake, f"{pipeline}.parquet")

    def write(self, outcome: ReplayOutcome) -> None:
        metadata = {**vars(outcome), "at": outcome.at.isoformat()}
        del metadata["rows"]
        noted = outcome.rows.replace_schema_metadata({_METADATA: json.dumps(metadata)})
        sink = pa.BufferOutputStream()
        pq.write_table(noted, sink)
        self._note.write(sink.getvalue().to_pybytes())

    def read(self, version: int) -> ReplayOutcome | None:
        """Return the outcome of a version; None if the note is of another."""
        content = self._note.read()
        if content is None:
            return None
        rows = pq.ParquetFile(pa.BufferReader(content)).read()
        metadata: dict[str, Any] = json.loads(rows.schema.metadata[_METADATA])
        metadata["state"] = QuarantineState(metadata["state"])
        metadata["at"] = datetime.fromisoformat(metadata["at"])
        if metadata["version"] != version:
            return None
        return ReplayOutcome(**metadata, rows=rows.replace_schema_metadata(None))

    def clear(self) -> None:
        self._note.clear()


_MAX_TRIES = 20
_UPDATED = ("state", "reason", "detail", "route", "schema_id", "in_bronze")
_ERASED = ("value", "_key", "_headers")


def record_outcome(committer: Committer, quarantine: str, outcome: ReplayOutcome) -> int:
    """Update the rows of the quarantine in one commit; return the table's version.

    Idempotent: only rows that are still open are updated.
    """
    rows = outcome.rows
    if not rows.num_rows:
        return _version(committer, quarantine)
    timestamp = QUARANTINE.field("settled_at").type
    still_open = pc.equal(rows.column("state"), QuarantineState.OPEN.value)
    times = pc.if_else(still_open, pa.scalar(None, timestamp), pa.scalar(outcome.at, timestamp))
    source = rows.append_column("settled_at", times)
    updated = [*_UPDATED, "settled_at"]
    if outcome.state is QuarantineState.DROPPED:
        updated += _ERASED
        for name in _ERASED:
            source = source.append_column(name, pa.nulls(len(rows), QUARANTINE.field(name).type))
    rule = MergeRule(
        ("_batch", "id"), only=("state", QuarantineState.OPEN.value), set=(*updated,), inserts=False
    )
    merge = MergeCommit(quarantine, source, rule)
    return _retry(committer, quarantine, lambda: committer.merge(merge).version)


def _version(committer: Committer, quarantine: str) -> int:
    def newest() -> int:
        table = Snapshot.open(committer.lake, quarantine)
        assert table is not None
        return table.version

    return _retry(committer, quarantine, newest)


def _retry(committer: Committer, quarantine: str, change: Callable[[], int]) -> int:
    """Retry on commit conflicts."""
    for attempt in range(1, _MAX_TRIES + 1):
        try:
            return change()
        except (TableError, OSError) as error:
            if attempt < _MAX_TRIES and isinstance(error, CommitConflict):
                continue
            raise LandingError(
                "quarantine-unwritable",
                f"records could not be marked in the quarantine: {str(error).splitlines()[0]}",
                hint="fix the table; the next `headgate quarantine replay` completes this one",
                where=table_url(committer.lake, quarantine),
            ) from error
    raise AssertionError("the last try has ended")
