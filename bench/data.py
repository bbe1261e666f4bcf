"""Topics of simulated games, the same for all that are measured."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context

from headgate.lab.destination import KafkaDestination
from headgate.lab.games import Game, GamesPlan, simulate_games
from headgate.lab.services import Services
from headgate.registry.http import HttpRegistry, HttpRegistrySettings


def games(count: int) -> list[Game]:
    """Return games whose names are equally long: so are their records, however many games."""
    return [Game(f"game_{number:04}") for number in range(count)]


@dataclass(frozen=True)
class _Plan(GamesPlan):
    @property
    def games(self) -> Sequence[Game]:
        return games(self.tables)


@dataclass(frozen=True)
class Data:
    """A topic full of records."""

    services: Services
    topic: str
    tables: int
    versions: int
    records: int
    produced_per_second: float


def produce(services: Services, tables: int, versions: int, records: int) -> Data:
    """By a process of its own: what it has in memory is not the landing's."""
    topic = f"games-{tables:04}"
    plan = _Plan(tables=tables, versions=versions, records=records)
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        sent = apart.submit(send, plan, services.servers, services.registry, topic)
        return Data(services, topic, tables, versions, records, sent.result())


def send(plan: GamesPlan, servers: str, registry_url: str, topic: str) -> float:
    """Send records of games, and return how many per second."""
    destination = KafkaDestination(servers, topic, partitions=4)
    with closing(HttpRegistry(HttpRegistrySettings(registry_url))) as registry:
        *_, sent = simulate_games(plan, registry, destination)
    return sent.rate
