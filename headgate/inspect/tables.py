"""The tables of a pipeline, one line each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.inspect.ledger_rows import of_kind, read_ledger
from headgate.inspect.own_tables import TableKind, kind_of
from headgate.inspect.recorded_change import RecordedChange, recorded_change
from headgate.land.ledger import Kind
from headgate.pipeline import Pipeline

_SIDE_BY_SIDE = 8


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


def read_tables(pipeline: Pipeline) -> list[TableSummary]:
    """Silver tables by name, then the pipeline's own."""
    ledger = read_ledger(pipeline)
    changes: dict[str, RecordedChange] = {}
    for row in of_kind(ledger, Kind.SCHEMA).sort_by("version").to_pylist():
        changes[row["table"]] = recorded_change(row)
    rows = _one_row_a_table(of_kind(ledger, Kind.TABLE))
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        columns = list(pool.map(lambda row: _columns(pipeline.lake, row["table"]), rows))
    found = [
        TableSummary(
            table=row["table"],
            kind=kind_of(pipeline, row["table"]),
            route=row["route_max"] if row["table"] != pipeline.bronze else None,
            rows=row["rows_sum"] or 0,
            files=row["files_sum"] or 0,
            bytes=row["bytes_sum"] or 0,
            columns=count,
            version=row["table_version_max"],
            last_batch=row["version_max"],
            last_at=row["at_max"],
            last_change=changes.get(row["table"]),
        )
        for row, count in zip(rows, columns, strict=True)
    ]
    return sorted(found, key=lambda each: (each.kind != TableKind.SILVER, each.table))


def _one_row_a_table(landed: pa.Table) -> list[dict[str, Any]]:
    sums = [(name, "sum") for name in ("rows", "files", "bytes")]
    newest = [(name, "max") for name in ("version", "at", "table_version", "route")]
    return list(landed.group_by("table").aggregate([*sums, *newest]).to_pylist())


def _columns(lake: str, table: str) -> int | None:
    try:
        return len(DeltaTable(str(Path(lake, table)), without_files=True).schema().fields)
    except (DeltaError, OSError):
        return None
