"""The ledger of what was done about the quarantine, beside that of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.plan import BatchPlan
from headgate.lake.ledger import Entry, Kind, Ledger, Pending, schema_rows
from headgate.quarantine.outcome import Settlement, SettlementNote, settle
from headgate.schema.changes import SchemaHistory


def name_in_ledger(pipeline: str) -> str:
    return f"{pipeline}:replay"


def name_of_files(pipeline: str) -> str:
    return f"{pipeline}.replay"


class SettlingLedger(Ledger):
    """Marks the rows of the quarantine last, before it says itself that all is done.

    It has marks and versions of its own, so that a replay and the stream never wait for each
    other.
    """

    def __init__(self, plan: BatchPlan, pipeline: str, note: SettlementNote) -> None:
        super().__init__(plan.lake, plan.ledger, name_in_ledger(pipeline))
        self._stream = Ledger(plan.lake, plan.ledger, pipeline)
        self._lake = plan.lake
        self._quarantine = plan.quarantine
        self._note = note
        self.settlement: Settlement | None = None
        """Of the version that was completed last; None where only waiting files landed."""
        self.entries: Sequence[Entry] = ()

    def table_versions(self) -> dict[str, int]:
        """The version that each table had, whoever gave it to it."""
        stream, own = self._stream.table_versions(), super().table_versions()
        return {table: max(stream.get(table, -1), own.get(table, -1)) for table in {*stream, *own}}

    def waiting_of_stream(self) -> tuple[Pending, ...]:
        """Files of the stream that are not committed yet."""
        progress = self._stream.progress()
        return progress.pending if progress else ()

    def history(self) -> SchemaHistory:
        """The schemas that tables have met, in the stream or in a replay."""
        return SchemaHistory.of(schema_rows(self._stream, self))

    def complete(self, version: int, batch: int, entries: Sequence[Entry]) -> None:
        settlement = self._note.read(version)
        if settlement is not None:
            marked = settle(self._lake, self._quarantine, settlement)
            entries = [*entries, self._settled(settlement, marked)]
        super().complete(version, batch, entries)
        self._note.clear()
        self.settlement, self.entries = settlement, entries

    def _settled(self, settlement: Settlement, table_version: int) -> Entry:
        return Entry(
            Kind.SETTLED,
            table=self._quarantine,
            rows=settlement.left,
            table_version=table_version,
            detail={
                "state": settlement.state.value,
                "taken": settlement.taken,
                "remaining": dict(settlement.remaining),
                "wanted": dict(settlement.wanted),
            },
        )
