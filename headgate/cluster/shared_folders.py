"""Folders that the driver and executors on other machines must both see.

A shared mount looks like any other folder, so only an executor can tell.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from headgate.cluster.settings import PYTHON, is_cluster, same_python
from headgate.config import Kafka, PipelineConfig
from headgate.config.location import is_remote
from headgate.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON_MISSING = re.compile(r'Cannot run program "([^"]+)"')
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH")
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named '[\w.]+')")


@dataclass(frozen=True)
class Place:
    """A path that tasks use, and what shows that they see the same as the driver."""

    path: str
    mark: str | None
    """A file or folder that the driver has there."""
    digest: str | None = None
    """What the file at `path` contains."""
    is_written: bool = False


def paths_of_tasks(pipeline: PipelineConfig) -> dict[str, str]:
    """Return the paths on this machine that tasks read or write, by the key that has them."""
    found = {"lake": pipeline.lake}
    if not isinstance(pipeline.source, Kafka):
        found["source"] = pipeline.source.path
    if pipeline.registry is not None:
        found |= {f"registry.{key}": path for key, path in pipeline.registry.paths.items()}
    return {key: path for key, path in found.items() if not is_remote(path)}


def require_shared(spark: SparkSession, pipeline: PipelineConfig) -> None:
    """Require that tasks on other machines can import Headgate, and see the same folders."""
    context = spark.sparkContext
    if not is_cluster(context.master):
        return
    paths = paths_of_tasks(pipeline)
    mark = Path(pipeline.lake, f".probe-{uuid4().hex}") if "lake" in paths else None
    try:
        if mark is not None:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        places = [_place(key, path, mark) for key, path in paths.items()]
        tasks = max(2, context.defaultParallelism)
        found = context.parallelize(range(tasks), tasks).flatMap(partial(_problems, places))
        problems = found.collect()
    except Exception as error:
        raise _explained(error) from error
    finally:
        if mark is not None:
            mark.unlink(missing_ok=True)
    if problems:
        host, path, what = min(problems)
        raise SetupError(
            "folder-not-shared",
            f"the executor on {host} {what}",
            hint="tasks run on other machines: use a mount that all of them share, or an object "
            "storage (for schemas: the URL of a registry)",
            where=path,
        )


def _place(key: str, path: str, mark: Path | None) -> Place:
    if key == "lake":
        return Place(path, str(mark), is_written=True)
    if os.path.isfile(path):
        return Place(path, None, _digest(path))
    with suppress(OSError), os.scandir(path) as entries:
        return Place(path, next((entry.path for entry in entries), None))
    return Place(path, None)


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _problems(places: Sequence[Place], task: int) -> Iterator[tuple[str, str, str]]:
    """Return what a task cannot use: the host, the path, and why."""
    for place in places:
        what = _problem(place, task)
        if what is not None:
            yield socket.gethostname(), place.path, what


def _problem(place: Place, task: int) -> str | None:
    try:
        if place.digest is not None and _digest(place.path) != place.digest:
            return "sees another file"
        if not os.path.exists(place.mark or place.path):
            return "does not see what the driver has there"
        if place.is_written and place.mark is not None:
            own = Path(f"{place.mark}-{task}")
            own.touch()
            own.unlink(missing_ok=True)
    except FileNotFoundError:
        return "does not see it"
    except OSError as error:
        return f"cannot use it: {error.strerror}"
    return None


def _explained(error: Exception) -> Exception:
    """Return what keeps tasks from running at all, if it is something that a user can change."""
    text = str(error)
    if missing := _PYTHON_MISSING.search(text):
        return SetupError(
            "executors-unfit",
            f"executors have no `{missing[1]}`",
            hint=f"install Python on their machines, or set `{PYTHON}` to the path that it has "
            "there",
        )
    if _OTHER_PYTHON.search(text):
        return SetupError(
            "executors-unfit",
            "executors have another version of Python than the driver",
            hint=f"set `{PYTHON}` to the path of {same_python()} on their machines",
        )
    if module := _NO_MODULE.search(text):
        return SetupError(
            "executors-unfit",
            f"executors cannot import what tasks need: {module[1]}",
            hint="leave out `spark.headgate.pack`, or install headgate on their machines",
        )
    return error
