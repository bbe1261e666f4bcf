"""Tables that `gold` declares, as the ledger tells of them: when they followed, or why not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.inspect.ledger_rows import LedgerRows
from headgate.pipeline import AnyPipeline
from headgate.pipeline.gold import ROUTE, as_pattern, is_declared_gold

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
class GoldTable:
    """A derived table, and how it stands."""

    table: str
    """A template where all of its tables were hindered at once."""
    rows_last: int | None = None
    """Groups or rows that were computed when it last followed; None where it never did."""
    table_version: int | None = None
    at: datetime | None = None
    error: str | None = None
    """What has hindered it since."""


def read_derived(pipeline: AnyPipeline, ledger: LedgerRows) -> tuple[GoldTable, ...]:
    """Those that the pipeline still declares, by name."""
    words = ledger.query(_LAST_WORDS)
    rows = [row for row in words if is_declared_gold(pipeline.gold, row["table"])]
    found: dict[str, GoldTable] = {}
    for row in rows:
        found[row["table"]] = _after(found.get(row["table"]), row)
    for row in rows:
        if ROUTE in row["table"]:
            fits = re.compile(as_pattern(row["table"])).fullmatch
            if any(one.at and one.at > row["at"] and fits(one.table) for one in found.values()):
                del found[row["table"]]
    return tuple(found.values())


def _after(before: GoldTable | None, row: dict[str, Any]) -> GoldTable:
    """How it stands once a row more is known, which is newer than those before."""
    detail = json.loads(row["detail"]) if row["detail"] else None
    error = detail.get("error") if isinstance(detail, dict) else None
    if error is None:
        return GoldTable(row["table"], row["rows"], row["table_version"], row["at"])
    known = before or GoldTable(row["table"])
    return GoldTable(known.table, known.rows_last, known.table_version, known.at, str(error))
