"""Runs a change pipeline: lists a folder, lands what is new there, merges it, and again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from headgate.cdc.chunk import CHUNK_DDL
from headgate.cdc.merge import ChangeMerger
from headgate.cdc.open import open_changes
from headgate.cdc.plan import ChangePlan
from headgate.cdc.source_tables import known_with_replays
from headgate.cdc.stage import stage_changes
from headgate.config import ChangePipeline
from headgate.engine.batch import BatchLander, BatchOutcome, Extent
from headgate.engine.events import BatchLanded, Ended, Event, FilesWait, Idle, Listener, Started
from headgate.engine.failure import explain_failure
from headgate.engine.plan import BatchPlan
from headgate.engine.session import spark_session
from headgate.engine.stage import STAGED_DDL, staged_files
from headgate.engine.stop_signal import StopSignal
from headgate.errors import CheckpointError
from headgate.gold.follow import DerivedTables
from headgate.lake.commit_with import choose_committer
from headgate.lake.ledger import Ledger, Pending, replay_name
from headgate.lake.ledger_entries import Entry, MergeEntry
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.lake.tables import open_table
from headgate.run.run_options import RunOptions
from headgate.sources.files import LandedFile, batch_of, list_files, records_of_files
from headgate.sources.kafka import text

if TYPE_CHECKING:
    pass

_FILES = "files"
"""What the ledger has instead of the name of a query: there is no checkpoint to lose."""


class ChangeRun:
    """One run of a change pipeline. All it remembers can be told from the lake."""

    def __init__(
        self, pipeline: ChangePipeline, options: RunOptions, listener: Listener, stop: StopSignal
    ) -> None:
        self.pipeline = pipeline
        self.options = options
        self.stop = stop
        self.ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
        self.note = StagedBatchNote(pipeline.lake, pipeline.name)
        self.landed: list[BatchLanded] = []
        self._listener = listener

    def run(self) -> Ended:
        settings = {key: text(value) for key, value in self.pipeline.spark.items()}
        self.spark = spark_session(self.pipeline.name, settings)
        self.plan = ChangePlan.of(self.pipeline)
        self.lander = self._lander()
        self.merger = ChangeMerger(
            self.spark, f"{self.ledger.app}:merge", self.plan, self.pipeline.merge, self._tell
        )
        self.merger.behind.update(self.plan.known)
        self.derived = DerivedTables(self.spark, self.pipeline, self.ledger, self._tell)
        self.read = _files_read(self.plan)
        try:
            with self.stop.on_signals():
                self._run()
        except Exception as error:
            raise explain_failure(error) from error
        ended = Ended(
            batches=len(self.landed),
            rows=sum(batch.rows for batch in self.landed),
            quarantined=sum(sum(batch.quarantined.values()) for batch in self.landed),
            stopped=self.stop.asked,
            tables=frozenset(self.lander.known_tables),
        )
        self._tell(ended)
        return ended

    def _run(self) -> None:
        resumed = None if self.lander.landed is None else self.lander.landed + 1
        self._tell(Started(self.pipeline.name, self.pipeline.lake, resumed))
        self.lander.land_pending()
        staged = self.note.under_way(self.lander.landed)
        if staged is not None:
            self.lander.land_staged(staged)
            self._remember(staged.files)
        self._catch_up()
        self.derived.catch_up()
        waiting: set[LandedFile] = set()
        while not self.stop.asked:
            found = [
                file for file in list_files(self.spark, self.pipeline.source) if self._is_new(file)
            ]
            taken = batch_of([file for file in found if file not in waiting], self.pipeline.source)
            if taken:
                waiting |= self._land(taken)
                continue
            self._catch_up()
            if self.options.once:
                break
            self._tell(Idle())
            # Those that are still being written are looked at again, even if they look the same.
            waiting.clear()
            milliseconds = self.options.trigger_milliseconds or self.pipeline.trigger.milliseconds
            self.stop.wait(milliseconds / 1000)

    def _land(self, files: Sequence[LandedFile]) -> set[LandedFile]:
        """One batch; returns those of its files that are not finished yet."""
        version = 0 if self.lander.landed is None else self.lander.landed + 1
        waiting = [one.file for one in (*self.lander.pending, *self._pending_replays())]
        self.lander.plan = replace(self.plan.beside(waiting), began=time.time() * 1000)
        place = {"files": len(files), "first": files[0].path, "last": files[-1].path}
        self.lander.land(Extent(version, None, place), partial(self._stage, files))
        noted = self.note.read()
        assert noted is not None
        return self._remember(noted.files, files)

    def _stage(self, files: Sequence[LandedFile], plan: BatchPlan) -> list[StagedFile]:
        """The one Spark job of a batch: files are opened, then each table's rows are written."""
        assert isinstance(plan, ChangePlan)
        cores = self.spark.sparkContext.defaultParallelism
        records = records_of_files(self.spark, self.pipeline.source, files, min(len(files), cores))
        opened = records.mapInArrow(partial(open_changes, plan), CHUNK_DDL)
        together = opened.repartition(cores, "table").sortWithinPartitions("table")
        job = together.mapInArrow(partial(stage_changes, plan), STAGED_DDL)
        return staged_files((row.file, row.error) for row in job.collect())

    def _derive(self, outcome: BatchOutcome) -> list[Entry]:
        """What follows from the logs that got changes."""
        noted = self.note.read()
        assert noted is not None
        landed = {one.table for one in outcome.landed} - set(self.plan.own_tables)
        files = [*noted.files, *(one.file for one in self.lander.pending)]
        self.plan = self.plan.after([file for file in files if file.table in landed])
        logs = {table: self.plan.known[table] for table in sorted(landed)}
        merged = self.merger.landed(logs, noted.batch)
        return [*merged, *self._follow(merged)]

    def _follow(self, merged: Sequence[MergeEntry]) -> Sequence[Entry]:
        """What follows from the merged tables that got changes."""
        sources = [known.source for known in self.plan.known.values()]
        landed = {self.plan.tables_of(source).merged_for(source) for source in sources}
        tables = [(one.table, None) for one in merged if one.table in landed]
        return self.derived.follow(tables)

    def _catch_up(self) -> None:
        """Merge what is behind, whether an earlier run was cut short or it was not time yet."""
        merged = self.merger.merge_all()
        entries = [*merged, *self._follow(merged)]
        if entries and self.lander.landed is not None:
            self.ledger.add(self.lander.landed, entries)

    def _lander(self) -> BatchLander:
        progress = self.ledger.progress()
        known = known_with_replays(self.pipeline)
        if progress is None:
            there = self.plan.tables.logs_in(self.pipeline.lake)
            if there:
                raise CheckpointError(
                    "lake-without-ledger",
                    f"the lake has change logs, such as {there[0]}, but no ledger",
                    hint="restore the lake's ledger, or land into an empty lake",
                    where=self.pipeline.lake,
                )
            self.note.clear()
            self.ledger.start(_FILES, 0)
        self.plan = replace(self.plan, known=known)
        self.plan.require_known_lineages()
        return BatchLander(
            ledger=self.ledger,
            note=self.note,
            committer=choose_committer(self.pipeline.commit, self.spark, self.pipeline.lake),
            plan=self.plan,
            listener=self._tell,
            landed=progress.landed if progress else None,
            pending=progress.pending if progress else (),
            known_tables=set(known),
            history=self.ledger.snapshot().schema_history(),
            derive=self._derive,
        )

    def _pending_replays(self) -> tuple[Pending, ...]:
        """Files of changes that left the quarantine, and wait for their logs."""
        name = replay_name(self.pipeline.name)
        progress = Ledger(self.pipeline.lake, self.pipeline.ledger, name).progress()
        return progress.pending if progress else ()

    def _is_new(self, file: LandedFile) -> bool:
        return self.read.get(file.path) != (file.size, file.modified)

    def _remember(
        self, staged: Sequence[StagedFile], files: Sequence[LandedFile] = ()
    ) -> set[LandedFile]:
        done: set[str] = set()
        for file in staged:
            if file.table == self.plan.tables.files:
                rows = pq.ParquetFile(Path(self.plan.lake, file.table, file.path)).read()
                for row in rows.to_pylist():
                    self.read[row["path"]] = row["size"], row["modified"]
                    done.add(row["path"])
        waiting = {file for file in files if file.path not in done}
        if waiting:
            self._tell(FilesWait(tuple(sorted(file.path for file in waiting))))
        return waiting

    def _tell(self, event: Event) -> None:
        if isinstance(event, BatchLanded):
            self.landed.append(event)
        self._listener(event)


def _files_read(plan: ChangePlan) -> dict[str, tuple[int, int]]:
    """All files that were read, as they were then."""
    table = open_table(Path(plan.lake, plan.tables.files))
    if table is None:
        return {}
    rows = table.to_pyarrow_table(columns=["path", "size", "modified", "batch"]).sort_by("batch")
    columns = (rows[name].to_pylist() for name in ("path", "size", "modified"))
    return {path: (size, modified) for path, size, modified in zip(*columns, strict=True)}
