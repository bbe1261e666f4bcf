"""A pipeline that lands records of a test, in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.cdc.merge import MergeFollowUp
from headgate.cdc.plan import ChangePlan
from headgate.config import Kafka, Registry
from headgate.engine.batch import BatchLander, Stage
from headgate.engine.events import BatchLanded, Ended, Event, Listener
from headgate.engine.follow_up import Follower, FollowUp
from headgate.engine.plan import BatchPlan
from headgate.engine.task_results import decode_results, task_results
from headgate.errors import UsageError
from headgate.inspect.quarantine import QuarantinedRecord
from headgate.lake.commit import Committer
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger, Pending
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.notebook import Rows
from headgate.pipeline import Pipeline, load
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText, SchemaType
from headgate.run import batch_plan, maintenance, pending_replays, schema_history
from headgate.run_result import RunResult, RunTally
from headgate.sources.batch import Extent
from headgate.sources.files import FIRST_BATCH, files_read
from headgate.testing.records import Record, by_partition, frame, number_records

_READING_ORDER = ("_order", "_topic", "_partition", "_offset")


class InProcessLake:
    """A pipeline whose records come from a test, and whose tables are in a folder.

    Everything but the source and Spark is real: envelopes, decoders, contract, expectations,
    staged files, commits, quarantine and ledger; for change files also merged and history tables.
    Tasks run in this process, and delta-rs commits. Derived tables (`gold`) need Spark, and are
    left to `lake.pipeline.refresh()`.

    Each `land` is a run of its own that reads its state from the lake. Like a real source, the
    lake keeps a batch until it has landed: after a failure, the next run lands it again.
    """

    def __init__(
        self, pipeline: Pipeline | str | os.PathLike[str], folder: str | os.PathLike[str]
    ) -> None:
        """Prepare a lake in `folder/lake`, and a registry in `folder/schemas`.

        Schemas are copied if the pipeline's registry is a folder. A registry service is replaced.
        """
        declared = pipeline if isinstance(pipeline, Pipeline) else load(pipeline)
        self.folder = Path(folder).absolute()
        self.registry = FolderRegistry(self.folder / "schemas")
        self.pipeline = self._moved(declared)
        stream = self.pipeline.stream.name
        self.ledger = Ledger(self.pipeline.lake, self.pipeline.ledger, stream)
        self.note = StagedBatchNote(self.pipeline.lake, stream)
        self.committer: Committer = DeltaRsCommitter(self.pipeline.lake)
        """Commits to the landed tables; replace it with a `FailingCommitter` to test failures."""
        self.events: list[Event] = []
        """Events of all runs."""
        self._waiting: list[tuple[Extent, Stage]] = []

    @property
    def path(self) -> Path:
        """The folder of all tables."""
        return Path(self.pipeline.lake)

    def register(self, subject: str, schema: str) -> int:
        """Register a Protobuf or Avro schema, and return its id.

        Files that it imports belong in `registry.folder`.
        """
        kind: SchemaType = "AVRO" if schema.lstrip()[:1] in ("{", "[", '"') else "PROTOBUF"
        return self.registry.register(subject, SchemaText(kind, schema))

    def record(self, route: str, schema_id: int, payload: bytes | Mapping[str, Any]) -> Record:
        """Return a payload in the pipeline's envelope: a wrapper, or Confluent's framing.

        With a Protobuf schema, the payload can be given as its fields. Where the topic is the
        route, the record has that topic.
        """
        return frame(self.pipeline, self.registry, route, schema_id, payload)

    def land(self, records: Iterable[Record | bytes | None]) -> RunResult:
        """Land records as one batch; `bytes` are the value of a record, None is a null value."""
        if self.pipeline.lands_changes:
            raise UsageError("bad-argument", "the pipeline lands change files", "use `land_files`")
        given = [one if isinstance(one, Record) else Record(one) for one in records]
        batch, start = self._next()
        numbered, end = number_records(given, self._topic, start or {})
        tasks = by_partition(numbered)
        self._waiting.append((Extent(batch, start, end), stage_in_process(*tasks)))
        return self.run()

    def land_files(self, paths: Iterable[str | os.PathLike[str]]) -> RunResult:
        """Land change files as one batch."""
        if not self.pipeline.lands_changes:
            raise UsageError("bad-argument", "the pipeline lands records", "use `land`")
        files = [os.fspath(path) for path in paths]
        read = files_read(self.pipeline.lake, files)
        columns = {
            "value": pa.array([Path(file).read_bytes() for file in files], pa.binary()),
            "timestamp": pa.array(
                [os.stat(file).st_mtime_ns // 1_000 for file in files],
                pa.timestamp("us", "UTC"),
            ),
            "file": pa.array(files, pa.string()),
            FIRST_BATCH: pa.array(
                [read[file].first_batch if file in read else None for file in files], pa.int64()
            ),
        }
        rows = pa.record_batch(columns)
        batch, _ = self._next()
        extent = Extent(batch, None, {"files": len(files)})
        self._waiting.append((extent, stage_in_process(rows)))
        return self.run()

    def run(self) -> RunResult:
        """Land whatever an earlier run has left: batches that failed, and pending tables."""
        tally = RunTally(self.pipeline, self.events.append)
        landed: list[BatchLanded] = []

        def listener(event: Event) -> None:
            tally.take(event)
            if isinstance(event, BatchLanded):
                landed.append(event)

        lander = self.lander(listener)
        with lander.follower as follower:
            changed = lander.land_pending()
            staged = self.note.under_way(lander.landed)
            if staged is not None:
                lander.land_staged(staged)
                lander.record(follower.wait())
            while self._waiting:
                lander.land(*self._waiting[0])
                lander.record(follower.wait())
                del self._waiting[0]
            if lander.landed is not None:
                follower.follow(changed, lander.landed)
                lander.record(follower.wait())
        return tally.result(
            Ended(
                batches=len(landed),
                rows=sum(batch.rows for batch in landed),
                quarantined=sum(sum(batch.quarantined.values()) for batch in landed),
                stopped=False,
                tables=frozenset(lander.known_tables),
            )
        )

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """Return the rows of a table, or some of their columns, in the order of the source."""
        found = self.pipeline.read(table)
        order = [(name, "ascending") for name in _READING_ORDER if name in found.column_names]
        found = found.sort_by(order) if order else found
        rows: list[dict[str, Any]] = (found.select(columns) if columns else found).to_pylist()
        return rows

    def quarantine(self) -> Rows[QuarantinedRecord]:
        """Return all open records of the quarantine, the newest batch first."""
        total = self.pipeline.quarantine.list(limit=1).total
        return self.pipeline.quarantine.list(limit=max(1, total))

    def lander(self, listener: Listener | None = None) -> BatchLander:
        """Return the lander of a new run, to test single steps of it."""
        progress = self.ledger.progress()
        if progress is None:
            self.ledger.start("in-process", 0)
        self.ledger.take_over("a test")
        plan = batch_plan(self.pipeline)
        plan.forget()
        listener = listener or self.events.append
        return BatchLander(
            ledger=self.ledger,
            note=self.note,
            committer=self.committer,
            plan=plan,
            listener=listener,
            landed=progress.landed if progress else None,
            ended_at=progress.ended_at if progress else None,
            pending=progress.pending if progress else (),
            known_tables=set(plan.tables_in_lake()),
            history=schema_history(self.pipeline),
            follower=Follower(self.follow_ups(plan, listener)),
            pending_elsewhere=self._pending_replays,
        )

    def follow_ups(self, plan: BatchPlan, listener: Listener) -> Sequence[FollowUp]:
        """Return the follow-ups of a run: merges of change logs, and maintenance."""
        kept = maintenance(self.pipeline, self.committer, listener)
        if not isinstance(plan, ChangePlan):
            return kept
        app = f"{self.ledger.app}:merge"
        merge = MergeFollowUp.of(None, self.committer, self.pipeline, plan, app, listener)
        return [merge, *kept]

    def _pending_replays(self) -> Sequence[Pending]:
        return pending_replays(self.pipeline) if self.pipeline.lands_changes else ()

    def _moved(self, declared: Pipeline) -> Pipeline:
        """Return the pipeline with its lake, checkpoint and registry in the folder."""
        lake = str(self.folder / "lake")
        moved: dict[str, Any] = {"lake": lake, "checkpoint": f"{lake}/_checkpoints/{declared.name}"}
        if declared.registry is not None:
            schemas = declared.registry.folder
            if schemas and Path(schemas) != self.registry.folder and os.path.isdir(schemas):
                shutil.copytree(schemas, self.registry.folder, dirs_exist_ok=True)
            moved["registry"] = Registry(folder=str(self.registry.folder))
        return declared.model_copy(update=moved)

    @property
    def _topic(self) -> str:
        source = self.pipeline.source
        topics = source.topics if isinstance(source, Kafka) else None
        return topics[0] if topics else self.pipeline.name

    def _next(self) -> tuple[int, Any]:
        """Return the number of the next batch, and where it starts in the source."""
        if self._waiting:
            last = self._waiting[-1][0]
            return last.batch + 1, last.end
        progress = self.ledger.progress()
        landed = progress.landed if progress else None
        staged = self.note.under_way(landed)
        if staged is not None:
            return staged.batch + 1, staged.end
        if progress is None or landed is None:
            return 0, None
        return landed + 1, progress.ended_at


def stage_in_process(*tasks: pa.RecordBatch) -> Stage:
    """Return a function that stages a batch, with one task per part of its rows."""

    def stage(plan: BatchPlan) -> list[StagedFile]:
        return decode_results(row for task in tasks for row in task_results(plan.stage([task])))

    return stage
