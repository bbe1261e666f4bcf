"""Whether this machine has what a run needs."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from headgate.errors import SetupError
from headgate.inspect.check import Check, fail, ok, tried, warn
from headgate.local import find_java, headgate_home, jar_paths

_OLDEST_PYTHON = (3, 11)
_GIGABYTE = 1_000_000_000
_LITTLE_ROOM = 5 * _GIGABYTE
_NO_ROOM = 1 * _GIGABYTE


def check_machine(folder: Path) -> list[Check]:
    """Python, Java, jars, and room on the disk that holds the folder."""
    return [
        tried("Python", _python),
        tried("Java", _java),
        tried("jars for Spark", _spark_jars),
        tried("jars for services", _service_jars),
        tried("disk", lambda: check_disk(folder)),
    ]


def check_disk(folder: Path) -> Check:
    """Room where the folder is or would be."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{free / _GIGABYTE:.1f} GB free at {folder}"
    if free < _NO_ROOM:
        return fail("disk", detail, "make room: a run needs at least 1 GB")
    if free < _LITTLE_ROOM:
        return warn("disk", detail, "make room, or put `lake` on a larger disk")
    return ok("disk", detail)


def _python() -> Check:
    detail = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < _OLDEST_PYTHON:
        return fail("Python", detail, "use Python 3.11 or newer")
    return ok("Python", detail)


def _java() -> Check:
    java = find_java()
    return ok("Java", f"{java.major} at {java.path}")


def _spark_jars() -> Check:
    jars = jar_paths("spark")
    return ok("jars for Spark", f"{len(jars)} in {headgate_home() / 'jars'}")


def _service_jars() -> Check:
    try:
        count = len(jar_paths("kafka")) + len(jar_paths("registry"))
    except SetupError:
        return ok("jars for services", "not fetched; headgate up fetches them when it needs them")
    return ok("jars for services", f"{count} in {headgate_home() / 'jars'}")
