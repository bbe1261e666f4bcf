"""Whether the local broker, registry and database run, or could."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from headgate.inspect.check import Check, fail, ok, tried, warn
from headgate.local import Services, find
from headgate.local.broker import broker_answers
from headgate.local.database import NAME, Database, database_answers
from headgate.local.detached_process import recorded_process
from headgate.local.ports import is_free
from headgate.local.registry import registry_answers
from headgate.local.services import find_database
from headgate.local.services_file import read_services

USUAL_PORTS = {"broker": 9092, "registry": 8081, "database": 3306}


def check_services(folder: Path) -> list[Check]:
    services, database = find(folder), find_database(folder)
    taken = {database.port} if database else set()
    if services is not None:
        taken |= {services.kafka_port, services.registry_port}
    return [
        tried("local services", lambda: _services(folder, services)),
        tried("local database", lambda: _database(folder, database)),
        *(
            tried(f"port {port}", partial(_port, port, name, taken))
            for name, port in USUAL_PORTS.items()
        ),
    ]


def _services(folder: Path, services: Services | None) -> Check:
    name = "local services"
    if services is None:
        recorded = read_services(folder.absolute())
        if recorded is not None and recorded.pids:
            what = ", ".join(f"{each} (pid {pid})" for each, pid in recorded.pids.items())
            return warn(name, f"recorded as running, but not all do: {what}", "headgate up")
        return ok(name, "none run here; headgate up starts a broker and a registry")
    mute = [
        each
        for each, answers in (
            ("broker", broker_answers(services.kafka_port)),
            ("registry", registry_answers(services.registry_port)),
        )
        if not answers
    ]
    if mute:
        return fail(
            name, f"the {' and the '.join(mute)} gives no answer", "headgate down, then headgate up"
        )
    return ok(name, f"broker at {services.servers}, registry at {services.registry}")


def _database(folder: Path, database: Database | None) -> Check:
    name = "local database"
    if database is None:
        process = recorded_process(NAME, folder.absolute())
        if process is not None:
            detail = f"recorded as running, but process {process.pid} is gone"
            return warn(name, detail, "headgate up --database")
        return ok(name, "none runs here; headgate up --database starts one")
    if not database_answers(database.folder, database.port):
        fix = "headgate down, then headgate up --database"
        return fail(name, f"process {database.pid} gives no answer at {database.address}", fix)
    return ok(name, f"at {database.address}, log in with {database.login_file}")


def _port(port: int, name: str, taken: Collection[int]) -> Check:
    if port in taken:
        return ok(f"port {port}", f"the local {name} listens here")
    if is_free(port):
        return ok(f"port {port}", f"free for a local {name}")
    # Nothing is broken: `headgate up` takes another port then.
    return ok(f"port {port}", f"another program has it; a local {name} takes another port")
