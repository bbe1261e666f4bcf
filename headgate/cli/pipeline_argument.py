"""The pipeline file that a command means: the one named, or the only one in this folder."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.config import Pipeline

PipelineArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PIPELINE",
        help="The pipeline file; may be left out where a folder has only one.",
        show_default=False,
    ),
]

_TOP_KEYS = re.compile(r"^(name|source|registry|envelope|lake)\s*:", re.MULTILINE)
_ENOUGH_KEYS = 3


def find_pipeline(named: str | None) -> str:
    """The path of the file, as it was named."""
    if named is not None:
        return named
    found = sorted(
        str(path)
        for pattern in ("*.yaml", "*.yml")
        for path in Path().glob(pattern)
        if _is_pipeline(path)
    )
    if len(found) == 1:
        return found[0]
    if found:
        message = f"there are {len(found)} pipeline files here: {', '.join(found)}"
        raise UsageError("bad-argument", message, hint="name the one that you mean")
    raise UsageError(
        "bad-argument",
        "there is no pipeline file in this folder",
        hint="name one, or make one: headgate init",
    )


def load_named(named: str | None) -> Pipeline:
    """Load the pipeline of a command that only streams of records have."""
    from headgate.config import load_pipeline

    file = find_pipeline(named)
    pipeline = load_pipeline(file)
    if pipeline.lands_changes:
        raise UsageError(
            "bad-argument",
            f"{file} declares change files, and this is for streams of records only",
            hint="headgate check, status, tables and doctor take both kinds of pipelines",
        )
    return pipeline


def split_arguments(first: str | None, second: str | None) -> tuple[str | None, str | None]:
    """Of two arguments the first may be left out, unless it looks like a pipeline file."""
    if second is None and first is not None and not first.endswith((".yaml", ".yml")):
        return None, first
    return first, second


def _is_pipeline(path: Path) -> bool:
    try:
        keys = set(_TOP_KEYS.findall(path.read_text("utf-8", "replace")))
    except OSError:
        return False
    return len(keys) >= _ENOUGH_KEYS


def load_change_pipeline(file: str) -> Pipeline:
    """The pipeline that a file declares, which has to be one of change files."""
    from headgate.config import load_pipeline

    pipeline = load_pipeline(file)
    if pipeline.lands_changes:
        return pipeline
    raise UsageError(
        "bad-argument",
        f"{file} declares a stream of records, and this is for change files only",
        hint="streams have no change logs: the tables that their records land in are all there is",
    )


@contextmanager
def spark_when_needed(pipeline: Pipeline) -> Iterator[Callable[[], SparkSession]]:
    """A way to start Spark, quietly; most tables are small enough to do without."""

    with ExitStack() as stack:

        def start() -> SparkSession:
            from headgate.engine.session import pipeline_session

            stack.enter_context(quiet_spark())
            return pipeline_session(pipeline)

        yield start


_CHATTER = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"WARNING: A terminally deprecated method",
    b"WARNING: A restricted method",
    b"WARNING: Use --enable-native-access",
    b"WARNING: Restricted methods will be blocked",
    b"WARNING: sun.misc.Unsafe",
    b"WARNING: Please consider reporting this to the maintainers",
)


@contextmanager
def quiet_spark() -> Iterator[None]:
    """A JVM that is started inside writes to a pipe that is read here."""
    sys.stderr.flush()
    reading, writing = os.pipe()
    terminal = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    before = sys.stderr
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="replace")
    # A daemon: the JVM keeps its end open until this process has ended.
    threading.Thread(target=_pass_on, args=(reading,), name="spark's stderr", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        sys.stderr = before


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_CHATTER):
                # Looked up each time: a live view puts itself in its place.
                sys.stderr.write(line.decode("utf-8", "replace"))
