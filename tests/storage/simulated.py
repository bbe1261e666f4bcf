"""A simulated object store, for machines on which the real one cannot be built.

It answers the same requests, but keeps objects in memory, and is too slow for many writers.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from headgate.config import Secret, Storage
from headgate.jars.jars import headgate_home, hold_lock
from headgate.lab.object_store import BUCKET, ObjectStore

_SECONDS = 60.0
_UV = str(Path(sys.executable).with_name("uv"))
_LOCK = Path(__file__).parents[2] / "requirements" / "simulated-storage.lock"


class SimulatedStore(ObjectStore):
    """Moto's S3. Tests that look into the real store are left out."""

    @property
    def settings(self) -> Storage:
        keys = self.folder / "key"
        keys.write_text("simulated")
        key = Secret("file", str(keys))
        return Storage(
            endpoint=f"http://{self.address}", region="us-east-1", access_key=key, secret_key=key
        )

    def folder_of(self, url: str) -> NoReturn:
        _leave_out()

    @property
    def requests(self) -> NoReturn:
        _leave_out()


def require_real(store: ObjectStore) -> None:
    """Leave a test out on a machine with the simulated store."""
    if isinstance(store, SimulatedStore):
        _leave_out()


def _leave_out() -> NoReturn:
    pytest.skip("needs the object store versitygw, which is built with Go")


@contextmanager
def simulated_store(folder: Path) -> Iterator[SimulatedStore]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = (folder / "moto.log").open("wb")
    server = [_installed(), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(server, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": ""})
    try:
        _create_bucket(port, process)
        yield SimulatedStore(folder, port, process.pid)
    finally:
        process.terminate()
        process.wait()
        log.close()


def _installed() -> str:
    """Return the Python of an environment with Moto, which is set up once."""
    environment = headgate_home() / "simulated-storage"
    python = str(environment / "bin" / "python")
    with hold_lock(environment.with_suffix(".lock")):
        if not (environment / "ready").exists():
            sync = ["--require-hashes", "--python", python, str(_LOCK)]
            for command in (["venv", "--clear", str(environment)], ["pip", "sync", *sync]):
                subprocess.run([_UV, *command], check=True, capture_output=True)
            (environment / "ready").touch()
    return python


def _create_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    ends = time.monotonic() + _SECONDS
    while True:
        try:
            urllib.request.urlopen(request, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.1)
