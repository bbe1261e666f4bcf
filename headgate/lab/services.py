"""The services of one folder: up, down, and found again by the next command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from headgate.errors import SetupError
from headgate.jars.jars import fetch_jars, hold_lock
from headgate.lab import broker, database, registry
from headgate.lab.database import Database, database_folder
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    choose_port,
    recorded_process,
    wait_until_answering,
)


@dataclass(frozen=True)
class Services:
    """A broker and a registry; without pids when they were stopped."""

    servers: str
    registry: str
    folder: Path
    pids: dict[str, int]

    @property
    def kafka_port(self) -> int:
        return int(self.servers.rpartition(":")[2])

    @property
    def registry_port(self) -> int:
        port = urlsplit(self.registry).port
        assert port is not None
        return port


def read_services(folder: Path) -> Services | None:
    """What was last written down, running or not."""
    try:
        record = json.loads(_file(folder).read_text("utf-8"))
        pids = {str(name): int(pid) for name, pid in record["pids"].items()}
        services = Services(str(record["servers"]), str(record["registry"]), folder, pids)
        return services if services.kafka_port and services.registry_port else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, AssertionError):
        # Nothing in it is needed to start anew.
        return None


def write_services(services: Services) -> None:
    """Write it down at once or not at all."""
    record = {
        "servers": services.servers,
        "registry": services.registry,
        "pids": services.pids,
    }
    file = _file(services.folder)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    os.replace(unfinished, file)


def _file(folder: Path) -> Path:
    return folder / "services.json"


DEFAULT_FOLDER = Path(".headgate")
_PAIR = (broker.NAME, registry.NAME)
_ALL = (*_PAIR, database.NAME)


def _silent(message: str) -> None:
    """Who is told what happens, unless the caller says otherwise: nobody."""


def up(
    folder: Path = DEFAULT_FOLDER,
    kafka_port: int | None = None,
    registry_port: int | None = None,
    say: Callable[[str], None] = _silent,
) -> Services:
    """Start broker and registry, or find them running; what they hold survives `down`."""
    folder = folder.absolute()
    with _one_at_a_time(folder, say):
        running = find(folder)
        if running is not None:
            return _still_answering(running, say)
        _clear_stale(folder, say)
        last = read_services(folder)
        kafka = choose_port(broker.NAME, asked=kafka_port, last=last.kafka_port if last else None)
        schemas = choose_port(
            registry.NAME,
            asked=registry_port,
            last=last.registry_port if last else None,
            taken={kafka},
        )
        controller = choose_port("controller", asked=None, taken={kafka, schemas})
        fetch_jars(("kafka", "registry"), say)
        say(f"Starting a broker on port {kafka} and a registry on port {schemas}")
        services = _start(folder, kafka, schemas, controller)
        write_services(services)
        say(f"Up: {_addresses(services)}")
        return services


def up_database(
    folder: Path = DEFAULT_FOLDER,
    port: int | None = None,
    say: Callable[[str], None] = _silent,
) -> Database:
    """Start the database, or find it running; what it holds survives `down`."""
    folder = folder.absolute()
    with _one_at_a_time(folder, say):
        running = find_database(folder)
        if running is not None:
            if not database.database_answers(folder, running.port):
                raise _stale([f"{database.NAME} (pid {running.pid})"], folder, "up --database")
            say(f"Already up: {database.NAME} at {running.address}")
            return running
        _clear_gone_database(folder, say)
        last = database_folder(folder).port()
        chosen = choose_port(database.NAME, asked=port, last=last)
        say(f"Starting a database on port {chosen}")
        started = Database(folder, chosen, _start_database(folder, chosen).pid)
        say(f"Up: {database.NAME} at {started.address}")
        return started


def down(folder: Path = DEFAULT_FOLDER) -> list[str]:
    """Stop what runs in the folder; returns what was stopped, as `broker (pid 123)`."""
    folder = folder.absolute()
    if not folder.is_dir():
        return []
    with _one_at_a_time(folder, _silent):
        stopped = [_named(process) for process in _recorded(folder, _ALL) if process.stop()]
        last = read_services(folder)
        if last is not None:
            # The addresses stay: the next `up` takes the same ports if they are free.
            write_services(replace(last, pids={}))
        return stopped


def find(folder: Path = DEFAULT_FOLDER) -> Services | None:
    """The broker and the registry of the folder if both of them run."""
    folder = folder.absolute()
    services = read_services(folder)
    alive = {process.name: process.pid for process in _recorded(folder) if process.is_alive()}
    everything_runs = services is not None and services.pids == alive and len(alive) == len(_PAIR)
    return services if everything_runs else None


def find_database(folder: Path = DEFAULT_FOLDER) -> Database | None:
    """The database of the folder if it runs."""
    folder = folder.absolute()
    process = recorded_process(database.NAME, folder)
    port = database_folder(folder).port()
    if process is None or port is None or not process.is_alive():
        return None
    return Database(folder, port, process.pid)


def _start(folder: Path, kafka: int, schemas: int, controller: int) -> Services:
    try:
        # The registry first: it boots while the broker's folder is being prepared.
        registry_process = registry.start_registry(folder, schemas)
        broker_process = broker.start_broker(folder, kafka, controller)
        wait_until_answering(broker_process, lambda: broker.broker_answers(kafka))
        wait_until_answering(registry_process, lambda: registry.registry_answers(schemas))
    except BaseException:
        for process in _recorded(folder):
            process.stop()
        raise
    return Services(
        servers=f"{HOST}:{kafka}",
        registry=registry.registry_url(schemas),
        folder=folder,
        pids={broker.NAME: broker_process.pid, registry.NAME: registry_process.pid},
    )


def _start_database(folder: Path, port: int) -> DetachedProcess:
    process = database.start_database(folder, port)
    try:
        wait_until_answering(process, lambda: database.database_answers(folder, port))
    except BaseException:
        process.stop()
        raise
    return process


def _still_answering(services: Services, say: Callable[[str], None]) -> Services:
    answers = {
        broker.NAME: broker.broker_answers(services.kafka_port),
        registry.NAME: registry.registry_answers(services.registry_port),
    }
    mute = [f"{name} (pid {services.pids[name]})" for name in _PAIR if not answers[name]]
    if mute:
        raise _stale(mute, services.folder, "up")
    say(f"Already up: {_addresses(services)}")
    return services


def _stale(mute: list[str], folder: Path, start_again: str) -> SetupError:
    return SetupError(
        "services-stale",
        f"recorded as running, but without an answer: {', '.join(mute)}",
        hint=f"run: headgate down, then headgate {start_again}",
        where=str(folder),
    )


def _clear_stale(folder: Path, say: Callable[[str], None]) -> None:
    for process in _recorded(folder):
        if process.is_alive():
            say(f"The {_named(process)} runs without its partner: starting both again")
        else:
            say(_gone(process))
        process.stop()


def _clear_gone_database(folder: Path, say: Callable[[str], None]) -> None:
    process = recorded_process(database.NAME, folder)
    if process is not None:
        if not process.is_alive():
            say(_gone(process))
        process.stop()


def _gone(process: DetachedProcess) -> str:
    return f"The {_named(process)} is recorded as running but is gone: starting it again"


def _one_at_a_time(folder: Path, say: Callable[[str], None]) -> AbstractContextManager[None]:
    return hold_lock(
        folder / "services.lock",
        on_wait=lambda: say("Waiting: another command starts or stops these services"),
    )


def _recorded(folder: Path, names: Sequence[str] = _PAIR) -> list[DetachedProcess]:
    return [found for name in names if (found := recorded_process(name, folder)) is not None]


def _named(process: DetachedProcess) -> str:
    return f"{process.name} (pid {process.pid})"


def _addresses(services: Services) -> str:
    return f"broker at {services.servers}, registry at {services.registry}"
