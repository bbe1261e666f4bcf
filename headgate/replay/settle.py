"""Marks rows of the quarantine, beside a stream that adds others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from headgate.errors import LandingError
from headgate.quarantine.quarantine_state import QuarantineState
from headgate.quarantine.quarantined import QUARANTINE
from headgate.replay.settlement import Settlement

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
                hint="mend the table; the next `headgate quarantine replay` completes this one",
                where=path,
            ) from error
    raise AssertionError("the last try has ended")
