"""Settings with which Spark runs Headgate's tasks on other machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from headgate.cluster.pack import Report, build_pack
from headgate.config import Secret

PACK = "spark.headgate.pack"
"""What executors get: `auto` for the packages of this environment, the path or URL of a pack, or
`none` if they have all of them."""

UNPACKED = "headgate-packages"
"""Folder of the unpacked pack, in the working directory of executors."""

EXECUTOR_PATH = "spark.executorEnv.PYTHONPATH"
PYTHON = "spark.pyspark.python"
"""The Python of executors, on their machines."""

_ARCHIVES = "spark.archives"


def master_of(settings: Mapping[str, str | Secret]) -> str:
    """Return the master that a session with these settings has; empty for Spark Connect."""
    return str(settings.get("spark.master") or os.environ.get("MASTER", ""))


def is_cluster(master: str | None) -> bool:
    """Whether tasks run on other machines than the driver."""
    return not (master or "local").startswith("local")


def same_python() -> str:
    """Return the command of a Python of this version: compiled packages do not fit another."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def shipped(
    settings: Mapping[str, str | Secret], report: Report = lambda _: None
) -> dict[str, str]:
    """Return the settings that send executors their packages, if they are on other machines."""
    if not is_cluster(master_of(settings)):
        return {}
    wanted = str(settings.get(PACK, "auto"))
    if wanted == "none":
        return {}
    pack = str(build_pack(report)) if wanted == "auto" else wanted
    return shipping(settings, pack)


def shipping(settings: Mapping[str, str | Secret], pack: str) -> dict[str, str]:
    """Return the settings that send a pack to executors, beside what they already send."""
    return {
        _ARCHIVES: _added(settings.get(_ARCHIVES), ",", f"{pack}#{UNPACKED}"),
        EXECUTOR_PATH: _added(settings.get(EXECUTOR_PATH), os.pathsep, UNPACKED),
    }


def _added(given: str | Secret | None, separator: str, value: str) -> str:
    return f"{given}{separator}{value}" if given else value
