"""A schema change as the ledger recorded it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.query_table import quoted
from headgate.schema.change import change_of


@dataclass(frozen=True)
class RecordedChange:
    """What happened to a table's columns, when, and because of which schemas."""

    table: str
    batch: int
    at: datetime
    change: str
    """The kind of change: `AddColumn`, `CreateTable`, …"""
    column: str
    outcome: str
    text: str
    schema_ids: tuple[int, ...]


def recorded_changes(ledger: LedgerRows, table: str | None = None) -> list[RecordedChange]:
    """The changes of one table or of all, the oldest first."""
    of_table = f'AND "table" = {quoted(table)}' if table is not None else ""
    rows = ledger.query(
        f"""
        SELECT "table", version, at, detail FROM everything
        WHERE kind = 'schema' {of_table} ORDER BY at, version, "table"
        """
    )
    return [_recorded_change(row) for row in rows]


def _recorded_change(row: Mapping[str, Any]) -> RecordedChange:
    detail: dict[str, Any] = json.loads(row["detail"])
    kind, column = str(detail["change"]), str(detail["column"])
    return RecordedChange(
        table=row["table"],
        batch=row["version"],
        at=row["at"],
        change=kind,
        column=column,
        outcome=str(detail["outcome"]),
        text=str(change_of(detail) or f"{kind} {column}"),
        schema_ids=tuple(detail.get("schema_ids", ())),
    )
