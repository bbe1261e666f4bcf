"""Lands batches: one Spark job to stage a batch, one commit per table, the ledger last."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any

import pyarrow as pa

from headgate.engine.events import (
    BatchLanded,
    BatchSkipped,
    Event,
    ExpectationsBroken,
    FilesLost,
    Listener,
    SchemaChanged,
    TableWaits,
)
from headgate.engine.follow_up import FollowedUpTo, Follower, TableChanged
from headgate.engine.land_table import (
    BatchMark,
    TableLanded,
    TablePending,
    VersionBefore,
    land_table,
)
from headgate.engine.plan import BatchPlan
from headgate.errors import CheckpointError
from headgate.lake.commit import Committer, Mark
from headgate.lake.ledger import Ledger, Pending, compact_in_time
from headgate.lake.ledger_entries import (
    BatchEntry,
    Entry,
    ExpectationEntry,
    LostEntry,
    PendingEntry,
    SchemaEntry,
    TableEntry,
)
from headgate.lake.ledger_snapshot import record_change
from headgate.lake.staged import (
    BlockedSchemaChange,
    ExpectationResult,
    StagedBatch,
    StagedBatchNote,
    StagedFile,
    sum_blocked,
    sum_expectations,
)
from headgate.lake.staged_files import delete_leftovers, delete_staged, is_staged, writer_of
from headgate.lake.storage import tables_at_once
from headgate.lake.streams import run_app
from headgate.schema.changes import CreateTable, Outcome, SameColumns, SchemaChange, SchemaHistory
from headgate.sources.batch import Extent, continues
from headgate.sources.identity import in_the_same


@dataclass(frozen=True)
class BatchOutcome:
    """Landed and pending tables of a batch, blocked schema changes and results of expectations."""

    tables: Sequence[TableLanded | TablePending]
    blocked: Sequence[BlockedSchemaChange] = ()
    expectations: Sequence[ExpectationResult] = ()

    @property
    def landed(self) -> list[TableLanded]:
        return [one for one in self.tables if isinstance(one, TableLanded)]

    @property
    def pending(self) -> tuple[Pending, ...]:
        tables = [one for one in self.tables if isinstance(one, TablePending)]
        return tuple(file for one in tables for file in one.files)

    def changes(self, tables: Collection[str]) -> list[SchemaChange]:
        """Return the schema changes of some tables."""
        landed = [one for one in self.landed if one.table in tables]
        changes = [requested.change for one in landed for requested in one.changes]
        return [change for change in changes if not isinstance(change, SameColumns)]

    def entries(self, history: SchemaHistory) -> Iterator[Entry]:
        """Return rows of the ledger for tables, schema changes, expectations and pending files."""
        for rule in self.expectations:
            yield ExpectationEntry.of(rule)
        for blocked in self._newly_blocked(history):
            yield SchemaEntry.of(
                blocked.table, blocked.change, blocked.schema_ids, rows=blocked.rows
            )
        for one in self.tables:
            yield from _lost_entries(one)
            if isinstance(one, TablePending):
                yield from _pending_entries(one)
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
            for requested in one.changes:
                yield SchemaEntry.of(one.table, requested.change, requested.schema_ids, one.route)

    def events(self, batch: int, history: SchemaHistory) -> Iterator[Event]:
        """Return events for listeners, without those of schemas that change no columns."""
        for blocked in self._newly_blocked(history):
            yield SchemaChanged(batch, blocked.table, blocked.change, blocked.schema_ids)
        if broken := tuple(one for one in self.expectations if one.failed):
            yield ExpectationsBroken(batch, broken)
        for one in self.tables:
            if one.lost:
                paths = tuple(lost.file.path for lost in one.lost)
                yield FilesLost(batch, one.table, sum(lost.file.rows for lost in one.lost), paths)
            if isinstance(one, TablePending):
                rows = sum(pending.file.rows for pending in one.files)
                if one.files:
                    yield TableWaits(batch, one.table, rows, one.error)
                continue
            for requested in one.changes:
                if not isinstance(requested.change, SameColumns):
                    yield SchemaChanged(batch, one.table, requested.change, requested.schema_ids)

    def _newly_blocked(self, history: SchemaHistory) -> list[BlockedSchemaChange]:
        """Return the blocked changes of schemas that are not in the ledger yet.

        Each schema is reported once; the records that it affects are in the quarantine.
        """
        return [
            one
            for one in self.blocked
            if not history.of_table(one.table).schema_ids.issuperset(one.schema_ids or (-1,))
        ]

    def _discarded(self, table: str) -> dict[str, int]:
        """Count the rows that landed without the value of a column, by column."""
        counts: Counter[str] = Counter()
        for one in self.blocked:
            if one.table == table and one.change.outcome is Outcome.DISCARDED:
                counts[one.change.column] += one.rows
        return dict(counts)


def _pending_entries(table: TablePending) -> Iterator[PendingEntry]:
    for one in table.files:
        yield PendingEntry(table.table, one.file.rows, one.version, one.file, table.error)


def _lost_entries(table: TableLanded | TablePending) -> Iterator[LostEntry]:
    for one in table.lost:
        error = "the staged file is gone"
        yield LostEntry(table.table, one.file.rows, one.version, one.file, error)


Stage = Callable[[BatchPlan], list[StagedFile]]
"""Runs the Spark job that stages a batch."""


@dataclass
class BatchLander:
    """Lands one batch after the other. All of its state can be restored from the lake."""

    ledger: Ledger
    note: StagedBatchNote
    committer: Committer
    plan: BatchPlan
    """The plan of the next batch, without its version and the tables known by then."""
    listener: Listener
    first_version: int = 0
    landed: int | None = None
    ended_at: Any = None
    """Where the newest batch ends in the source."""
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, or of the table, that this counts in."""
    pending: tuple[Pending, ...] = ()
    known_tables: set[str] = field(default_factory=set)
    history: SchemaHistory = field(default_factory=SchemaHistory)
    follower: Follower = field(default_factory=lambda: Follower(()))
    """Updates tables that depend on those of a batch, once it is complete."""
    pending_elsewhere: Callable[[], Iterable[Pending]] = tuple
    """Pending files of another run over the same tables."""
    after_failure: bool = False
    """Whether an earlier run may have left files of the next batch behind."""
    _shapes: dict[str, pa.Schema] = field(default_factory=dict)
    """Columns of tables with a strict contract, and of those whose files were refitted."""

    def land(self, extent: Extent, stage: Stage) -> None:
        """Land a batch, unless an earlier run has landed it."""
        self._land(extent, stage)

    def land_staged(self, staged: StagedBatch) -> None:
        """Land a batch whose files are all written, without reading the source again."""
        extent = Extent(staged.batch, staged.start, staged.end, source_ids=staged.source_ids)
        self._land(extent, None)

    def _land(self, extent: Extent, stage: Stage | None) -> None:
        version = self.first_version + extent.batch
        if self._has_landed(version, extent):
            self.listener(BatchSkipped(extent.batch))
            return
        began = perf_counter()
        noted = self._staged_before(version, extent)
        run = noted.run if noted else self.ledger.run
        versions_before = self.ledger.table_versions() if noted else None
        is_noted = noted is not None and (stage is None or not self._has_gaps(noted))
        files = list(noted.files) if noted and is_noted else self._stage(version, stage)
        self.ledger.require_ownership()
        if not is_noted:
            self.note.write(
                StagedBatch(
                    version,
                    extent.batch,
                    extent.start,
                    extent.end,
                    tuple(files),
                    run,
                    extent.source_ids,
                )
            )
        staged = perf_counter()
        tables = self._commit(files, version, run, versions_before)
        committed = perf_counter()
        blocked = sum_blocked(one for file in files for one in file.blocked)
        expectations = sum_expectations(one for file in files for one in file.expectations)
        outcome = BatchOutcome(tables, blocked, expectations)
        changed = self._changed(outcome, files)
        events = list(outcome.events(extent.batch, self.history))
        self._complete(version, extent.batch, outcome, extent)
        self.follower.follow(changed, version, extent.batch)
        if self.after_failure:
            delete_leftovers(self.plan.lake, self.ledger.app, version, files)
            self.after_failure = False
        landed = _batch_landed(extent, outcome, files, self._own_tables)
        ended = perf_counter()
        for event in events:
            self.listener(event)
        self.listener(landed(ended - began, staged - began, committed - staged))

    def land_pending(self) -> list[TableChanged]:
        """Retry pending files at the start of a run, without a batch."""
        if not self.pending or self.landed is None:
            return []
        outcome = BatchOutcome(self._commit([], self.landed, self.ledger.run))
        changed = self._changed(outcome, ())
        if outcome.landed or any(one.lost for one in outcome.tables):
            batch = self.landed - self.first_version
            events = list(outcome.events(batch, self.history))
            self._complete(self.landed, batch, outcome)
            for event in events:
                if isinstance(event, FilesLost):
                    self.listener(event)
        return changed

    def record(self, followed: FollowedUpTo) -> None:
        """Record follow-ups without a batch."""
        if self.landed is not None:
            self._mark(followed)
            self.ledger.add(self.landed, followed.entries)

    def _mark(self, followed: FollowedUpTo) -> None:
        if followed.version is not None:
            self.ledger.followed = followed.version

    def _has_landed(self, version: int, extent: Extent) -> bool:
        """Whether an earlier run has landed the batch.

        Raise if it is not the next one either: records between the two would be lost.
        """
        landed = -1 if self.landed is None else self.landed
        if version < landed or version > landed + 1:
            raise CheckpointError(
                "batch-out-of-order",
                f"batch {extent.batch} is version {version}, but the ledger ends at {landed}",
                hint="the checkpoint and the lake are not from the same time: run with "
                "--from-ledger to continue where the ledger ends",
            )
        position = extent.end if version == landed else extent.start
        ended_at = in_the_same(self.ended_at, self.source_ids, extent.source_ids)
        if not continues(ended_at, position):
            raise _other_records(extent.batch, ended_at, position)
        return version == landed

    def _changed(self, outcome: BatchOutcome, files: Iterable[StagedFile]) -> list[TableChanged]:
        """Return the tables with the committed files, and add those of landed ones to the plan."""
        committed: dict[str, list[StagedFile]] = defaultdict(list)
        for file in (*files, *(one.file for one in self.pending)):
            committed[file.table].append(file)
        changed = [
            TableChanged(
                one.table,
                one.route,
                tuple(committed[one.table]),
                one.version,
                one.schema,
                self.committer.definition(one.table, one.version),
                one.table in self._own_tables,
            )
            for one in outcome.landed
        ]
        self.plan = self.plan.with_committed([one for one in changed if not one.is_own])
        return [replace(table, source=self.plan.source_of(table.table)) for table in changed]

    def _staged_before(self, version: int, extent: Extent) -> StagedBatch | None:
        """Return a batch that an earlier run staged but did not complete."""
        noted = self.note.under_way(self.landed)
        if noted is None or noted.version != version:
            return None
        if noted.end != extent.end:
            self.ledger.require_ownership()  # the note may be that of a run that has taken over
            raise CheckpointError(
                "checkpoint-foreign",
                f"batch {extent.batch} was staged up to {noted.end}, but the checkpoint ends it at "
                f"{extent.end}",
                hint="restore the checkpoint that belongs to this lake",
            )
        return noted

    def _has_gaps(self, noted: StagedBatch) -> bool:
        """Whether staged files are gone before their tables have them."""
        gone = {file.table for file in noted.files if not is_staged(self.plan.lake, file)}
        states = (self.committer.state(table, self.ledger.app) for table in gone)
        return any(
            state is None or state.marked is None or state.marked < noted.version
            for state in states
        )

    def _stage(self, version: int, stage: Stage | None) -> list[StagedFile]:
        assert stage is not None
        pending = {one.file.table for one in self.pending}
        known = frozenset((self.known_tables | pending) - self._own_tables)
        plan = replace(
            self.plan,
            version=version,
            writer=self._writer,
            known_tables=known,
            seen_schema_ids=self.history.schema_ids,
            began=time() * 1000,
        )
        plan = plan.with_pending(one.file for one in (*self.pending, *self.pending_elsewhere()))
        plan = plan.with_shapes({**self._shapes, **self._strict_shapes(known)})
        files = stage(plan)
        while (again := plan.replan(files)) is not None:
            for file in files:
                delete_staged(plan.lake, file)
            plan = again
            files = stage(plan)
        return files

    def _strict_shapes(self, known: Iterable[str]) -> dict[str, pa.Schema]:
        """Return the columns of tables with a strict contract, which are read once per run."""
        strict = [table for table in known if self.plan.contract.for_table(table).strict]
        for table in strict:
            if table not in self._shapes:
                state = self.committer.state(table, self.ledger.app)
                if state is not None:
                    self._shapes[table] = state.schema
        return {table: self._shapes[table] for table in strict if table in self._shapes}

    @property
    def _writer(self) -> str:
        return writer_of(self.ledger.app)

    @property
    def _own_tables(self) -> set[str]:
        return set(self.plan.own_tables)

    def _commit(
        self,
        files: Sequence[StagedFile],
        version: int,
        run: int | None,
        versions_before: dict[str, int] | None = None,
    ) -> list[TableLanded | TablePending]:
        app = self.ledger.app
        marks = BatchMark(Mark(app, version), None if run is None else Mark(run_app(app), run))
        by_table: dict[str, list[StagedFile]] = defaultdict(list)
        for file in files:
            by_table[file.table].append(file)
        pending: dict[str, list[Pending]] = defaultdict(list)
        for one in self.pending:
            pending[one.file.table].append(one)

        def land(table: str) -> TableLanded | TablePending:
            return land_table(
                self.committer,
                self.plan.lake,
                table,
                self.plan.table_shape(table),
                by_table.get(table, ()),
                pending.get(table, ()),
                marks,
                self.history.of_table(table),
                self.plan.contract,
                None if versions_before is None else VersionBefore(versions_before.get(table)),
            )

        workers = tables_at_once(self.plan.lake)
        with ThreadPoolExecutor(workers, "commit") as pool:
            return list(pool.map(land, sorted({*by_table, *pending})))

    def _complete(
        self,
        version: int,
        batch: int,
        outcome: BatchOutcome,
        extent: Extent | None = None,
    ) -> None:
        followed = self.follower.finished()
        self._mark(followed)
        entries = [*outcome.entries(self.history), *followed.entries]
        if extent is not None:
            rows = sum(entry.rows for entry in entries if isinstance(entry, TableEntry))
            entries.append(BatchEntry(rows, extent.start, extent.end, extent.source_ids))
        self.ledger.complete(version, batch, entries, self.landed)
        for table, shape in self.plan.own_tables.items():
            if shape.is_compacted:
                compact_in_time(self.committer, table, version)
        self.landed = version
        if extent is not None:
            self.ended_at, self.source_ids = extent.end, extent.source_ids
        self.pending = outcome.pending
        self.known_tables |= {one.table for one in outcome.landed} - self._own_tables
        for entry in entries:
            if isinstance(entry, SchemaEntry):
                record_change(self.history, entry)
        for one in outcome.landed:
            if one.refitted or one.table in self._shapes:
                self._shapes[one.table] = one.schema


def _other_records(batch: int, ended_at: Any, found: Any) -> CheckpointError:
    return CheckpointError(
        "batch-out-of-order",
        f"the ledger ends at {ended_at} in the source, but batch {batch} of the checkpoint is at "
        f"{found}",
        hint="the checkpoint belongs to another copy of the lake: run with --from-ledger to "
        "continue where the ledger ends",
    )


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
