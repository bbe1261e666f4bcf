"""The pipeline file that a command means: the one named, or the only one in this folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.pipeline import Pipeline

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
    from headgate.pipeline import load_stream_pipeline

    return load_stream_pipeline(find_pipeline(named))


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
