"""Tables that `gold` declares, as the ledger tells of them: when they followed, or why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.own_tables import is_declared_gold
from headgate.pipeline import AnyPipeline

# The last time that it went well, and the last time that it did not.
_LAST_WORDS = """
SELECT "table", "rows", table_version, at, detail FROM (
    SELECT *, row_number() OVER (
        PARTITION BY "table", coalesce(detail LIKE '%"error": %', false)
        ORDER BY at DESC, version DESC
    ) AS place
    FROM everything WHERE kind = 'gold'
) WHERE place = 1 ORDER BY "table", at
"""


@dataclass(frozen=True)
class DerivedTable:
    """A derived table, and how it stands."""

    table: str
    rows_last: int | None = None
    """Groups or rows that were computed when it last followed; None where it never did."""
    table_version: int | None = None
    at: datetime | None = None
    error: str | None = None
    """What has hindered it since."""


def read_derived(pipeline: AnyPipeline, ledger: LedgerRows) -> tuple[DerivedTable, ...]:
    """Those that the pipeline still declares, by name."""
    found: dict[str, DerivedTable] = {}
    for row in ledger.query(_LAST_WORDS):
        if is_declared_gold(pipeline, row["table"]):
            found[row["table"]] = _after(found.get(row["table"]), row)
    return tuple(found.values())


def _after(before: DerivedTable | None, row: dict[str, Any]) -> DerivedTable:
    """How it stands once a row more is known, which is newer than those before."""
    detail = json.loads(row["detail"]) if row["detail"] else None
    error = detail.get("error") if isinstance(detail, dict) else None
    if error is None:
        return DerivedTable(row["table"], row["rows"], row["table_version"], row["at"])
    known = before or DerivedTable(row["table"])
    return DerivedTable(known.table, known.rows_last, known.table_version, known.at, str(error))
