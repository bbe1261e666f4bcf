"""How the change files of Google's Datastream are opened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from headgate.pipeline.declared import Declared
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.refused_at import refused_at
from headgate.pipeline.source_pattern import check_pattern, matching
from headgate.pipeline.wording import listed, shown

_SERVER = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_LINEAGE = re.compile(rf"log:[!-~][ -~]*|gtid:(?:{_SERVER}|0*(?P<domain>[0-9]{{1,10}}))")
_NUMBERED_LOG = re.compile(r"log:.*\.[0-9]+")


def _check_keys(keys: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    refused: dict[str | int, InvalidPipeline] = {}
    for pattern, columns in keys.items():
        try:
            check_pattern(pattern)
            _check_columns(columns)
        except InvalidPipeline as error:
            refused[pattern] = error
    if refused:
        raise refused_at(refused)
    return {pattern: tuple(columns) for pattern, columns in keys.items()}


def _check_columns(columns: Sequence[str]) -> None:
    if not columns or not all(columns):
        raise InvalidPipeline(
            "bad-value", "needs the names of columns", "for example `shop.orders: [order_id]`"
        )
    if twice := _twice(columns):
        raise InvalidPipeline("bad-value", f"has {listed(twice)} twice")


def _check_lineages(lineages: Sequence[str]) -> tuple[str, ...]:
    read: list[str] = []
    refused: dict[str | int, InvalidPipeline] = {}
    for index, lineage in enumerate(lineages):
        try:
            read.append(_read_lineage(lineage))
        except InvalidPipeline as error:
            refused[index] = error
    if refused:
        raise refused_at(refused)
    if twice := _twice(read):
        raise InvalidPipeline("bad-value", f"has {listed(twice)} twice")
    return tuple(read)


def _read_lineage(lineage: str) -> str:
    """As changes tell it: the letters of a GTID are small, and its numbers without zeros."""
    found = _LINEAGE.fullmatch(lineage)
    if found is None or _NUMBERED_LOG.fullmatch(lineage):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(lineage)}",
            f"leave out the number of the file: `{lineage.rpartition('.')[0]}`"
            if found
            else "write `log:` and the name of a series of logs, such as `log:mysql-bin`, or"
            " `gtid:` and the UUID of a server or the number of a domain",
        )
    if found["domain"]:
        return f"gtid:{found['domain']}"
    return lineage if lineage.startswith("log:") else lineage.lower()


def _twice(words: Sequence[str]) -> list[str]:
    return sorted({word for word in words if words.count(word) > 1})


class Datastream(Declared):
    """Datastream's records of changes: what happened to a row, where in the log, and the row."""

    keys: Annotated[Mapping[str, Sequence[str]], AfterValidator(_check_keys)] = Field(
        default_factory=dict, examples=[{"shop.visits": ["visit_id"]}]
    )
    """The keys of tables whose changes do not name one, by pattern of `database.table`; of several
    patterns, the first that matches."""

    lineages: Annotated[Sequence[str], AfterValidator(_check_lineages)] = Field(
        default=(), examples=[["log:mysql-bin", "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562"]]
    )
    """Series of logs, in the order in which their servers took over from each other; positions
    say nothing across them."""

    def key_of(self, name: str) -> tuple[str, ...] | None:
        """The declared key of a source's table, given as `database.table`."""
        pattern = matching(name, self.keys)
        return None if pattern is None else tuple(self.keys[pattern])
