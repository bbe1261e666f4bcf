"""Lands portions of the quarantine as batches of a stream are landed.

The files of a portion are noted, every table is committed once with a mark, and only then are the
portion's rows marked in the quarantine, and in the ledger last. The marks are a sequence of their
own, so that the stream may land meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from headgate.engine.batch import BatchLander
from headgate.engine.events import BatchLanded, Event, Listener
from headgate.engine.plan import BatchPlan
from headgate.engine.quarantine_table import QuarantineState
from headgate.errors import LandingError
from headgate.lake.commit import Committer
from headgate.lake.ledger_entries import TableEntry
from headgate.lake.snapshot import table_url
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.ledger import SettlingLedger, name_of_files
from headgate.quarantine.outcome import Settlement, SettlementNote, name_rows
from headgate.quarantine.snapshot import QuarantineSnapshot
from headgate.sources.batch import Extent

StageAndSettle = Callable[[BatchPlan], tuple[list[StagedFile], Settlement]]
"""Stages a portion and says what becomes of its rows once its files are committed."""


class SettlingLander:
    """Works on the quarantine of one pipeline; what it remembers can all be told from the lake."""

    def __init__(
        self, plan: BatchPlan, committer: Committer, pipeline: str, listener: Listener
    ) -> None:
        plan = replace(plan, from_quarantine=True)
        self.listener = listener
        self.taken = 0
        self.landed: Counter[str] = Counter()
        """Rows by silver table or change log."""
        self.remaining: Counter[str] = Counter()
        self._note = StagedBatchNote(plan.lake, name_of_files(pipeline))
        self._settlements = SettlementNote(plan.lake, name_of_files(pipeline))
        self.ledger = SettlingLedger(plan, pipeline, self._settlements)
        progress = self.ledger.progress()
        self._lander = BatchLander(
            ledger=self.ledger,
            note=self._note,
            committer=committer,
            plan=plan,
            listener=self._tell,
            landed=progress.landed if progress else None,
            pending=progress.pending if progress else (),
            known_tables=set(plan.tables_in_lake()),
            history=self.ledger.history(),
            pending_elsewhere=self.ledger.pending_of_stream,
        )
        self._begun = progress is not None

    @property
    def plan(self) -> BatchPlan:
        return self._lander.plan

    def complete(self) -> bool:
        """Land what waits and what was cut short; whether there was such a portion."""
        if not self._begun:
            return False
        self._lander.land_pending()
        self._count()
        staged = self._note.under_way(self._lander.landed)
        if staged is None:
            return False
        if self._settlements.read(staged.version) is None:
            raise LandingError(
                "lake-unreadable",
                "a replay was cut short, and the note of its records is gone",
                hint="restore the folder `_staged` of the lake",
                where=table_url(self.plan.lake, "_staged"),
            )
        self._lander.land_staged(staged)
        self._count()
        return True

    def snapshot(self) -> QuarantineSnapshot | None:
        """The quarantine with all its rows named; None where there is none."""
        if self._open_quarantine() is None:
            return None
        name_rows(self.plan.lake, self.plan.quarantine)
        return self._open_quarantine()

    def land(
        self, wanted: QuarantineFilter, snapshot: QuarantineSnapshot, stage: StageAndSettle
    ) -> None:
        """One portion of a snapshot."""
        if not self._begun:
            self.ledger.start("replay", 0)
            self._begun = True

        def run(plan: BatchPlan) -> list[StagedFile]:
            staged, settlement = stage(plan)
            self._settlements.write(settlement)
            return staged

        landed = self._lander.landed
        version = 0 if landed is None else landed + 1
        taken_from = {"quarantine_version": snapshot.table.version}
        self._lander.land(Extent(version, wanted.as_record(), taken_from), run)
        self._count()

    @property
    def waiting(self) -> Counter[str]:
        """Rows by table that could not be committed yet."""
        rows: Counter[str] = Counter()
        for one in self._lander.pending:
            rows[one.file.table] += one.file.rows
        return rows

    def _open_quarantine(self) -> QuarantineSnapshot | None:
        plan = self.plan
        return QuarantineSnapshot.open(plan.lake, plan.quarantine, plan.names_of_route)

    def _count(self) -> None:
        settlement = self.ledger.settlement
        if settlement is not None and settlement.state is QuarantineState.REPLAYED:
            self.taken += settlement.taken
            self.remaining.update(settlement.remaining)
        own = self.plan.own_tables
        for entry in self.ledger.entries:
            if isinstance(entry, TableEntry) and entry.table not in own:
                self.landed[entry.table] += entry.rows

    def _tell(self, event: Event) -> None:
        if isinstance(event, BatchLanded) and self.ledger.settlement is not None:
            still = {**event.quarantined, **self.ledger.settlement.remaining}
            event = replace(event, quarantined=still)
        self.listener(event)
