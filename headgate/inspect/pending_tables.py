"""Tables that could not be committed, and whose files wait for the next batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headgate.inspect.ledger_rows import LedgerRows

# Every batch tries again what waits, and so does every start of a run, which writes under the
# version of the last batch: the last word counts, and what it does not name has landed. What only
# follows from landed tables says nothing of what waits.
_STILL_WAITING = """
SELECT "table", "rows", detail FROM ledger
WHERE kind = 'pending' AND (version, at) IN (
    SELECT (version, at) FROM ledger WHERE kind NOT IN ('start', 'merged', 'gold')
    ORDER BY version DESC, at DESC LIMIT 1
)
ORDER BY "table"
"""


@dataclass(frozen=True)
class PendingTable:
    """A table that waits, and why."""

    table: str
    rows: int
    files: int
    error: str


def pending_tables(ledger: LedgerRows) -> tuple[PendingTable, ...]:
    """Those that still wait after the newest batch."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in ledger.query(_STILL_WAITING):
        by_table.setdefault(row["table"], []).append(row)
    return tuple(
        PendingTable(
            table,
            rows=sum(row["rows"] or 0 for row in rows),
            files=len(rows),
            error=str(json.loads(rows[-1]["detail"])["error"]),
        )
        for table, rows in by_table.items()
    )
