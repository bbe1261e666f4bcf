"""A change pipeline without Spark: files in, logs, merged and history tables out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headgate.cdc.merge import merge_plan, merge_tables
from headgate.cdc.merge_table import TableMerged
from headgate.cdc.source_tables import KnownSource, known_logs, source_in_files
from headgate.cdc.stage import ChangeStaging
from headgate.config import Datastream, Files, Pipeline
from headgate.engine.batch import BatchLander
from headgate.engine.events import Event
from headgate.engine.follow_up import Followed, TableChanged
from headgate.engine.plan import BatchPlan
from headgate.engine.task_results import decode_results, task_results
from headgate.lake.commit import Committer
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.sources.batch import Extent


@dataclass
class ChangeLake:
    """A lake that lands change files; each `land` is a batch of a new run."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    merges: bool = True
    in_memory: bool = True
    """Whether small tables are merged in memory, the default."""

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(
            name="shop",
            **{
                "source": Files(path=str(self.folder / "landing")),
                "envelope": Datastream(),
                "lake": str(self.folder / "lake"),
                **self.settings,
            },
        )
        self.lake = Path(self.pipeline.lake)
        self.ledger = Ledger(self.pipeline.lake, self.pipeline.ledger, "shop")
        self.committer: Committer = DeltaRsCommitter(self.pipeline.lake)
        self.results: list[Any] = []

    def land(self, files: Sequence[Path]) -> None:
        progress = self.ledger.progress()
        if progress is None:
            self.ledger.start("files", 0)
        known = known_logs(self.ledger.snapshot(), self.pipeline.lake)
        self.plan = replace(ChangeStaging.of(self.pipeline), known=known, began=time.time() * 1000)
        self.note = StagedBatchNote(self.pipeline.lake, "shop")
        landed = progress.landed if progress else None
        lander = BatchLander(
            ledger=self.ledger,
            note=self.note,
            committer=self.committer,
            plan=self.plan,
            listener=self.events.append,
            landed=landed,
            pending=progress.pending if progress else (),
            known_tables=set(known),
            history=self.ledger.snapshot().schema_history(),
            follow_ups=[self],
        )
        paths = pa.RecordBatch.from_pydict({"file": [str(file) for file in files]})

        def stage(plan: BatchPlan) -> list[StagedFile]:
            return decode_results(task_results(plan.stage([paths])))

        version = 0 if landed is None else landed + 1
        lander.land(Extent(version, None, {"files": len(files)}), stage)

    def merge(self, logs: Iterable[tuple[str, KnownSource]]) -> None:
        plans = [
            merge_plan(self.plan, self.pipeline.merge, f"{self.ledger.app}:merge", log, source)
            for log, source in logs
        ]
        wanted = [plan for plan in plans if plan]
        if not self.in_memory:
            wanted = [replace(plan, in_memory_up_to=0) for plan in wanted]
        self.results = list(merge_tables(wanted))
        assert all(isinstance(result, TableMerged) for result in self.results), self.results

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        if self.merges:
            for table in changed:
                self.merge([(table.table, source_in_files(table.files))])
        return Followed()

    def rows(self, table: str) -> list[dict[str, Any]]:
        return list(DeltaTable(str(self.lake / table)).to_pyarrow_table().to_pylist())
