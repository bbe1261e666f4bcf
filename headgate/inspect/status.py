"""How a pipeline stands: what it has landed, what waits, and whether it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from headgate.inspect.current_run import CurrentRun, find_current_run
from headgate.inspect.ledger_rows import of_kind, read_ledger
from headgate.inspect.own_tables import TableKind, kind_of
from headgate.inspect.pending_tables import PendingTable, pending_tables
from headgate.inspect.quarantined_records import count_by_reason
from headgate.inspect.recorded_change import recorded_change
from headgate.land.ledger import Kind
from headgate.pipeline import Pipeline


@dataclass(frozen=True)
class LastBatch:
    """The newest batch that is complete."""

    batch: int
    at: datetime
    rows: int
    tables: int


@dataclass(frozen=True)
class Status:
    """One pipeline at one moment."""

    pipeline: str
    file: str | None
    lake: str
    run: CurrentRun | None
    batches: int
    last_batch: LastBatch | None
    open_batch: int | None
    """A batch that was begun and is not complete yet."""
    rows: int
    """Records in silver tables."""
    quarantined: Mapping[str, int]
    """How many for which reason."""
    tables: int
    pending: tuple[PendingTable, ...]
    schema_changes: int
    """Changes of tables that were there already; new tables are not counted."""


def read_status(pipeline: Pipeline) -> Status:
    ledger = read_ledger(pipeline)
    silver = _silver_part(pipeline, of_kind(ledger, Kind.TABLE))
    versions = pc.unique(of_kind(ledger, Kind.BATCH).column("version"))
    newest = pc.max(versions).as_py()
    begun = pc.max(of_kind(ledger, Kind.BEGIN).column("version")).as_py()
    is_open = begun is not None and (newest is None or begun > newest)
    changes = [recorded_change(row) for row in of_kind(ledger, Kind.SCHEMA).to_pylist()]
    return Status(
        pipeline=pipeline.name,
        file=pipeline.file,
        lake=pipeline.lake,
        run=find_current_run(pipeline),
        batches=len(versions),
        last_batch=None if newest is None else _last_batch(ledger, silver, newest),
        open_batch=begun if is_open else None,
        rows=_sum(silver, "rows"),
        quarantined=count_by_reason(pipeline),
        tables=len(pc.unique(silver.column("table"))),
        pending=pending_tables(ledger),
        schema_changes=sum(
            each.change != "CreateTable" and kind_of(pipeline, each.table) == TableKind.SILVER
            for each in changes
        ),
    )


def _last_batch(ledger: pa.Table, silver: pa.Table, version: int) -> LastBatch:
    complete = of_kind(ledger, Kind.BATCH)
    mine = complete.filter(pc.equal(complete.column("version"), version))
    parts = silver.filter(pc.equal(silver.column("version"), version))
    return LastBatch(
        batch=version,
        at=pc.max(mine.column("at")).as_py(),
        rows=_sum(parts, "rows"),
        tables=len(pc.unique(parts.column("table"))),
    )


def _silver_part(pipeline: Pipeline, tables: pa.Table) -> pa.Table:
    own = [name for name in (pipeline.bronze, pipeline.quarantine) if name]
    return tables.filter(pc.invert(pc.is_in(tables.column("table"), pa.array(own))))


def _sum(rows: pa.Table, column: str) -> int:
    return int(pc.sum(rows.column(column)).as_py() or 0)
