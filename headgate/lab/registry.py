"""A schema registry with Confluent's API: Apicurio, bound to localhost."""

from __future__ import annotations

import os
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from headgate.errors import SetupError
from headgate.jars.jars import headgate_home, hold_lock, jar_paths
from headgate.jars.java import find_java
from headgate.lab.process import HOST, DetachedProcess, start_detached

NAME = "registry"
_JVM = ("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# Ignore proxy settings of the environment: the registry is on localhost.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def start_registry(folder: Path, port: int) -> DetachedProcess:
    """Start the registry on its data in `<folder>/registry`, without waiting until it is ready."""
    database = folder / "registry" / "schemas"
    if ";" in str(database):
        raise SetupError(
            "service-failed",
            f"the registry does not accept a semicolon in the path of its data: {database}",
            hint="choose a folder without a semicolon in its path",
        )
    database.parent.mkdir(parents=True, exist_ok=True)
    runner = next(unpacked_registry().glob("*-runner.jar"))
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": str(port),
        "quarkus.http.access-log.enabled": "false",
        "quarkus.banner.enabled": "false",
        'quarkus.log.category."io.apicurio".level': "WARN",
        # In a file, so that schemas keep their ids across restarts.
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": f"jdbc:h2:file:{database};WRITE_DELAY=0",
        "apicurio.datasource.jdbc.initial-size": "2",
        "apicurio.datasource.jdbc.min-size": "2",
        "apicurio.datasource.jdbc.max-size": "10",
        "apicurio.ccompat.max-subjects": "100000",
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    command = [str(find_java().path), *_JVM, *options, "-jar", str(runner)]
    return start_detached(NAME, command, folder)


def registry_url(port: int) -> str:
    """Return the base URL of Confluent's API."""
    return f"http://{HOST}:{port}/apis/ccompat/v7"


def registry_answers(port: int) -> bool:
    """Return whether a registry on the port accepts requests."""
    try:
        with _DIRECT.open(f"{registry_url(port)}/subjects", timeout=2.0) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def unpacked_registry() -> Path:
    """Return the folder with the registry's program, unpacked once per user."""
    (archive,) = jar_paths("registry")
    program = headgate_home() / "programs" / archive.name.removesuffix("-all.tar.gz")
    if not program.exists():
        with hold_lock(program.with_name(f"{program.name}.lock")):
            if not program.exists():
                _unpack(archive, program)
    return program


def _unpack(archive: Path, program: Path) -> None:
    unfinished = program.with_name(f"{program.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(unfinished, filter="data")
    os.replace(unfinished, program)
