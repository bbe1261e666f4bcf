"""A small lake with a ledger, landed in this process: two batches, five games, some bad records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from headgate.config import Pipeline, load_pipeline
from headgate.engine.batch import BatchLander
from headgate.engine.plan import BatchPlan
from headgate.engine.record_plan import RecordPlan
from headgate.engine.task_results import decode_results, task_results
from headgate.envelopes.open import open_envelope
from headgate.lab.games import RecordMaker, RegisteredVersion, games, register_versions
from headgate.lake.commit import Commit
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.registry.folder import FolderRegistry
from headgate.schema.origin import RECORD_COLUMNS
from headgate.sources.batch import Extent

PIPELINE = """\
name: games
source: {delta: {path: ./inbox}}
registry: ./schemas
envelope:
  wrapper: {message: wrapper, route: game_name, schema_id: schema_id, payload: payload}
lake: ./lake
bronze: bronze_games
"""


class Refusing(DeltaRsCommitter):
    """Cannot commit to some tables."""

    def __init__(self, lake: str, tables: Collection[str]) -> None:
        super().__init__(lake)
        self.tables = set(tables)

    def commit(self, commit: Commit) -> int:
        if commit.table in self.tables:
            raise OSError("no room for this table")
        return super().commit(commit)


@dataclass
class SmallLake:
    """A pipeline file, and what a run of it would have landed."""

    folder: Path
    refused: Collection[str] = ()
    versions: list[RegisteredVersion] = field(default_factory=list)
    sent: int = 0
    batch: int = 0
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.file = self.folder / "games.yaml"
        self.file.write_text(PIPELINE, "utf-8")
        self.registry = FolderRegistry(self.folder / "schemas")
        pipeline = self.pipeline
        ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
        ledger.start("query", 0)
        note = StagedBatchNote(pipeline.lake, pipeline.name)
        self.committer = Refusing(pipeline.lake, self.refused)
        names = TableNames(
            pipeline.silver, pipeline.quarantine_table, pipeline.ledger, pipeline.bronze
        )
        plan = RecordPlan(
            lake=pipeline.lake,
            names=names,
            envelope=open_envelope(pipeline.envelope),
            registry=pipeline.schema_registry,
            version=0,
            known_tables=frozenset(),
            max_tables=pipeline.max_tables,
            max_record_bytes=int(pipeline.max_record_bytes),
        )
        self.lander = BatchLander(ledger, note, self.committer, plan, lambda _: None)

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline(self.file)

    def declare(self, of_the_wrapper: str) -> Pipeline:
        """The pipeline with one more key under `envelope.wrapper`."""
        text = PIPELINE.replace("payload: payload}", f"payload: payload, {of_the_wrapper}}}")
        self.file.write_text(text, "utf-8")
        return self.pipeline

    def land_values(self, values: Sequence[bytes]) -> None:
        """One batch of these records."""
        made = pa.array(values, pa.binary())
        self.lander.land(Extent(self.batch, {}, {}), lambda plan: self._stage(plan, made))
        self.sent += len(values)
        self.batch += 1

    def register(self, count: int, versions: Collection[int], first: int = 0) -> None:
        """Let games from the first on have these versions from now on."""
        chosen = games(first + count)[first:]
        self.versions += register_versions(self.registry, chosen, list(versions))

    def land(self, count: int, bad_share: float = 0.05) -> None:
        """One batch of so many records of all that is registered."""
        made = RecordMaker(self.versions, seed=self.batch, bad_share=bad_share).make(count)
        self.lander.land(Extent(self.batch, {}, {}), lambda plan: self._stage(plan, made.values))
        self.sent += count
        self.batch += 1

    def _stage(self, plan: BatchPlan, values: pa.BinaryArray) -> list[StagedFile]:
        count = len(values)
        records = pa.record_batch(
            {
                "value": values,
                "topic": ["games"] * count,
                "partition": [0] * count,
                "offset": range(self.sent, self.sent + count),
                "timestamp": [0] * count,
                "key": [None] * count,
                "headers": [None] * count,
            },
            schema=RECORD_COLUMNS,
        )
        return decode_results(task_results(plan.stage([records])))


def make_small_lake(folder: Path) -> SmallLake:
    """Four games of two versions; then chess gets a column and a fifth game appears."""
    lake = SmallLake(folder)
    lake.register(4, versions=[1, 2])
    lake.land(200)
    lake.register(1, versions=[3])
    lake.register(1, versions=[1], first=4)
    lake.land(100)
    return lake
