"""Topics of simulated games, the same for all who are measured."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from headgate.local import Services
from headgate.schema.registry_http import HttpRegistry, HttpRegistrySettings
from headgate.simulate.destination import KafkaDestination
from headgate.simulate.simulate_games import GamesPlan, simulate_games


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
    topic = f"games-{tables}"
    plan = GamesPlan(tables=tables, versions=versions, records=records)
    destination = KafkaDestination(services.servers, topic, partitions=4)
    with closing(HttpRegistry(HttpRegistrySettings(services.registry))) as registry:
        *_, sent = simulate_games(plan, registry, destination)
    return Data(services, topic, tables, versions, records, sent.rate)
