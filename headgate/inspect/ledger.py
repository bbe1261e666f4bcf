"""The ledger of a pipeline, opened for reading, and the schema changes recorded in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from headgate.config import PipelineConfig
from headgate.lake.ledger_entries import Kind, LedgerRow, SchemaEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot, TableTotals


@dataclass(frozen=True)
class PipelineLedger:
    """One version of the ledger: the rows of all streams, of replays, and of both."""

    stream: LedgerSnapshot
    replays: LedgerSnapshot
    everything: LedgerSnapshot

    @cached_property
    def landed(self) -> dict[str, TableTotals]:
        """The tables that records or changes landed in, by name."""
        return self.everything.tables(Kind.TABLE)


def open_ledger(pipeline: PipelineConfig) -> PipelineLedger:
    everything = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    *streams, replays = everything.names
    return PipelineLedger(everything.of(*streams), everything.of(replays), everything)


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


def recorded_changes(ledger: PipelineLedger, table: str | None = None) -> list[RecordedChange]:
    """Return the changes of one table or of all, the oldest first."""
    rows = ledger.everything.entries(SchemaEntry, table=table)
    # Replays count their versions separately, so time comes first.
    rows.sort(key=lambda row: (row.at, row.version, row.entry.table))
    return [_recorded_change(row) for row in rows]


def _recorded_change(row: LedgerRow[SchemaEntry]) -> RecordedChange:
    entry = row.entry
    return RecordedChange(
        table=entry.table,
        batch=row.version,
        at=row.at,
        change=entry.change,
        column=entry.column,
        outcome=entry.outcome,
        text=str(entry.schema_change or f"{entry.change} {entry.column}"),
        schema_ids=entry.schema_ids,
    )
