"""A landed table as the source of derived ones: what it got since they were last computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.change.change_log import ChangeLog


@dataclass(frozen=True)
class SourceRows:
    """Rows of one landed table that a derived table does not have yet."""

    source: str
    table: str
    """The derived one."""
    version: int
    """Of the source: with these rows, the derived table has everything up to it."""
    files: tuple[str, ...]
    schema: pa.Schema
    marked: int | None = None
    """The version that the derived table has everything of so far."""
    is_whole: bool = True
    """Whether these are all rows, be it that nothing is known or that some were changed."""


def rows_since(lake: str, source: str, table: str, app: str) -> SourceRows | None:
    """None where there is nothing new."""
    there = ChangeLog.open(lake, source)
    if there is None:
        return None
    marked = _marked(Path(lake, table), app)
    if marked is not None and marked >= there.version:
        return None
    new = there.since(marked)
    return SourceRows(
        source,
        table,
        there.version,
        tuple(str(there.path / name) for name in new.files),
        there.schema,
        marked,
        is_whole=marked is None or new is there,
    )


def rows_then(lake: str, rows: SourceRows) -> SourceRows | None:
    """All rows of a source as it was when it was last looked at; None if nobody knows any more."""
    if rows.marked is None:
        return None
    try:
        there = ChangeLog.open(lake, rows.source, rows.marked)
    except DeltaError:
        return None
    if there is None or not all((there.path / name).exists() for name in there.files):
        return None
    files = tuple(str(there.path / name) for name in there.files)
    return replace(rows, version=rows.marked, files=files, schema=there.schema)


def _marked(path: Path, app: str) -> int | None:
    try:
        return DeltaTable(str(path)).transaction_version(app)
    except TableNotFoundError:
        return None


def alike(
    sources: Iterable[SourceRows], columns: Iterable[str]
) -> list[tuple[pa.Schema, list[SourceRows]]]:
    """The sources by the types of the columns that are asked for; one that lacks a column goes
    with any that have it, and has it as null."""
    wanted = {name.lower() for name in columns}
    groups: list[tuple[dict[str, pa.Field], list[SourceRows]]] = []
    for one in sources:
        mine = {field.name.lower(): field for field in one.schema if field.name.lower() in wanted}
        for fields, members in groups:
            if all(_same(fields.get(name), field) for name, field in mine.items()):
                fields.update(mine)
                members.append(one)
                break
        else:
            groups.append((dict(mine), [one]))
    return [(_schema(fields, wanted), members) for fields, members in groups]


def _same(known: pa.Field | None, field: pa.Field) -> bool:
    return known is None or (known.name == field.name and known.type.equals(field.type))


def _schema(fields: Mapping[str, pa.Field], wanted: Iterable[str]) -> pa.Schema:
    """Columns that no table has are null, as text; `route` is known anyway."""
    missing = sorted(name for name in wanted if name not in fields and name != "route")
    plain = [pa.field(field.name, field.type) for field in fields.values()]
    return pa.schema([*plain, *(pa.field(name, pa.string()) for name in missing)])
