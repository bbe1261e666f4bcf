"""The ledger of replays, which have versions of their own beside those of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.plan import BatchPlan
from headgate.lake.ledger import Ledger, Pending, replay_name
from headgate.lake.ledger_entries import Entry, QuarantineEntry
from headgate.quarantine.outcome import Settlement, SettlementNote, settle
from headgate.schema.changes import SchemaHistory


def name_of_files(pipeline: str) -> str:
    """Return the name of a pipeline's replays in file names."""
    return f"{pipeline}.replay"


class SettlingLedger(Ledger):
    """Updates the rows of the quarantine before it completes a batch of a replay.

    Its transactions and versions are its own, so that a replay and the stream never wait for each
    other.
    """

    def __init__(self, plan: BatchPlan, pipeline: str, note: SettlementNote) -> None:
        super().__init__(plan.lake, plan.ledger, replay_name(pipeline))
        self._stream_name = pipeline
        self._stream = Ledger(plan.lake, plan.ledger, pipeline)
        self._lake = plan.lake
        self._quarantine = plan.quarantine
        self._note = note
        self.settlement: Settlement | None = None
        """That of the last completed version; None if it had only pending files."""
        self.entries: Sequence[Entry] = ()

    def table_versions(self) -> dict[str, int]:
        """Return the Delta version of each table after its last batch or replay."""
        stream, own = self._stream.table_versions(), super().table_versions()
        return {table: max(stream.get(table, -1), own.get(table, -1)) for table in {*stream, *own}}

    def pending_of_stream(self) -> tuple[Pending, ...]:
        """Return the files of the stream that are not committed yet."""
        progress = self._stream.progress()
        return progress.pending if progress else ()

    def history(self) -> SchemaHistory:
        """Return the schemas that tables have met, in the stream or in a replay."""
        names = self._stream_name, replay_name(self._stream_name)
        return self.snapshot().of(*names).schema_history()

    def complete(self, version: int, batch: int, entries: Sequence[Entry]) -> None:
        settlement = self._note.read(version)
        if settlement is not None:
            marked = settle(self._lake, self._quarantine, settlement)
            entries = [*entries, self._settled(settlement, marked)]
        super().complete(version, batch, entries)
        self._note.clear()
        self.settlement, self.entries = settlement, entries

    def _settled(self, settlement: Settlement, table_version: int) -> QuarantineEntry:
        return QuarantineEntry(
            self._quarantine,
            rows=settlement.left,
            table_version=table_version,
            state=settlement.state.value,
            taken=settlement.taken,
            remaining=settlement.remaining,
            filter=settlement.wanted,
        )
