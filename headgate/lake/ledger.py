"""The ledger: a Delta table with a row per table and batch, per schema change, and per complete
batch. Its commit is the last of a batch, and everything a pipeline needs to resume is in it.

Every hundredth batch also writes totals of all rows before it, and small files are compacted. Reads
start at the newest totals, so that they cost the same however long a pipeline has been running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headgate.errors import CheckpointError, LandingError
from headgate.lake.commit import Commit, Committer, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger_entries import (
    LEDGER,
    BatchEntry,
    Entry,
    LayoutEntry,
    RunEntry,
    StartEntry,
    encode_entry,
)
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.maintain import MaintenancePolicy, maintain_table
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.streams import Layout, app_id, followed_app, layout_app, run_app, totals_app
from headgate.lake.tables import CommitConflict, table_url

_SKIPPED_BY = ("pipeline", "kind", "version", "at", "table")
_TABLE_PROPERTIES = {"delta.dataSkippingStatsColumns": ",".join(_SKIPPED_BY)}
"""Statistics only where reads filter."""
KEPT = timedelta(minutes=10)
"""How long an older version can be read. On a local disk delta-rs lists the whole log with every
commit, so it is kept short."""

_TOTALS_EVERY = 100
"""Batches between totals."""
_COMPACTED_EVERY = 20
"""Batches between compactions of small files: what a query costs grows with their number."""
_LARGE_EVERY = 10_000
"""Batches between compactions of larger files."""
_SMALL_FILE = 1 << 20
_LARGE_FILE = 128 << 20
_MAX_ATTEMPTS = 5


@dataclass(frozen=True)
class Pending:
    """A staged file whose table could not be committed yet."""

    version: int
    file: StagedFile


@dataclass(frozen=True)
class Progress:
    """How far a pipeline got, according to its ledger."""

    query_id: str
    first_version: int
    """The version of batch 0 of the checkpoint."""
    landed: int | None
    """The newest complete version."""
    ended_at: Any
    """Where that version ends in the source."""
    pending: tuple[Pending, ...]
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics, or of the table, that `ended_at` counts in."""


class Ledger:
    """Writes the ledger of one pipeline, and reads what its next batch depends on."""

    def __init__(
        self, lake: str, name: str, pipeline: str, committer: Committer | None = None
    ) -> None:
        self._lake = lake
        self._name = name
        self._pipeline = pipeline
        self._committer = committer or DeltaRsCommitter(lake)
        self.app = app_id(pipeline)
        self.run: int | None = None
        """The number of this run, once it has taken over the pipeline."""
        self.followed: int | None = None
        """The newest batch that merged and derived tables include; the next commit marks it."""
        self._followed_before: int | None = None

    def snapshot(self) -> LedgerSnapshot:
        return LedgerSnapshot.open(self._lake, self._name, self._pipeline)

    def landed(self) -> int | None:
        return self.snapshot().landed

    def progress(self) -> Progress | None:
        """Return None for a pipeline that never ran on this lake."""
        snapshot = self.snapshot()
        start = snapshot.newest(StartEntry)
        if start is None:
            return None
        batch = snapshot.newest(BatchEntry, since=snapshot.landed)
        return Progress(
            query_id=start.entry.query_id,
            first_version=start.version,
            landed=snapshot.landed,
            ended_at=batch.entry.source_end if batch else None,
            pending=pending_files(snapshot),
            source_ids=batch.entry.source_ids if batch else {},
        )

    def pending(self) -> tuple[Pending, ...]:
        """Return the files that are pending after the newest batch."""
        return pending_files(self.snapshot())

    def table_versions(self) -> dict[str, int]:
        """Return the Delta version of each table after its last batch, of any stream."""
        return self.snapshot().all_streams.table_versions()

    def take_over(self, holder: str) -> int:
        """Number this run, and keep earlier ones from completing further batches."""
        for _ in range(_MAX_ATTEMPTS):
            landed, runs = self._marked(self.app), self._marked(run_app(self.app))
            run = 1 if runs is None else runs + 1
            try:
                self._append(
                    self._rows([RunEntry(run, holder)], landed or 0, landed or 0),
                    (Mark(run_app(self.app), run),),
                    {run_app(self.app): runs},
                )
            except CommitConflict:
                continue
            self.run = run
            return run
        raise self._busy()

    def change_layout(self, layout: Layout) -> None:
        """Record another layout. Raises `CommitConflict` if that has happened meanwhile."""
        app, landed = layout_app(self.app), self.landed() or 0
        entry = LayoutEntry(layout.shards, layout.start, layout.source_ids)
        before = layout.number - 1 or None
        rows = self._rows([entry], landed, layout.number)
        self._append(rows, (Mark(app, layout.number),), {app: before})

    def require_ownership(self) -> None:
        """Raise if another run has taken over the pipeline."""
        if self.run is not None and self._marked(run_app(self.app)) != self.run:
            raise self._replaced()

    def start(self, query_id: str, first_version: int) -> None:
        """Record a new checkpoint, whose batch 0 has this version."""
        self._append(self._rows([StartEntry(query_id)], first_version, 0))

    def complete(
        self, version: int, batch: int, entries: Sequence[Entry], landed: int | None
    ) -> None:
        """Write the last commit of a batch, which makes it complete.

        It fails if another run has taken over, or if `landed` is not the newest version any more.
        """
        rows = self._rows(entries, version, batch)
        marks = [Mark(self.app, version), *self._newly_followed()]
        required = {self.app: landed}
        if self.run is not None:
            marks.append(Mark(run_app(self.app), self.run))
            required[run_app(self.app)] = self.run
        totals = self._totals(version)
        if totals is not None:
            rows = pa.concat_tables([rows, totals])
            marks.append(Mark(totals_app(self.app), version))
        self._append_checked(rows, marks, required)
        compact_in_time(self._committer, self._name, version)

    def record_pending(self, version: int, batch: int, entries: Sequence[Entry]) -> None:
        """Record which files of the newest version are pending from now on, and which are lost."""
        self.complete(version, batch, entries, version)

    def add(self, version: int, entries: Sequence[Entry]) -> None:
        """Record what happened after a batch was complete, if anything did."""
        marks = self._newly_followed()
        if not entries and not marks:
            return
        try:
            self._append(self._rows(entries, version, version), marks)
        except CommitConflict:
            self.require_ownership()  # another run has followed later batches
            raise

    def _newly_followed(self) -> tuple[Mark, ...]:
        if self.followed is None or self.followed == self._followed_before:
            return ()
        self._followed_before = self.followed
        return (Mark(followed_app(self.app), self.followed),)

    def _rows(self, entries: Sequence[Entry], version: int, batch: int) -> pa.Table:
        now = datetime.now(UTC)
        same = {"pipeline": self._pipeline, "version": version, "batch": batch, "at": now}
        records = [{**same, "kind": entry.kind.value, **encode_entry(entry)} for entry in entries]
        return pa.Table.from_pylist(records, LEDGER)

    def _totals(self, version: int) -> pa.Table | None:
        """Return the totals of all rows so far, if it is time to write them."""
        if version % _TOTALS_EVERY or version == 0:
            return None
        snapshot = self.snapshot()
        if snapshot.totals_at == version:  # pending files that land under the same version
            return None
        rows = snapshot.totals()
        at = rows.schema.get_field_index("version")
        versions = pa.repeat(pa.scalar(version, pa.int64()), len(rows))
        return rows.set_column(at, LEDGER.field(at), versions)

    def _append_checked(
        self, rows: pa.Table, marks: Sequence[Mark], required: Mapping[str, int | None]
    ) -> None:
        for _ in range(_MAX_ATTEMPTS):
            try:
                self._append(rows, marks, required)
            except CommitConflict:
                self.require_ownership()
                now = self.landed()
                if self.run is not None and now == marks[0].version != required[self.app]:
                    return  # It has succeeded, and its response was lost: no other run may land.
                if now != required[self.app]:
                    raise CheckpointError(
                        "ledger-ahead",
                        f"the ledger was at batch {required[self.app]} when this one began, and is "
                        f"at {now} now: another run has landed into the same lake",
                        hint="stop all runs of this pipeline, then start one",
                        where=table_url(self._lake, self._name),
                    ) from None
                continue
            return
        raise self._busy()

    def _append(
        self,
        rows: pa.Table,
        marks: Sequence[Mark] = (),
        required: Mapping[str, int | None] | None = None,
    ) -> None:
        files = []
        if len(rows):
            files.append(stage_rows(self._lake, self._name, rows, statistics_of=_SKIPPED_BY))
        self._committer.commit(
            Commit(
                self._name,
                LEDGER,
                tuple(files),
                tuple(marks),
                properties=_TABLE_PROPERTIES,
                required_marks=required or {},
            )
        )

    def _marked(self, app: str) -> int | None:
        state = self._committer.state(self._name, app)
        return None if state is None else state.marked

    def _replaced(self) -> CheckpointError:
        now = self.snapshot().newest(RunEntry)
        by = f": {now.entry.holder}" if now else ""
        return CheckpointError(
            "run-replaced",
            f"another run has taken over pipeline {self._pipeline}{by}",
            hint="one run at a time lands a pipeline; nothing of this batch is lost, the other "
            "run lands it",
            where=table_url(self._lake, self._name),
        )

    def _busy(self) -> LandingError:
        return LandingError(
            "batch-failed",
            "the ledger could not be written: other processes keep writing to it",
            hint="run again to retry the batch",
            where=table_url(self._lake, self._name),
        )


def compact_in_time(
    committer: Committer, table: str, version: int, keep: timedelta | None = None
) -> None:
    """Compact a table that gets a small file with every batch, if it is time to.

    Files since the last time are combined; now and then the larger ones as well.
    """
    if version == 0 or version % _COMPACTED_EVERY:
        return
    rarely = version % _LARGE_EVERY == 0
    # Whatever happens here, the batch is complete. Another compaction wins a conflict.
    with suppress(Exception):
        found = Snapshot.open(committer.lake, table)
        if found is not None:
            size = _LARGE_FILE if rarely else _SMALL_FILE
            maintain_table(committer, found, MaintenancePolicy(size, keep=keep or KEPT))


def pending_files(snapshot: LedgerSnapshot) -> tuple[Pending, ...]:
    """Return the files of all streams that are pending after their newest batches, each once."""
    rows = [row for stream in snapshot.each for row in stream.pending()]
    pending = {
        (row.entry.table, row.entry.staged_file.path): Pending(
            row.entry.staged_version, row.entry.staged_file
        )
        for row in rows
    }
    return tuple(pending.values())
