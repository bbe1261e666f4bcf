"""Where the services of a folder are, written down for the commands that come later."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


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
