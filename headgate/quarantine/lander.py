"""The ledger of replays, which have versions of their own beside those of the stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from headgate.engine.batch import BatchLander
from headgate.engine.events import BatchLanded, Event, Listener
from headgate.engine.plan import BatchPlan
from headgate.engine.quarantined import QuarantineState
from headgate.errors import LandingError
from headgate.lake.commit import Committer
from headgate.lake.ledger import Ledger, Pending, replay_name
from headgate.lake.ledger_entries import Entry, QuarantineEntry, TableEntry
from headgate.lake.snapshot import table_url
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.outcome import OutcomeNote, ReplayOutcome, name_rows, record_outcome
from headgate.quarantine.snapshot import QuarantineSnapshot
from headgate.schema.changes import SchemaHistory
from headgate.sources.batch import Extent


def name_of_files(pipeline: str) -> str:
    """Return the name of a pipeline's replays in file names."""
    return f"{pipeline}.replay"


class ReplayLedger(Ledger):
    """Updates the rows of the quarantine before it completes a batch of a replay.

    Its transactions and versions are its own, so that a replay and the stream never wait for each
    other.
    """

    def __init__(self, plan: BatchPlan, pipeline: str, note: OutcomeNote) -> None:
        super().__init__(plan.lake, plan.ledger, replay_name(pipeline))
        self._stream_name = pipeline
        self._stream = Ledger(plan.lake, plan.ledger, pipeline)
        self._lake = plan.lake
        self._quarantine = plan.quarantine
        self._note = note
        self.outcome: ReplayOutcome | None = None
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
        outcome = self._note.read(version)
        if outcome is not None:
            marked = record_outcome(self._lake, self._quarantine, outcome)
            entries = [*entries, self._new_state(outcome, marked)]
        super().complete(version, batch, entries)
        self._note.clear()
        self.outcome, self.entries = outcome, entries

    def _new_state(self, outcome: ReplayOutcome, table_version: int) -> QuarantineEntry:
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
"""Stages a portion and says what becomes of its rows once its files are committed."""


class ReplayLander:
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
        self._outcomes = OutcomeNote(plan.lake, name_of_files(pipeline))
        self.ledger = ReplayLedger(plan, pipeline, self._outcomes)
        progress = self.ledger.progress()
        self._lander = BatchLander(
            ledger=self.ledger,
            note=self._note,
            committer=committer,
            plan=plan,
            listener=self._emit,
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
        if self._outcomes.read(staged.version) is None:
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
        self, wanted: QuarantineFilter, snapshot: QuarantineSnapshot, stage: StageReplay
    ) -> None:
        """One portion of a snapshot."""
        if not self._begun:
            self.ledger.start("replay", 0)
            self._begun = True

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
        """Rows by table that could not be committed yet."""
        rows: Counter[str] = Counter()
        for one in self._lander.pending:
            rows[one.file.table] += one.file.rows
        return rows

    def _open_quarantine(self) -> QuarantineSnapshot | None:
        plan = self.plan
        return QuarantineSnapshot.open(plan.lake, plan.quarantine, plan.names_of_route)

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
            still = {**event.quarantined, **self.ledger.outcome.remaining}
            event = replace(event, quarantined=still)
        self.listener(event)
