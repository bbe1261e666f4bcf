"""Tables that could not be committed, and whose files wait for the next batch."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.inspect.ledger_rows import of_kind
from headgate.land.ledger import Kind


@dataclass(frozen=True)
class PendingTable:
    """A table that waits, and why."""

    table: str
    rows: int
    files: int
    error: str


def pending_tables(ledger: pa.Table) -> tuple[PendingTable, ...]:
    """Those that still wait after the newest batch; what waited before it has landed since."""
    complete = of_kind(ledger, Kind.BATCH)
    newest = pc.max(complete.column("version")).as_py()
    if newest is None:
        return ()
    latest = pc.max(complete.filter(pc.equal(complete.column("version"), newest)).column("at"))
    waiting = of_kind(ledger, Kind.PENDING)
    # A batch is written again when waiting tables are tried without new records: the last
    # word counts.
    waiting = waiting.filter(
        pc.and_(pc.equal(waiting.column("version"), newest), pc.equal(waiting.column("at"), latest))
    )
    by_table: dict[str, list[dict[str, object]]] = {}
    for row in waiting.to_pylist():
        by_table.setdefault(row["table"], []).append(row)
    return tuple(_pending(table, rows) for table, rows in sorted(by_table.items()))


def _pending(table: str, rows: list[dict[str, object]]) -> PendingTable:
    error = json.loads(str(rows[-1]["detail"]))["error"]
    total = sum(int(str(row["rows"] or 0)) for row in rows)
    return PendingTable(table, total, len(rows), str(error))
