"""Rows of a pipeline in its ledger."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import ENTRY_TYPES, Entry, LedgerRow


def all_rows(ledger: Ledger) -> list[LedgerRow[Entry]]:
    snapshot = ledger.snapshot()
    return [row for kind in ENTRY_TYPES for row in snapshot.entries(kind)]


def complete(ledger: Ledger, version: int, batch: int, entries: Sequence[Entry]) -> None:
    """Complete a batch after whatever has landed."""
    ledger.complete(version, batch, entries, ledger.landed())
