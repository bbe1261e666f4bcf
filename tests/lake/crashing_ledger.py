"""A run that ends between the commits of a batch and its row in the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import Entry
from headgate.testing import Crash


class CrashingLedger(Ledger):
    """A ledger that crashes before it records a batch."""

    crashing = False

    def complete(
        self, version: int, batch: int, entries: Sequence[Entry], landed: int | None
    ) -> None:
        if self.crashing:
            raise Crash("ledger")
        super().complete(version, batch, entries, landed)
