from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from headgate.errors import SetupError
from headgate.lab import registry, services
from headgate.lab.process import HOST, DetachedProcess, start_detached
from headgate.lab.services import Services, down, find, up

SCHEMA = 'syntax = "proto3";\nmessage Hero { string name = 1; }\n'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "services"
    down(tmp_path / "services")


def produce_one(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic("heroes", num_partitions=1, replication_factor=1)
    admin.create_topics([topic])["heroes"].result(timeout=30)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("heroes", b"hello")
    assert producer.flush(30) == 0


def first_record(servers: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition("heroes", 0, OFFSET_BEGINNING)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def register_one(url: str) -> int:
    with SchemaRegistryClient({"url": url}) as client:
        schema_id: int = client.register_schema("heroes-value", Schema(SCHEMA, "PROTOBUF"))
        return schema_id


def schema_text(url: str, schema_id: int) -> str | None:
    with SchemaRegistryClient({"url": url}) as client:
        text: str | None = client.get_schema(schema_id).schema_str
        return text


def assert_own_sessions(services: Services) -> None:
    for pid in services.pids.values():
        assert os.getsid(pid) == pid


def test_records_and_schemas_survive_down_and_up(folder: Path) -> None:
    reported: list[str] = []
    first = up(folder, report=reported.append)
    assert find(folder) == first
    assert_own_sessions(first)
    produce_one(first.servers)
    schema_id = register_one(first.registry)

    assert up(folder, report=reported.append) == first
    assert reported[-1].startswith("Already up: ")

    assert down(folder) == [f"{name} (pid {pid})" for name, pid in first.pids.items()]
    assert find(folder) is None
    assert down(folder) == []

    second = up(folder, report=reported.append)
    assert (second.servers, second.registry) == (first.servers, first.registry)
    assert first_record(second.servers) == b"hello"
    assert schema_text(second.registry, schema_id) == SCHEMA

    os.kill(second.pids["broker"], signal.SIGKILL)
    os.waitpid(second.pids["broker"], 0)
    assert find(folder) is None
    third = up(folder, report=reported.append)
    gone = f"The broker (pid {second.pids['broker']}) has exited"
    assert any(line.startswith(gone) for line in reported)
    assert first_record(third.servers) == b"hello"
    assert len(down(folder)) == 2


def test_busy_port_is_refused_before_anything_starts(folder: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SetupError) as caught:
            up(folder, registry_port=port)
    assert caught.value.code == "port-in-use"
    assert not list(folder.glob("*.pid"))


def test_folder_that_was_never_up(tmp_path: Path) -> None:
    assert find(tmp_path / "nothing") is None
    assert down(tmp_path / "nothing") == []
    assert not (tmp_path / "nothing").exists()


def test_registry_that_gives_up_is_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    gave_up = start_detached("registry", [sys.executable, "-c", "pass"], folder)
    lasting = start_detached("other", [sys.executable, "-c", "import time; time.sleep(60)"], folder)
    monkeypatch.setattr(registry, "start_registry", lambda folder, port: lasting)
    monkeypatch.setattr(registry, "registry_answers", _after_exit_of(gave_up))
    assert services._wait_for_registry(gave_up, folder, 1) is lasting
    lasting.stop()


def _after_exit_of(process: DetachedProcess) -> Callable[[int], bool]:
    """Answer only at the second call after a process has exited: it is not the one that answers."""
    calls = iter([False, True])
    return lambda port: not process.is_alive() and next(calls)
