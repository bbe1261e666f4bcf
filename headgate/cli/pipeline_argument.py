"""The pipeline that a command works on, and a quiet Spark to work with."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.config import Duration, PipelineConfig

PipelineArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PIPELINE",
        help="Pipeline file; optional if the folder has only one.",
        show_default=False,
    ),
]

ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A Spark setting, instead of that in the pipeline file.",
        show_default=False,
    ),
]

OnlineOption = Annotated[
    bool,
    typer.Option("--online", help="Also ask the catalog whether grants are as declared."),
]

_TOP_KEYS = re.compile(r"^(name|source|registry|envelope|lake)\s*:", re.MULTILINE)
_MIN_KEYS = 3


def find_pipeline(named: str | None) -> str:
    """Return the pipeline file named on the command line, or the only one in this folder."""
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
        message = f"this folder has {len(found)} pipeline files: {', '.join(found)}"
        raise UsageError("bad-argument", message, hint="name the one to use")
    raise UsageError(
        "bad-argument",
        "no pipeline file in this folder",
        hint="name one, or create one with headgate init",
    )


def with_settings(pipeline: PipelineConfig, confs: Sequence[str]) -> PipelineConfig:
    """Return the pipeline with further Spark settings, each written as `KEY=VALUE`."""
    from headgate.config.secrets import check_spark_setting, check_spark_value, read_setting
    from headgate.errors import InvalidPipeline

    settings = dict(pipeline.spark)
    for conf in confs:
        key, equals, value = conf.partition("=")
        if not equals:
            raise UsageError("bad-argument", "--conf needs KEY=VALUE")
        try:
            check_spark_setting(key)
            settings[key] = read_setting(key, value, os.getcwd())
            check_spark_value(key, settings[key])
        except InvalidPipeline as error:
            raise UsageError("bad-argument", f"--conf {key} {error.message}", error.hint) from None
    return pipeline.model_copy(update={"spark": settings})


def load_record_pipeline(named: str | None) -> PipelineConfig:
    """Load a pipeline that must be one of a stream of records."""
    from headgate.config import load_pipeline

    file = find_pipeline(named)
    pipeline = load_pipeline(file)
    if not pipeline.lands_changes:
        return pipeline
    raise UsageError(
        "bad-argument",
        f"{file} declares change files, and this is for streams of records only",
        hint="headgate check, status, tables and doctor take both kinds of pipelines",
    )


def split_arguments(first: str | None, second: str | None) -> tuple[str | None, str | None]:
    """Return pipeline and second argument; a lone argument is a pipeline only if it is YAML."""
    if second is None and first is not None and not first.endswith((".yaml", ".yml")):
        return None, first
    return first, second


def _is_pipeline(path: Path) -> bool:
    try:
        keys = set(_TOP_KEYS.findall(path.read_text("utf-8", "replace")))
    except OSError:
        return False
    return len(keys) >= _MIN_KEYS


def load_change_pipeline(file: str) -> PipelineConfig:
    """Load a pipeline that must be one of change files."""
    from headgate.config import load_pipeline

    pipeline = load_pipeline(file)
    if pipeline.lands_changes:
        return pipeline
    raise UsageError(
        "bad-argument",
        f"{file} declares a stream of records; this command is for change files only",
        hint="only pipelines with `source: {files: …}` have change logs",
    )


def parse_duration(option: str, text: str) -> Duration:
    """Return the duration that an option has as text."""
    from headgate.config import Duration, InvalidPipeline

    try:
        return Duration.parse(text)
    except InvalidPipeline as error:
        raise UsageError("bad-argument", f"{option}: {error.message}", error.hint) from None


@contextmanager
def spark_when_needed(pipeline: PipelineConfig) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that starts Spark quietly; most tables are small enough not to need it."""

    with ExitStack() as stack:

        def start() -> SparkSession:
            from headgate.engine.session import pipeline_session

            stack.enter_context(quiet_spark())
            return pipeline_session(pipeline)

        yield start


_STARTUP_NOISE = (
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
    """Filter the noise that a JVM prints on standard error when it starts."""
    sys.stderr.flush()
    reading, writing = os.pipe()
    terminal = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    before = sys.stderr
    sys.stderr = own = os.fdopen(terminal, "w", buffering=1, errors="replace")
    # A daemon thread: the JVM keeps its end open until this process exits.
    threading.Thread(target=_forward, args=(reading,), name="spark's stderr", daemon=True).start()
    try:
        yield
    finally:
        own.flush()
        os.dup2(terminal, 2)
        sys.stderr = before
        own.close()


def _forward(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_STARTUP_NOISE):
                # Looked up each time: a live view replaces sys.stderr.
                with suppress(ValueError):  # closed meanwhile
                    sys.stderr.write(line.decode("utf-8", "replace"))
