"""A small lake with a ledger, landed in this process: two batches, five games, some bad records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headgate.config import PipelineConfig, load_pipeline
from headgate.lab.games import RecordMaker, RegisteredVersion, games, register_versions
from headgate.testing import FailingCommitter, InProcessLake

PIPELINE = """\
name: games
source: {delta: {path: ./inbox}}
registry: ./schemas
envelope:
  wrapper: {message: wrapper, route: game_name, schema_id: schema_id, payload: payload}
lake: ./lake
bronze: bronze_games
"""


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
        self.landing = InProcessLake(self.file, self.folder)
        self.landing.ledger.start("query", 0)
        self.committer = FailingCommitter(self.landing.committer, refusing=set(self.refused))
        self.landing.committer = self.committer
        self.registry = self.landing.registry

    @property
    def pipeline(self) -> PipelineConfig:
        return load_pipeline(self.file)

    def declare(self, of_the_wrapper: str) -> PipelineConfig:
        """The pipeline with one more key under `envelope.wrapper`."""
        text = PIPELINE.replace("payload: payload}", f"payload: payload, {of_the_wrapper}}}")
        self.file.write_text(text, "utf-8")
        return self.pipeline

    def land_values(self, values: Sequence[bytes | None]) -> None:
        """One batch of these records."""
        self.landing.land(values)
        self.sent += len(values)
        self.batch += 1

    def register(self, count: int, versions: Collection[int], first: int = 0) -> None:
        """Let games from the first on have these versions from now on."""
        chosen = games(first + count)[first:]
        self.versions += register_versions(self.registry, chosen, list(versions))

    def land(self, count: int, bad_share: float = 0.05) -> None:
        """One batch of so many records of all that is registered."""
        made = RecordMaker(self.versions, seed=self.batch, bad_share=bad_share).make(count)
        self.land_values(made.values.to_pylist())


def make_small_lake(folder: Path) -> SmallLake:
    """Four games of two versions; then chess gets a column and a fifth game appears."""
    lake = SmallLake(folder)
    lake.register(4, versions=[1, 2])
    lake.land(200)
    lake.register(1, versions=[3])
    lake.register(1, versions=[1], first=4)
    lake.land(100)
    return lake
