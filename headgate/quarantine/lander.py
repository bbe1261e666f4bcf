"""Land portions of the quarantine as batches of a stream are landed.

The files of a portion are noted, each table is committed once with a mark, then the rows of the
quarantine are updated, and the ledger last. Replays have versions of their own, so that the stream
can land at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from headgate.engine.batch import BatchLander
from headgate.engine.events import BatchLanded, Event, Listener
from headgate.engine.plan import BatchPlan
from headgate.engine.quarantine_table import QuarantineState
from headgate.errors import LandingError
from headgate.lake.commit import Committer
from headgate.lake.ledger import Ledger, Pending, pending_files
from headgate.lake.ledger_entries import Entry, QuarantineEntry, TableEntry
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.lake.streams import replay_name
from headgate.lake.tables import table_url
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.outcome import OutcomeNote, ReplayOutcome, record_outcome
from headgate.quarantine.snapshot import QuarantineSnapshot
from headgate.schema.changes import SchemaHistory
from headgate.sources.batch import Extent


def name_of_files(pipeline: str) -> str:
    """Return the name of a pipeline's replays in file names."""
    return f"{pipeline}.replay"


class ReplayLedger(Ledger):
    """The ledger of replays; updates the rows of the quarantine before it completes a batch.

    Its transactions and versions are separate from those of the stream, so that neither waits for
    the other.
    """

    def __init__(
        self, plan: BatchPlan, committer: Committer, pipeline: str, note: OutcomeNote
    ) -> None:
        super().__init__(plan.lake, plan.ledger, replay_name(pipeline), committer)
        self._quarantine = plan.quarantine
        self._note = note
        self.outcome: ReplayOutcome | None = None
        """Outcome of the last completed version; None if it had only pending files."""
        self.entries: Sequence[Entry] = ()

    def table_versions(self) -> dict[str, int]:
        """Return the Delta version of each table after its last batch or replay."""
        stream, own = super().table_versions(), self.snapshot().table_versions()
        return {table: max(stream.get(table, -1), own.get(table, -1)) for table in {*stream, *own}}

    def pending_of_stream(self) -> tuple[Pending, ...]:
        """Return the files of the stream that are not committed yet."""
        return pending_files(self.snapshot().all_streams)

    def history(self) -> SchemaHistory:
        """Return the schemas that tables have met, in the stream or in a replay."""
        snapshot = self.snapshot()
        return snapshot.of(*snapshot.all_streams.names, snapshot.name).schema_history()

    def complete(
        self, version: int, batch: int, entries: Sequence[Entry], landed: int | None
    ) -> None:
        outcome = self._note.read(version)
        if outcome is not None:
            marked = record_outcome(self._committer, self._quarantine, outcome)
            entries = [*entries, self._entry(outcome, marked)]
        super().complete(version, batch, entries, landed)
        self._note.clear()
        self.outcome, self.entries = outcome, entries

    def _entry(self, outcome: ReplayOutcome, table_version: int) -> QuarantineEntry:
        return QuarantineEntry(
            self._quarantine,
            rows=outcome.left,
            table_version=table_version,
            state=outcome.state.value,
            taken=outcome.taken,
            remaining=outcome.remaining,
            filter=outcome.wanted,
        )


StageReplay = Callable[[BatchPlan], tuple[list[StagedFile], ReplayOutcome]]
"""Stages a portion; returns its files and the outcome once they are committed."""


class ReplayLander:
    """Replays and drops records of one pipeline; all its state can be restored from the lake."""

    def __init__(
        self,
        plan: BatchPlan,
        committer: Committer,
        pipeline: str,
        listener: Listener,
        holder: str,
    ) -> None:
        plan = replace(plan, from_quarantine=True)
        self.committer = committer
        self.listener = listener
        self.taken = 0
        self.landed: Counter[str] = Counter()
        """Rows by silver table or change log."""
        self.remaining: Counter[str] = Counter()
        self._note = StagedBatchNote(plan.lake, name_of_files(pipeline))
        self._outcomes = OutcomeNote(plan.lake, name_of_files(pipeline))
        self.ledger = ReplayLedger(plan, committer, pipeline, self._outcomes)
        progress = self.ledger.progress()
        self._holder = holder
        self._lander = BatchLander(
            ledger=self.ledger,
            note=self._note,
            committer=committer,
            plan=plan,
            listener=self._emit,
            landed=progress.landed if progress else None,
            ended_at=progress.ended_at if progress else None,
            pending=progress.pending if progress else (),
            known_tables=set(plan.tables_in_lake()),
            history=self.ledger.history(),
            pending_elsewhere=self.ledger.pending_of_stream,
        )
        self._started = progress is not None

    @property
    def plan(self) -> BatchPlan:
        return self._lander.plan

    def complete(self) -> bool:
        """Land pending files and an interrupted portion; return whether there was one."""
        if not self._started:
            return False
        self.ledger.take_over(self._holder)
        self._lander.land_pending()
        self._count()
        staged = self._note.under_way(self._lander.landed)
        if staged is None:
            return False
        if self._outcomes.read(staged.version) is None:
            raise LandingError(
                "lake-unreadable",
                "a replay was interrupted, and the note of its outcome is missing",
                hint="restore the folder `_staged` of the lake",
                where=table_url(self.plan.lake, "_staged"),
            )
        self._lander.land_staged(staged)
        self._count()
        return True

    def snapshot(self) -> QuarantineSnapshot | None:
        """Return the quarantine; None if there is no quarantine table."""
        plan = self.plan
        return QuarantineSnapshot.open(plan.lake, plan.quarantine, plan.names_of_route)

    def land(
        self, wanted: QuarantineFilter, snapshot: QuarantineSnapshot, stage: StageReplay
    ) -> None:
        """Land one portion of a snapshot."""
        if not self._started:
            self.ledger.start("replay", 0)
            self.ledger.take_over(self._holder)
            self._started = True

        def run(plan: BatchPlan) -> list[StagedFile]:
            staged, outcome = stage(plan)
            self._outcomes.write(outcome)
            return staged

        landed = self._lander.landed
        version = 0 if landed is None else landed + 1
        taken_from = {"quarantine_version": snapshot.table.version}
        self._lander.land(Extent(version, wanted.as_record(), taken_from), run)
        self._count()

    @property
    def waiting(self) -> Counter[str]:
        """Number of rows that could not be committed yet, by table."""
        rows: Counter[str] = Counter()
        for pending in self._lander.pending:
            rows[pending.file.table] += pending.file.rows
        return rows

    def _count(self) -> None:
        outcome = self.ledger.outcome
        if outcome is not None and outcome.state is QuarantineState.REPLAYED:
            self.taken += outcome.taken
            self.remaining.update(outcome.remaining)
        own = self.plan.own_tables
        for entry in self.ledger.entries:
            if isinstance(entry, TableEntry) and entry.table not in own:
                self.landed[entry.table] += entry.rows

    def _emit(self, event: Event) -> None:
        if isinstance(event, BatchLanded) and self.ledger.outcome is not None:
            quarantined = {**event.quarantined, **self.ledger.outcome.remaining}
            event = replace(event, quarantined=quarantined)
        self.listener(event)
