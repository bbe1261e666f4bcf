"""A table that others are derived from: what it got since they were last brought up to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.cdc.change_log import ChangeLog
from headgate.lake.delta_rs import reads_as_it_is
from headgate.lake.tables import OpenTables


@dataclass(frozen=True)
class DerivedTable:
    """A derived table as it stands, if it does."""

    lake: str
    name: str
    opened: DeltaTable | None

    @cached_property
    def content(self) -> ChangeLog | None:
        opened = self.opened
        return None if opened is None else ChangeLog.of(opened, Path(self.lake, self.name))

    def marked(self, app: str) -> int | None:
        """The version of a source, of which it has everything."""
        return None if self.opened is None else self.opened.transaction_version(app)


@dataclass(frozen=True)
class SourceRows:
    """Rows of a source that a derived table does not have yet, or all of them."""

    lake: str
    source: str
    version: int
    """With these rows, the derived table has everything up to this version of the source."""
    files: tuple[str, ...]
    schema: pa.Schema
    marked: int | None = None
    """The version that the derived table had everything of so far."""
    is_whole: bool = True
    """Whether these are all rows, be it that nothing was known of them or that some changed."""
    is_plain: bool = True
    """Whether the rows of the files are the rows of the table."""

    @property
    def was_rewritten(self) -> bool:
        """Whether rows that the derived table knows of may be others by now."""
        return self.is_whole and self.marked is not None


@dataclass(frozen=True)
class OutdatedTable:
    """A derived table, and what its sources have got that it has not."""

    derived: DerivedTable
    sources: tuple[SourceRows, ...]
    is_whole: bool
    """Whether all rows of all sources are there, so that the table is made anew."""

    @property
    def name(self) -> str:
        return self.derived.name


class SourceTables:
    """Tables that others are derived from, each looked at once for all declarations."""

    def __init__(self, lake: str, tables: OpenTables) -> None:
        self._lake = lake
        self._tables = tables
        self._seen: dict[str, _SourceTable | None] = {}

    def rows_since(
        self, source: str, derived: DerivedTable, app: str, anew: bool = False
    ) -> SourceRows | None:
        """What is new, or anew all there is; None where the derived table has everything."""
        if source not in self._seen:
            opened = self._tables.newest(source)
            self._seen[source] = (
                None if opened is None else _SourceTable(self._lake, source, opened)
            )
        table, marked = self._seen[source], derived.marked(app)
        if table is None or (marked is not None and marked >= table.version and not anew):
            return None
        new = table.content.since(marked) if table.is_plain and not anew else table.content
        return SourceRows(
            self._lake,
            source,
            table.version,
            tuple(str(new.path / name) for name in new.files),
            new.schema,
            marked,
            is_whole=new is table.content,
            is_plain=table.is_plain,
        )


@dataclass(frozen=True)
class _SourceTable:
    lake: str
    name: str
    opened: DeltaTable

    @cached_property
    def version(self) -> int:
        return self.opened.version()

    @cached_property
    def content(self) -> ChangeLog:
        return ChangeLog.of(self.opened, Path(self.lake, self.name))

    @cached_property
    def is_plain(self) -> bool:
        return reads_as_it_is(self.opened)


def rows_then(rows: SourceRows) -> SourceRows | None:
    """All rows of a source as it was when it was last looked at; None if nobody knows any more."""
    if rows.marked is None:
        return None
    try:
        there = ChangeLog.open(rows.lake, rows.source, rows.marked)
    except DeltaError:
        return None
    if there is None or not all((there.path / name).exists() for name in there.files):
        return None
    files = tuple(str(there.path / name) for name in there.files)
    return SourceRows(rows.lake, rows.source, rows.marked, files, there.schema)


def alike(
    sources: Iterable[SourceRows], columns: Iterable[str], surely: Iterable[str]
) -> list[tuple[pa.Schema, list[SourceRows]]]:
    """The sources by the types of the columns that are asked for; one that lacks a column goes
    with any that have it, and has it as null. One that surely is a column is null where no
    source has it; what else is asked for may be a name that the query itself gives."""
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
    always = {name.lower() for name in surely}
    return [(_schema(fields, always), members) for fields, members in groups]


def _same(known: pa.Field | None, field: pa.Field) -> bool:
    return known is None or (known.name == field.name and known.type.equals(field.type))


def _schema(fields: Mapping[str, pa.Field], always: Iterable[str]) -> pa.Schema:
    """Columns that no table has are null, of no type; `route` is known anyway."""
    missing = sorted(name for name in always if name not in fields and name != "route")
    plain = [pa.field(field.name, field.type) for field in fields.values()]
    return pa.schema([*plain, *(pa.field(name, pa.null()) for name in missing)])
