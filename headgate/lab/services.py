"""Start, stop and find the local services of a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from headgate.errors import SetupError
from headgate.jars.jars import fetch_jars, hold_lock
from headgate.lab import airflow, broker, database, metastore, object_store, registry, require_lab
from headgate.lab.airflow import AirflowFolder, LocalAirflow
from headgate.lab.database import Database, database_folder
from headgate.lab.metastore import Metastore, MetastoreFolder
from headgate.lab.object_store import ObjectStore, StoreFolder
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    LocalService,
    choose_port,
    recorded_process,
    wait_until_ready,
)

DEFAULT_FOLDER = Path(".headgate")
_PAIR = (broker.NAME, registry.NAME)
_ALL = (*_PAIR, database.NAME, object_store.NAME, metastore.NAME, airflow.NAME)

Report = Callable[[str], None]
"""Receives progress messages."""


@dataclass(frozen=True)
class Services:
    """Addresses of a broker and a registry; `pids` is empty while they are stopped."""

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
    """Return the services recorded in the folder, running or not."""
    try:
        record = json.loads(_file(folder).read_text("utf-8"))
        pids = {str(name): int(pid) for name, pid in record["pids"].items()}
        services = Services(str(record["servers"]), str(record["registry"]), folder, pids)
        return services if services.kafka_port and services.registry_port else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, AssertionError):
        # A damaged record is ignored: a new start needs nothing from it.
        return None


def write_services(services: Services) -> None:
    """Record the services, atomically."""
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


def _ignore(message: str) -> None:
    """Discard a progress message."""


def up(
    folder: Path = DEFAULT_FOLDER,
    kafka_port: int | None = None,
    registry_port: int | None = None,
    report: Report = _ignore,
) -> Services:
    """Start a broker and a registry unless they run; their data survives `down`."""
    require_lab("psutil")
    folder = folder.absolute()
    with _exclusive(folder, report):
        running = find(folder)
        if running is not None:
            return _require_answers(running, report)
        _stop_remaining(folder, report)
        last = read_services(folder)
        kafka = choose_port(
            broker.NAME, requested=kafka_port, previous=last.kafka_port if last else None
        )
        schemas = choose_port(
            registry.NAME,
            requested=registry_port,
            previous=last.registry_port if last else None,
            taken={kafka},
        )
        controller = choose_port("controller", requested=None, taken={kafka, schemas})
        fetch_jars(("kafka", "registry"), report)
        report(f"Starting a broker on port {kafka} and a registry on port {schemas}")
        services = _start(folder, kafka, schemas, controller)
        write_services(services)
        report(f"Up: {_addresses(services)}")
        return services


_Service = TypeVar("_Service", bound=LocalService)


@dataclass(frozen=True)
class _OneProcess(Generic[_Service]):
    """How a service that is one process is started, and found again."""

    name: str
    option: str
    """Of `headgate up`."""
    service: type[_Service]
    last_port: Callable[[Path], int | None]
    start: Callable[[Path, int, Report], DetachedProcess]
    answers: Callable[[Path, int], bool]
    packages: tuple[str, ...] = ("psutil",)

    def up(self, folder: Path, port: int | None, report: Report) -> _Service:
        require_lab(*self.packages)
        folder = folder.absolute()
        with _exclusive(folder, report):
            running = self.find(folder)
            if running is not None:
                if not self.answers(folder, running.port):
                    raise _unresponsive([f"{self.name} (pid {running.pid})"], folder, self.option)
                report(f"Already up: {self.name} at {running.address}")
                return running
            _clear_record(self.name, folder, report)
            chosen = choose_port(self.name, requested=port, previous=self.last_port(folder))
            process = _ready(
                self.start(folder, chosen, report), lambda: self.answers(folder, chosen)
            )
            started = self.service(folder, chosen, process.pid)
            report(f"Up: {self.name} at {started.address}")
            return started

    def find(self, folder: Path) -> _Service | None:
        folder = folder.absolute()
        process = recorded_process(self.name, folder)
        port = self.last_port(folder)
        if process is None or port is None or not process.is_alive():
            return None
        return self.service(folder, port, process.pid)


def _start_database(folder: Path, port: int, report: Report) -> DetachedProcess:
    report(f"Starting a database on port {port}")
    return database.start_database(folder, port)


def _start_metastore(folder: Path, port: int, report: Report) -> DetachedProcess:
    report(f"Starting a Hive metastore on port {port}")
    return metastore.start_metastore(folder, port)


def _start_airflow(folder: Path, port: int, report: Report) -> DetachedProcess:
    report(f"Starting Airflow on port {port}")
    return airflow.start_airflow(folder, port, report)


_DATABASE = _OneProcess(
    database.NAME,
    "--database",
    Database,
    lambda folder: database_folder(folder).port(),
    _start_database,
    database.database_answers,
    ("psutil", "pymysql"),
)
_STORAGE = _OneProcess(
    object_store.NAME,
    "--storage",
    ObjectStore,
    lambda folder: StoreFolder.of(folder).port(),
    object_store.start_object_store,
    lambda _, port: object_store.object_store_answers(port),
)
_CATALOG = _OneProcess(
    metastore.NAME,
    "--catalog",
    Metastore,
    lambda folder: MetastoreFolder.of(folder).port(),
    _start_metastore,
    lambda _, port: metastore.metastore_answers(port),
)
_AIRFLOW = _OneProcess(
    airflow.NAME,
    "--airflow",
    LocalAirflow,
    lambda folder: AirflowFolder.of(folder).port(),
    _start_airflow,
    lambda _, port: airflow.airflow_answers(port),
)


def up_database(
    folder: Path = DEFAULT_FOLDER, port: int | None = None, report: Report = _ignore
) -> Database:
    """Start the database unless it runs; its data survives `down`."""
    return _DATABASE.up(folder, port, report)


def up_storage(
    folder: Path = DEFAULT_FOLDER, port: int | None = None, report: Report = _ignore
) -> ObjectStore:
    """Start the object store unless it runs; its buckets survive `down`."""
    return _STORAGE.up(folder, port, report)


def up_catalog(
    folder: Path = DEFAULT_FOLDER, port: int | None = None, report: Report = _ignore
) -> Metastore:
    """Start the metastore unless it runs; its entries survive `down`."""
    return _CATALOG.up(folder, port, report)


def up_airflow(
    folder: Path = DEFAULT_FOLDER, port: int | None = None, report: Report = _ignore
) -> LocalAirflow:
    """Start Airflow unless it runs; its DAGs and runs survive `down`."""
    return _AIRFLOW.up(folder, port, report)


def down(folder: Path = DEFAULT_FOLDER) -> list[str]:
    """Stop the folder's services; return those that were stopped, as `broker (pid 123)`."""
    folder = folder.absolute()
    if not folder.is_dir():
        return []
    with _exclusive(folder, _ignore):
        running = _recorded(folder, _ALL)
        stopped = [_named(process) for process in running if process.stop(_patience(process))]
        last = read_services(folder)
        if last is not None:
            # Keep the addresses: the next `up` uses the same ports if they are free.
            write_services(replace(last, pids={}))
        return stopped


def _patience(process: DetachedProcess) -> float:
    """Return the seconds to wait for a process.

    The object store waits for idle connections, and Airflow for its tasks.
    """
    return {object_store.NAME: 1.0, airflow.NAME: 30.0}.get(process.name, 10.0)


def find(folder: Path = DEFAULT_FOLDER) -> Services | None:
    """Return the folder's broker and registry if both run."""
    folder = folder.absolute()
    services = read_services(folder)
    alive = {process.name: process.pid for process in _recorded(folder) if process.is_alive()}
    both_run = services is not None and services.pids == alive and len(alive) == len(_PAIR)
    return services if both_run else None


def find_database(folder: Path = DEFAULT_FOLDER) -> Database | None:
    """Return the folder's database if it runs."""
    return _DATABASE.find(folder)


def find_storage(folder: Path = DEFAULT_FOLDER) -> ObjectStore | None:
    """Return the folder's object store if it runs."""
    return _STORAGE.find(folder)


def find_catalog(folder: Path = DEFAULT_FOLDER) -> Metastore | None:
    """Return the folder's metastore if it runs."""
    return _CATALOG.find(folder)


def find_airflow(folder: Path = DEFAULT_FOLDER) -> LocalAirflow | None:
    """Return the folder's Airflow if it runs."""
    return _AIRFLOW.find(folder)


def _start(folder: Path, kafka: int, schemas: int, controller: int) -> Services:
    try:
        # The registry first: it boots while the broker's folder is being formatted.
        registry_process = registry.start_registry(folder, schemas)
        broker_process = broker.start_broker(folder, kafka, controller)
        wait_until_ready(broker_process, lambda: broker.broker_answers(kafka))
        registry_process = _wait_for_registry(registry_process, folder, schemas)
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


def _wait_for_registry(process: DetachedProcess, folder: Path, port: int) -> DetachedProcess:
    """Wait until the registry answers.

    It gives up if its database takes longer than five seconds, as it may while other services
    start; the next attempt succeeds.
    """
    try:
        wait_until_ready(process, lambda: registry.registry_answers(port))
    except SetupError:
        if process.is_alive():
            raise
        process = registry.start_registry(folder, port)
        wait_until_ready(process, lambda: registry.registry_answers(port))
    return process


def _ready(process: DetachedProcess, answers: Callable[[], bool]) -> DetachedProcess:
    """Wait until a process answers; stop it if it does not."""
    try:
        wait_until_ready(process, answers)
    except BaseException:
        process.stop()
        raise
    return process


def _require_answers(services: Services, report: Report) -> Services:
    answers = {
        broker.NAME: broker.broker_answers(services.kafka_port),
        registry.NAME: registry.registry_answers(services.registry_port),
    }
    silent = [f"{name} (pid {services.pids[name]})" for name in _PAIR if not answers[name]]
    if silent:
        raise _unresponsive(silent, services.folder)
    report(f"Already up: {_addresses(services)}")
    return services


def _unresponsive(processes: list[str], folder: Path, option: str = "") -> SetupError:
    return SetupError(
        "services-stale",
        f"running but not responding: {', '.join(processes)}",
        hint=f"run: headgate down, then headgate up {option}".rstrip(),
        where=str(folder),
    )


def _stop_remaining(folder: Path, report: Report) -> None:
    """Stop a broker without its registry or the reverse, and clear records of exited processes."""
    for process in _recorded(folder):
        if process.is_alive():
            report(f"Only the {_named(process)} is running: restarting both")
        else:
            report(_exited(process))
        process.stop()


def _clear_record(name: str, folder: Path, report: Report) -> None:
    process = recorded_process(name, folder)
    if process is not None:
        if not process.is_alive():
            report(_exited(process))
        process.stop()


def _exited(process: DetachedProcess) -> str:
    return f"The {_named(process)} has exited: restarting it"


def _exclusive(folder: Path, report: Report) -> AbstractContextManager[None]:
    return hold_lock(
        folder / "services.lock",
        on_wait=lambda: report("Waiting: another command is starting or stopping these services"),
    )


def _recorded(folder: Path, names: Sequence[str] = _PAIR) -> list[DetachedProcess]:
    return [found for name in names if (found := recorded_process(name, folder)) is not None]


def _named(process: DetachedProcess) -> str:
    return f"{process.name} (pid {process.pid})"


def _addresses(services: Services) -> str:
    return f"broker at {services.servers}, registry at {services.registry}"
