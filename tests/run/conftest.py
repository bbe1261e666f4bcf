"""Pipelines over real records, and a way to look at all that they landed."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from deltalake import DeltaTable

from headgate.config import Delta, Kafka, PipelineConfig, Registry, Wrapper
from headgate.engine.events import Event
from headgate.lab.destination import DeltaDestination, Destination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.registry.open import open_registry

WRAPPER = Wrapper(message="wrapper", route="game_name", schema_id="schema_id", payload="payload")

Place = tuple[str, int, int]
T = TypeVar("T")


@dataclass
class Told:
    """A listener that tests can wait on."""

    events: list[Event] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=400), self.events[-5:]


def simulate(plan: GamesPlan, registry: Registry, destination: Destination) -> int:
    with closing(open_registry(registry)) as opened:
        return [*simulate_games(plan, opened, destination)][-1].records


def places(lake: str, tables: str = "silver_*") -> Counter[Place]:
    """How often each record of the source is in these tables."""
    found: Counter[Place] = Counter()
    for folder in Path(lake).glob(tables):
        columns = ["_topic", "_partition", "_offset"]
        rows = DeltaTable(folder).to_pyarrow_table(columns=columns).to_pydict()
        found.update(zip(*(rows[column] for column in columns), strict=True))
    return found


@pytest.fixture
def delta_pipeline(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(
        name="games",
        source=Delta(path=str(tmp_path / "inbox")),
        registry=Registry(folder=str(tmp_path / "schemas")),
        envelope=WRAPPER,
        lake=str(tmp_path / "lake"),
    )


@pytest.fixture
def inbox(tmp_path: Path) -> DeltaDestination:
    return DeltaDestination(str(tmp_path / "inbox"), "games")


@pytest.fixture
def topic() -> str:
    return f"games-{uuid.uuid4().hex[:8]}"


def kafka_pipeline(
    servers: str, registry: str, topic: str, lake: Path, **more: Any
) -> PipelineConfig:
    return PipelineConfig(
        name="games",
        source=Kafka(servers=servers, topics=[topic]),
        registry=Registry(url=registry),
        envelope=WRAPPER,
        lake=str(lake),
        **more,
    )
