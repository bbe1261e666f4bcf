"""The tables of a pipeline, one line each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.own_tables import TableKind, kind_of
from headgate.inspect.recorded_change import RecordedChange, recorded_changes
from headgate.pipeline import ChangePipeline, Pipeline

_SIDE_BY_SIDE = 8
_ONE_ROW_A_TABLE = """
SELECT
    "table",
    max(route) AS route,
    sum("rows") AS "rows",
    sum(files) AS files,
    sum(bytes) AS bytes,
    max(table_version) AS table_version,
    -- Replays count their versions apart.
    coalesce(max(version) FILTER (WHERE pipeline NOT LIKE '%:replay'), max(version)) AS version,
    max(at) AS at
FROM everything WHERE kind = 'table' GROUP BY "table"
"""


@dataclass(frozen=True)
class TableSummary:
    """A table as ledger and log tell of it."""

    table: str
    kind: TableKind
    route: str | None
    rows: int
    files: int
    """Files that were landed; compaction may have joined them since."""
    bytes: int
    columns: int | None
    """None where the table cannot be opened."""
    version: int
    last_batch: int
    last_at: datetime
    last_change: RecordedChange | None


def read_tables(pipeline: Pipeline | ChangePipeline) -> list[TableSummary]:
    """Those that the source's records came to, by name; then the pipeline's own."""
    ledger = LedgerRows(pipeline)
    last_changes = {change.table: change for change in recorded_changes(ledger)}
    rows = ledger.query(_ONE_ROW_A_TABLE)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        columns = list(pool.map(lambda row: _columns(pipeline.lake, row["table"]), rows))
    found = [
        TableSummary(
            table=row["table"],
            kind=kind_of(pipeline, row["table"]),
            route=row["route"] if row["table"] != pipeline.own_tables.get("bronze") else None,
            rows=row["rows"] or 0,
            files=row["files"] or 0,
            bytes=row["bytes"] or 0,
            columns=count,
            version=row["table_version"],
            last_batch=row["version"],
            last_at=row["at"],
            last_change=last_changes.get(row["table"]),
        )
        for row, count in zip(rows, columns, strict=True)
    ]
    return sorted(
        found, key=lambda each: (each.kind in (TableKind.BRONZE, TableKind.QUARANTINE), each.table)
    )


def _columns(lake: str, table: str) -> int | None:
    try:
        return len(DeltaTable(str(Path(lake, table))).schema().fields)
    except (DeltaError, OSError):
        return None
