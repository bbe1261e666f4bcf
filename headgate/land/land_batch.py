"""A batch: one Spark job to stage it, one commit a table, the ledger last."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from headgate.errors import CheckpointError
from headgate.land.committer import Committer, Mark
from headgate.land.contested_shapes import contested_shapes
from headgate.land.event import BatchLanded, BatchSkipped, Listener, SchemaChanged, TableWaits
from headgate.land.land_table import Before, TableLanded, TablePending, TableShape, land_table
from headgate.land.ledger import Entry, Kind, Ledger, Pending
from headgate.land.schema_history import SchemaHistory
from headgate.land.staged_batch import StagedBatch, StagedBatchNote
from headgate.land.staged_file import StagedFile
from headgate.land.staging_plan import StagingPlan
from headgate.land.withheld import Withheld, added_up
from headgate.quarantine.quarantined import QUARANTINE
from headgate.schema.change import CreateTable, SameColumns
from headgate.schema.origin import ORIGIN

_SIDE_BY_SIDE = 16
"""Commits wait for the disk more than they compute."""

Stage = Callable[[StagingPlan], list[StagedFile]]
"""Runs the one Spark job of a batch."""


@dataclass(frozen=True)
class Extent:
    """A batch's number and the part of the source it covers."""

    batch: int
    start: Any = None
    end: Any = None
    lag: int | None = None


@dataclass
class BatchLander:
    """Lands one batch after the other; what it remembers can all be told from the lake."""

    ledger: Ledger
    note: StagedBatchNote
    committer: Committer
    plan: StagingPlan
    """The plan of the next batch, but for its version and the tables known by then."""
    listener: Listener
    first_version: int = 0
    landed: int | None = None
    pending: tuple[Pending, ...] = ()
    known_tables: set[str] = field(default_factory=set)
    history: SchemaHistory = field(default_factory=SchemaHistory)
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
        outcomes = self._commit(files, version, versions_before)
        committed = perf_counter()
        withheld = self._withheld(files)
        self._complete(version, extent.batch, outcomes, extent, withheld)
        event = _batch_landed(extent, outcomes, files, self.plan)
        ended = perf_counter()
        self._tell(extent, outcomes, withheld)
        self.listener(event(ended - began, staged - began, committed - staged))

    def land_pending(self) -> None:
        """Try again what waits, without a batch: at the start of a run."""
        if not self.pending or self.landed is None:
            return
        outcomes = self._commit([], self.landed)
        if any(isinstance(one, TableLanded) for one in outcomes):
            self._complete(self.landed, self.landed - self.first_version, outcomes)

    def _staged_before(self, version: int, extent: Extent) -> list[StagedFile] | None:
        """The files of this batch, where it was staged whole and then not completed."""
        noted = self.note.read()
        if noted is None or noted.version != version:
            return None
        if noted.end != extent.end:
            raise CheckpointError(
                "checkpoint-foreign",
                f"batch {extent.batch} was staged to {noted.end}, the checkpoint has it end at "
                f"{extent.end}",
                hint="restore the checkpoint that this lake was filled with",
            )
        return list(noted.files)

    def _stage(self, version: int, stage: Stage) -> list[StagedFile]:
        waiting = {one.file.table for one in self.pending}
        known = frozenset((self.known_tables | waiting) - self._own_tables)
        plan = replace(self.plan, version=version, known_tables=known, met=self.history.met)
        plan = plan.with_shapes({**self._shapes, **self._strict_shapes(known)})
        files = stage(plan)
        new = sorted({file.table for file in files} - known - self._own_tables)
        crowded = any("too_many_tables" in (file.reasons or ()) for file in files)
        again = plan
        if len(new) > plan.room or (crowded and len(new) < plan.room):
            again = again.limited_to(new)
        if chosen := contested_shapes(files, plan):
            again = again.with_shapes(chosen)
        if again is not plan:
            # Tasks chose new tables and their columns without knowing of each other: choose for
            # them.
            for file in files:
                Path(plan.lake, file.table, file.path).unlink()
            files = stage(again)
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
    def _own_tables(self) -> set[str | None]:
        return {self.plan.names.quarantine, self.plan.names.bronze}

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
                self._shape(table),
                by_table.get(table, ()),
                waiting.get(table, ()),
                mark,
                self.history.of_table(table),
                int(self.plan.contract.rewrite_up_to),
                None if versions_before is None else Before(versions_before.get(table)),
            )

        with ThreadPoolExecutor(_SIDE_BY_SIDE, "commit") as pool:
            return list(pool.map(land, sorted({*by_table, *waiting})))

    def _shape(self, table: str) -> TableShape:
        names = self.plan.names
        if table == names.quarantine:
            return TableShape(QUARANTINE)
        if table == names.bronze:
            payload = [pa.field("route", pa.string()), pa.field("payload", pa.binary())]
            return TableShape(pa.schema([*payload, *ORIGIN]), ("route",))
        return TableShape(ORIGIN)

    def _complete(
        self,
        version: int,
        batch: int,
        outcomes: Sequence[TableLanded | TablePending],
        extent: Extent | None = None,
        withheld: Sequence[Withheld] = (),
    ) -> None:
        entries = list(_entries(outcomes, withheld))
        if extent is not None:
            rows = sum(entry.rows or 0 for entry in entries if entry.kind is Kind.TABLE)
            place = {"from": extent.start, "to": extent.end}
            entries.append(Entry(Kind.BATCH, rows=rows, detail=place))
        self.ledger.complete(version, batch, entries)
        self.landed = version
        self.pending = tuple(
            file for one in outcomes if isinstance(one, TablePending) for file in one.files
        )
        for entry in entries:
            if entry.kind is Kind.SCHEMA and entry.table is not None:
                self.history.take(entry.table, entry.detail)
        landed = [one for one in outcomes if isinstance(one, TableLanded)]
        self.known_tables |= {one.table for one in landed} - self._own_tables
        for one in landed:
            if one.refitted or one.table in self._shapes:
                self._shapes[one.table] = one.schema

    def _withheld(self, files: Iterable[StagedFile]) -> list[Withheld]:
        """What the contract kept out, as far as it was not told of before."""
        every = added_up(one for file in files for one in file.withheld)
        return [
            one
            for one in every
            if one.schema_id is None or one.schema_id not in self.history.of_table(one.table).met
        ]

    def _tell(
        self,
        extent: Extent,
        outcomes: Iterable[TableLanded | TablePending],
        withheld: Iterable[Withheld],
    ) -> None:
        for kept in withheld:
            ids = () if kept.schema_id is None else (kept.schema_id,)
            self.listener(SchemaChanged(extent.batch, kept.table, kept.change, ids))
        for one in outcomes:
            if isinstance(one, TablePending):
                rows = sum(waiting.file.rows for waiting in one.files)
                self.listener(TableWaits(extent.batch, one.table, rows, one.error))
                continue
            for asked in one.changes:
                if not isinstance(asked.change, SameColumns):
                    self.listener(
                        SchemaChanged(extent.batch, one.table, asked.change, asked.schema_ids)
                    )


def _entries(
    outcomes: Iterable[TableLanded | TablePending], withheld: Iterable[Withheld]
) -> Iterable[Entry]:
    for kept in withheld:
        ids = [] if kept.schema_id is None else [kept.schema_id]
        detail = {**kept.record, "schema_ids": ids, "rows": kept.rows}
        yield Entry(Kind.SCHEMA, table=kept.table, rows=kept.rows, detail=detail)
    for one in outcomes:
        if isinstance(one, TablePending):
            for waiting in one.files:
                detail = {
                    "version": waiting.version,
                    "file": waiting.file.to_json(),
                    "error": one.error[:1000],
                }
                yield Entry(Kind.PENDING, table=one.table, rows=waiting.file.rows, detail=detail)
            continue
        yield Entry(
            Kind.TABLE,
            table=one.table,
            route=one.route,
            rows=one.rows,
            bytes=one.bytes,
            files=one.files,
            table_version=one.version,
            detail={"schema_ids": list(one.schema_ids)},
        )
        for asked in one.changes:
            detail = {**asked.change.as_record(), "schema_ids": list(asked.schema_ids)}
            yield Entry(Kind.SCHEMA, table=one.table, route=one.route, detail=detail)


def _batch_landed(
    extent: Extent,
    outcomes: Sequence[TableLanded | TablePending],
    files: Sequence[StagedFile],
    plan: StagingPlan,
) -> Callable[[float, float, float], BatchLanded]:
    landed = [one for one in outcomes if isinstance(one, TableLanded)]
    own = (plan.names.quarantine, plan.names.bronze)
    silver = [one for one in landed if one.table not in own]
    reasons: Counter[str] = Counter()
    for file in files:
        reasons.update(file.reasons or {})
    asked = [one.change for table in silver for one in table.changes]
    changes = [change for change in asked if not isinstance(change, SameColumns)]
    return lambda seconds, staging, committing: BatchLanded(
        batch=extent.batch,
        rows=sum(one.rows for one in silver),
        quarantined=dict(reasons),
        tables=len(silver),
        new_tables=sum(isinstance(change, CreateTable) for change in changes),
        changes=sum(not isinstance(change, CreateTable) for change in changes),
        bytes=sum(one.bytes for one in landed),
        seconds=seconds,
        staging_seconds=staging,
        commit_seconds=committing,
        lag=extent.lag,
    )
