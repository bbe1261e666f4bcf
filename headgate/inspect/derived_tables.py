"""Merged and history tables, as the ledger tells of them: how far each followed its log."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headgate.inspect.change_sources import plan_of_names
from headgate.inspect.ledger_rows import LedgerRows
from headgate.pipeline import ChangePipeline

_LAST_WORD = """
SELECT "table", detail FROM (
    SELECT "table", detail, row_number() OVER (
        PARTITION BY "table" ORDER BY at DESC, table_version DESC
    ) AS place
    FROM everything WHERE kind = 'merged'
) WHERE place = 1
"""
_LOG_VERSIONS = """
SELECT "table", max(table_version) AS version FROM everything
WHERE kind = 'table' AND route IS NOT NULL GROUP BY "table"
"""


@dataclass(frozen=True)
class Following:
    """The change log that a table is made of, and the version of it that it has."""

    log: str
    log_version: int


def read_following(ledger: LedgerRows) -> dict[str, Following]:
    """By merged or history table."""
    told = {row["table"]: json.loads(row["detail"]) for row in ledger.query(_LAST_WORD)}
    return {
        table: Following(str(detail["log"]), int(detail["log_version"]))
        for table, detail in told.items()
    }


def tables_behind(pipeline: ChangePipeline, ledger: LedgerRows) -> tuple[str, ...]:
    """Those that the pipeline wants and that do not have all of their logs, by name."""
    following = read_following(ledger)
    plan = plan_of_names(pipeline, ledger)
    behind: set[str] = set()
    for row in ledger.query(_LOG_VERSIONS):
        source = plan.known[row["table"]].source
        names = plan.tables_of(source)
        wanted = [table for table in (names.merged_for(source), names.history_for(source)) if table]
        made = [table for table in wanted if table in following]
        behind |= {table for table in made if following[table].log_version < row["version"]}
        if not made:
            # Of one without a key there is no history, so only the first is sure to come.
            behind.update(wanted[:1])
    return tuple(sorted(behind))
