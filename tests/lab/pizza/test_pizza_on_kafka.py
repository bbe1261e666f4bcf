from __future__ import annotations

import json
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from headgate.config import Registry
from headgate.errors import RegistryError
from headgate.lab.destination import KafkaTopics
from headgate.lab.pizza.records import TOPICS, VERSIONS, schema
from headgate.lab.pizza.simulate import Writing, simulate_pizza
from headgate.lab.pizza.world import PizzaPlan
from headgate.lab.services import Services
from headgate.registry.open import open_registry
from headgate.registry.registry import SchemaRegistry, SchemaText
from tests.lab.pizza.test_simulate_pizza import Memory

PLAN = PizzaPlan(stores=2, seed=3, start=datetime(2026, 1, 10, 17, tzinfo=UTC), days=0.15)
WRITING = Writing(versions=(1, 2, 3))


def _require_full_compatibility(registry: str, topic: str) -> None:
    request = urllib.request.Request(
        f"{registry}/config/{topic}-value",
        json.dumps({"compatibility": "FULL_TRANSITIVE"}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200


def _consumed(servers: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "pizza"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [(message.key(), message.value()) for message in messages]


@pytest.fixture
def registry(services: Services) -> Iterator[SchemaRegistry]:
    """A registry that refuses versions which cannot read all others."""
    with closing(open_registry(Registry(url=services.registry))) as registry:
        for topic in TOPICS:
            _register(registry, topic, schema(topic, 1))
            _require_full_compatibility(services.registry, topic)
        yield registry


def _register(registry: SchemaRegistry, topic: str, schema: Mapping[str, Any]) -> None:
    registry.register(f"{topic}-value", SchemaText("AVRO", json.dumps(schema)))


def test_topics_hold_the_records(services: Services, registry: SchemaRegistry) -> None:
    memory = Memory()
    for destination in (memory, KafkaTopics(services.servers, TOPICS)):
        list(simulate_pizza(PLAN, registry, destination, WRITING))
    expected: dict[str, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    for _, sent in memory.sent:
        for row in sent.to_pylist():
            expected[row["topic"]].append((row["key"], row["value"]))
    assert {*expected} == {*TOPICS}
    for topic, records in expected.items():
        assert _consumed(services.servers, topic, len(records)) == records


def test_registry_accepts_all_versions_under_full_compatibility(registry: SchemaRegistry) -> None:
    for topic in TOPICS:
        for version in range(1, VERSIONS + 1):
            _register(registry, topic, schema(topic, version))
        with pytest.raises(RegistryError, match="ompatib"):
            _register(registry, topic, {**schema(topic, 1), "fields": []})
