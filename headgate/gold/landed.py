"""The tables that others are derived from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.pipeline import AnyPipeline, Pipeline


@dataclass(frozen=True)
class Landed:
    """A landed table: what it is called, and the value that decided so."""

    table: str
    name: str
    """What stands for `{route}` in the names of derived tables."""
    route: str


def landed(pipeline: AnyPipeline, tables: Iterable[tuple[str, str | None]]) -> list[Landed]:
    """Tables with their routes; those of a change pipeline are routes of their own."""
    if not isinstance(pipeline, Pipeline):
        return [Landed(table, table, table) for table, _ in tables]
    before, after = pipeline.silver.split("{route}")
    return [
        Landed(table, table.removeprefix(before).removesuffix(after), route)
        for table, route in tables
        if route is not None and table not in pipeline.own_tables.values()
    ]
