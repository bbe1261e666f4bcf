"""A batch: one Spark job to stage it, one commit a table, the ledger last."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import perf_counter, time

import pyarrow as pa

from headgate.engine.events import (
    BatchLanded,
    BatchSkipped,
    Event,
    ExpectationsBroken,
    Listener,
    SchemaChanged,
    TableWaits,
)
from headgate.engine.follow_up import FollowUp, TableChanged, follow_all
from headgate.engine.land_table import Before, TableLanded, TablePending, land_table
from headgate.engine.plan import BatchPlan
from headgate.errors import CheckpointError
from headgate.lake.commit import Committer, Mark
from headgate.lake.ledger import Ledger, Pending, record_change
from headgate.lake.ledger_entries import (
    BatchEntry,
    Entry,
    ExpectationEntry,
    PendingEntry,
    SchemaEntry,
    TableEntry,
)
from headgate.lake.parquet import delete_staged
from headgate.lake.staged import (
    Checked,
    StagedBatch,
    StagedBatchNote,
    StagedFile,
    Withheld,
    added_up,
    rules_added_up,
)
from headgate.schema.changes import CreateTable, Outcome, SameColumns, SchemaChange, SchemaHistory
from headgate.sources.batch import Extent


@dataclass(frozen=True)
class BatchOutcome:
    """The tables of a batch, what contracts kept out of them, and how rows fared by rules."""

    tables: Sequence[TableLanded | TablePending]
    withheld: Sequence[Withheld] = ()
    expectations: Sequence[Checked] = ()

    @property
    def landed(self) -> list[TableLanded]:
        return [one for one in self.tables if isinstance(one, TableLanded)]

    @property
    def pending(self) -> tuple[Pending, ...]:
        waiting = [one for one in self.tables if isinstance(one, TablePending)]
        return tuple(file for one in waiting for file in one.files)

    def changes(self, among: Collection[str]) -> list[SchemaChange]:
        """What happened to the columns of these tables."""
        mine = [table for table in self.landed if table.table in among]
        asked = [one.change for table in mine for one in table.changes]
        return [change for change in asked if not isinstance(change, SameColumns)]

    def entries(self, history: SchemaHistory) -> Iterator[Entry]:
        """Rows for the ledger: one a table, one a change, one a rule, one a file that waits."""
        for rule in self.expectations:
            yield ExpectationEntry.of(rule)
        for kept in self._news(history):
            yield SchemaEntry.of(kept.table, kept.change, kept.schema_ids, rows=kept.rows)
        for one in self.tables:
            if isinstance(one, TablePending):
                yield from _waiting(one)
                continue
            yield TableEntry(
                one.table,
                rows=one.rows,
                table_version=one.version,
                bytes=one.bytes,
                files=one.files,
                route=one.route,
                schema_ids=one.schema_ids,
                lineages=one.lineages,
                discarded=self._discarded(one.table),
                unknown_fields=one.unknown_fields,
            )
            for asked in one.changes:
                yield SchemaEntry.of(one.table, asked.change, asked.schema_ids, one.route)

    def events(self, batch: int, history: SchemaHistory) -> Iterator[Event]:
        """The same for listeners, but for what is not worth a word."""
        for kept in self._news(history):
            yield SchemaChanged(batch, kept.table, kept.change, kept.schema_ids)
        if broken := tuple(one for one in self.expectations if one.failed):
            yield ExpectationsBroken(batch, broken)
        for one in self.tables:
            if isinstance(one, TablePending):
                rows = sum(waiting.file.rows for waiting in one.files)
                yield TableWaits(batch, one.table, rows, one.error)
                continue
            for asked in one.changes:
                if not isinstance(asked.change, SameColumns):
                    yield SchemaChanged(batch, one.table, asked.change, asked.schema_ids)

    def _news(self, history: SchemaHistory) -> list[Withheld]:
        """Each schema is told of once; how many records it cost is in the quarantine."""
        return [
            one
            for one in self.withheld
            if not history.of_table(one.table).schema_ids.issuperset(one.schema_ids or (-1,))
        ]

    def _discarded(self, table: str) -> dict[str, int]:
        """Count the rows that landed without the value of a field, by field."""
        counts: Counter[str] = Counter()
        for one in self.withheld:
            if one.table == table and one.change.outcome is Outcome.DISCARDED:
                counts[one.change.column] += one.rows
        return dict(counts)


def _waiting(table: TablePending) -> Iterator[PendingEntry]:
    for one in table.files:
        yield PendingEntry(table.table, one.file.rows, one.version, one.file, table.error)


_SIDE_BY_SIDE = 16
"""Commits wait for the disk more than they compute."""

Stage = Callable[[BatchPlan], list[StagedFile]]
"""Runs the one Spark job of a batch."""


@dataclass
class BatchLander:
    """Lands one batch after the other; what it remembers can all be told from the lake."""

    ledger: Ledger
    note: StagedBatchNote
    committer: Committer
    plan: BatchPlan
    """The plan of the next batch, but for its version and the tables known by then."""
    listener: Listener
    first_version: int = 0
    landed: int | None = None
    pending: tuple[Pending, ...] = ()
    known_tables: set[str] = field(default_factory=set)
    history: SchemaHistory = field(default_factory=SchemaHistory)
    follow_ups: Sequence[FollowUp] = ()
    """What is made of the tables of a batch, before the ledger has it complete."""
    pending_elsewhere: Callable[[], Iterable[Pending]] = tuple
    """Files of another run over the same tables that wait to be committed."""
    _shapes: dict[str, pa.Schema] = field(default_factory=dict)
    """The columns of tables that do not follow every schema, and of those that refit files."""

    def land(self, extent: Extent, stage: Stage) -> None:
        version = self.first_version + extent.batch
        if self.landed is not None and version <= self.landed:
            self.listener(BatchSkipped(extent.batch))
            return
        began = perf_counter()
        files, versions_before = self._staged_before(version, extent), None
        if files is None:
            files = self._stage(version, stage)
            self.note.write(
                StagedBatch(version, extent.batch, extent.start, extent.end, tuple(files))
            )
        else:
            versions_before = self.ledger.table_versions()
        staged = perf_counter()
        tables = self._commit(files, version, versions_before)
        committed = perf_counter()
        withheld = added_up(one for file in files for one in file.withheld)
        checked = rules_added_up(one for file in files for one in file.expectations)
        outcome = BatchOutcome(tables, withheld, checked)
        changed = self._changed(outcome, files)
        followed = follow_all(self.follow_ups, changed, extent.batch)
        events = list(outcome.events(extent.batch, self.history))
        self._complete(version, extent.batch, outcome, extent, followed)
        event = _batch_landed(extent, outcome, files, self._own_tables)
        ended = perf_counter()
        for told in events:
            self.listener(told)
        self.listener(event(ended - began, staged - began, committed - staged))

    def land_staged(self, staged: StagedBatch) -> None:
        """A batch whose files are all noted: the source is not asked again."""

        def nothing_to_stage(plan: BatchPlan) -> list[StagedFile]:
            raise AssertionError(f"version {plan.version} is staged already")

        self.land(Extent(staged.batch, staged.start, staged.end), nothing_to_stage)

    def land_pending(self) -> list[TableChanged]:
        """Retry pending files at the start of a run, without a batch."""
        if not self.pending or self.landed is None:
            return []
        outcome = BatchOutcome(self._commit([], self.landed))
        changed = self._changed(outcome, ())
        if outcome.landed:
            self._complete(self.landed, self.landed - self.first_version, outcome)
        return changed

    def _changed(self, outcome: BatchOutcome, files: Iterable[StagedFile]) -> list[TableChanged]:
        """The landed tables and what was committed to them; the plan takes note of it."""
        committed: dict[str, list[StagedFile]] = defaultdict(list)
        for file in (*files, *(one.file for one in self.pending)):
            committed[file.table].append(file)
        changed = [
            TableChanged(one.table, one.route, tuple(committed[one.table]))
            for one in outcome.landed
            if one.table not in self._own_tables
        ]
        self.plan = self.plan.with_committed([file for one in changed for file in one.files])
        return changed

    def _staged_before(self, version: int, extent: Extent) -> list[StagedFile] | None:
        """The files of this batch, where it was staged whole and then not completed."""
        noted = self.note.read()
        if noted is None or noted.version != version:
            return None
        if noted.end != extent.end:
            raise CheckpointError(
                "checkpoint-foreign",
                f"batch {extent.batch} was staged up to {noted.end}, but the checkpoint ends it at "
                f"{extent.end}",
                hint="restore the checkpoint that belongs to this lake",
            )
        return list(noted.files)

    def _stage(self, version: int, stage: Stage) -> list[StagedFile]:
        waiting = {one.file.table for one in self.pending}
        known = frozenset((self.known_tables | waiting) - self._own_tables)
        plan = replace(
            self.plan,
            version=version,
            known_tables=known,
            met=self.history.schema_ids,
            began=time() * 1000,
        )
        plan = plan.with_pending(one.file for one in (*self.pending, *self.pending_elsewhere()))
        plan = plan.with_shapes({**self._shapes, **self._strict_shapes(known)})
        files = stage(plan)
        while (again := plan.reconsidered(files)) is not None:
            for file in files:
                delete_staged(plan.lake, file)
            plan = again
            files = stage(plan)
        return files

    def _strict_shapes(self, known: Iterable[str]) -> dict[str, pa.Schema]:
        """The columns of all tables that do not follow every schema; they are read once a run."""
        strict = [table for table in known if self.plan.contract.for_table(table).strict]
        for table in strict:
            if table not in self._shapes:
                state = self.committer.state(table, self.ledger.app)
                if state is not None:
                    self._shapes[table] = state.schema
        return {table: self._shapes[table] for table in strict if table in self._shapes}

    @property
    def _own_tables(self) -> set[str]:
        return set(self.plan.own_tables)

    def _commit(
        self,
        files: Sequence[StagedFile],
        version: int,
        versions_before: dict[str, int] | None = None,
    ) -> list[TableLanded | TablePending]:
        mark = Mark(self.ledger.app, version)
        by_table: dict[str, list[StagedFile]] = defaultdict(list)
        for file in files:
            by_table[file.table].append(file)
        waiting: dict[str, list[Pending]] = defaultdict(list)
        for one in self.pending:
            waiting[one.file.table].append(one)

        def land(table: str) -> TableLanded | TablePending:
            return land_table(
                self.committer,
                self.plan.lake,
                table,
                self.plan.table_shape(table),
                by_table.get(table, ()),
                waiting.get(table, ()),
                mark,
                self.history.of_table(table),
                self.plan.contract,
                None if versions_before is None else Before(versions_before.get(table)),
            )

        with ThreadPoolExecutor(_SIDE_BY_SIDE, "commit") as pool:
            return list(pool.map(land, sorted({*by_table, *waiting})))

    def _complete(
        self,
        version: int,
        batch: int,
        outcome: BatchOutcome,
        extent: Extent | None = None,
        followed: Sequence[Entry] = (),
    ) -> None:
        entries = [*outcome.entries(self.history), *followed]
        if extent is not None:
            rows = sum(entry.rows for entry in entries if isinstance(entry, TableEntry))
            entries.append(BatchEntry(rows, extent.start, extent.end))
        self.ledger.complete(version, batch, entries)
        self.landed = version
        self.pending = outcome.pending
        self.known_tables |= {one.table for one in outcome.landed} - self._own_tables
        for entry in entries:
            if isinstance(entry, SchemaEntry):
                record_change(self.history, entry)
        for one in outcome.landed:
            if one.refitted or one.table in self._shapes:
                self._shapes[one.table] = one.schema


def _batch_landed(
    extent: Extent, outcome: BatchOutcome, files: Sequence[StagedFile], own: set[str]
) -> Callable[[float, float, float], BatchLanded]:
    silver = [one for one in outcome.landed if one.table not in own]
    changes = outcome.changes({one.table for one in silver})
    reasons: Counter[str] = Counter()
    for file in files:
        reasons.update(file.reasons or {})
    return lambda seconds, staging, committing: BatchLanded(
        batch=extent.batch,
        rows=sum(one.rows for one in silver),
        quarantined=dict(reasons),
        tables=len(silver),
        new_tables=sum(isinstance(change, CreateTable) for change in changes),
        changes=sum(not isinstance(change, CreateTable) for change in changes),
        bytes=sum(one.bytes for one in outcome.landed),
        seconds=seconds,
        staging_seconds=staging,
        commit_seconds=committing,
        lag=extent.lag,
    )
