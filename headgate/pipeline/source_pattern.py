"""Shell-style patterns that say which tables of a source are meant: `shop.*`, `*.audit_??`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.refused_at import refused_at
from headgate.pipeline.wording import shown


def matching(name: str, patterns: Iterable[str]) -> str | None:
    """The first pattern that a `database.table` matches; databases differ about case, so any."""
    return next((one for one in patterns if fnmatchcase(name.lower(), one.lower())), None)


def check_pattern(pattern: str) -> None:
    """A pattern without a dot is a forgotten database, unless a `*` may stand for one."""
    if not pattern.strip() or not any(each in pattern for each in ".*"):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(pattern)}",
            "write `database.table`; `*` stands for anything: `shop.*`, `*.orders`",
        )


def _check_all(patterns: Sequence[str]) -> tuple[str, ...]:
    refused: dict[str | int, InvalidPipeline] = {}
    for index, pattern in enumerate(patterns):
        try:
            check_pattern(pattern)
        except InvalidPipeline as error:
            refused[index] = error
    if refused:
        raise refused_at(refused)
    return tuple(patterns)


SourcePatterns = Annotated[Sequence[str], AfterValidator(_check_all)]
