"""What becomes of records that were taken out of quarantine, noted before anything is committed.

A replay that is cut short is completed from this note: whatever has changed meanwhile, the same
rows are settled in the same way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from headgate.engine.quarantined import QUARANTINE, QuarantineState
from headgate.errors import LandingError

SETTLED = pa.schema(
    [
        QUARANTINE.field(name)
        for name in ("id", "state", "reason", "detail", "route", "schema_id", "in_bronze", "_batch")
    ]
)
_ABOUT = b"headgate"


@dataclass(frozen=True)
class Settlement:
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


class SettlementNote:
    """Holds one settlement, the newest of a pipeline."""

    def __init__(self, lake: str, pipeline: str) -> None:
        self._path = Path(lake, "_staged", f"{pipeline}.parquet")

    def write(self, settlement: Settlement) -> None:
        about = {**vars(settlement), "at": settlement.at.isoformat()}
        del about["rows"]
        noted = settlement.rows.replace_schema_metadata({_ABOUT: json.dumps(about)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        pq.write_table(noted, unfinished)
        os.replace(unfinished, self._path)

    def read(self, version: int) -> Settlement | None:
        """That of one version, if it is the one that is held."""
        try:
            rows = pq.ParquetFile(self._path).read()
        except FileNotFoundError:
            return None
        about: dict[str, Any] = json.loads(rows.schema.metadata[_ABOUT])
        about["state"] = QuarantineState(about["state"])
        about["at"] = datetime.fromisoformat(about["at"])
        if about["version"] != version:
            return None
        return Settlement(**about, rows=rows.replace_schema_metadata(None))

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


_MOST_TRIES = 20
_TOLD_ANEW = ("state", "reason", "detail", "route", "schema_id", "in_bronze")
_FORGOTTEN = ("value", "_key", "_headers")
_Result = TypeVar("_Result")


def settle(path: str, settlement: Settlement) -> int:
    """All rows in one commit, however often; returns the table's version then."""
    rows = settlement.rows
    if not rows.num_rows:
        return _tried(path, lambda table: table.version())
    updates = {name: f"settled.{name}" for name in _TOLD_ANEW}
    updates["settled_at"] = "settled.settled_at"
    if settlement.state is QuarantineState.DROPPED:
        updates |= dict.fromkeys(_FORGOTTEN, "NULL")
    moment = QUARANTINE.field("settled_at").type
    still_open = pc.equal(rows.column("state"), QuarantineState.OPEN.value)
    moments = pc.if_else(still_open, pa.scalar(None, moment), pa.scalar(settlement.at, moment))
    source = rows.append_column("settled_at", moments)
    batches = pc.min_max(rows.column("_batch"))
    # Between the batches, so that files of other batches need not be read.
    same = (
        "stored.id = settled.id AND "
        f"stored._batch BETWEEN {batches['min'].as_py()} AND {batches['max'].as_py()}"
    )

    def merge(table: DeltaTable) -> int:
        merging = table.merge(
            source,
            same,
            source_alias="settled",
            target_alias="stored",
            writer_properties=WriterProperties(compression="ZSTD"),
        )
        merging.when_matched_update(updates, "stored.state = 'open'").execute()
        return table.version()

    return _tried(path, merge)


def name_rows(path: str) -> None:
    """Give rows of a version that did not name them what every row has."""

    def name(table: DeltaTable) -> None:
        if set(QUARANTINE.names) - {field.name for field in table.schema().fields}:
            write_deltalake(table, QUARANTINE.empty_table(), mode="append", schema_mode="merge")
        table.update({"id": "replace(uuid(), '-', '')", "state": "'open'"}, predicate="id IS NULL")

    _tried(path, name)


def _tried(path: str, change: Callable[[DeltaTable], _Result]) -> _Result:
    """Others write to the table too; who comes second tries again."""
    for attempt in range(1, _MOST_TRIES + 1):
        try:
            return change(DeltaTable(path))
        except (DeltaError, OSError) as error:
            if attempt < _MOST_TRIES and isinstance(error, CommitFailedError):
                continue
            raise LandingError(
                "quarantine-unwritable",
                f"records could not be marked in the quarantine: {str(error).splitlines()[0]}",
                hint="fix the table; the next `headgate quarantine replay` completes this one",
                where=path,
            ) from error
    raise AssertionError("the last try has ended")
