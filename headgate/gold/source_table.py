"""A table that others are derived from: what it got since they were last brought up to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableCache, TableError


@dataclass(frozen=True)
class DerivedTable:
    """A derived table at its newest version, or one that does not exist yet."""

    lake: str
    name: str
    content: Snapshot | None

    def marked(self, app: str) -> int | None:
        """Return the version of a source up to which the table has everything."""
        return None if self.content is None else self.content.mark(app)


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

    def __init__(self, lake: str, tables: TableCache) -> None:
        self._lake = lake
        self._tables = tables
        self._seen: dict[str, Snapshot | None] = {}

    def rows_since(
        self, source: str, derived: DerivedTable, app: str, anew: bool = False
    ) -> SourceRows | None:
        """What is new, or anew all there is; None where the derived table has everything."""
        if source not in self._seen:
            self._seen[source] = Snapshot.newest(self._lake, source, self._tables)
        table, marked = self._seen[source], derived.marked(app)
        if table is None or (marked is not None and marked >= table.version and not anew):
            return None
        is_plain = table.is_plain
        new = table.since(marked) if is_plain and not anew else table
        return SourceRows(
            self._lake,
            source,
            table.version,
            new.files,
            new.schema,
            marked,
            is_whole=new is table,
            is_plain=is_plain,
        )


def rows_then(rows: SourceRows) -> SourceRows | None:
    """All rows of a source as it was when it was last looked at; None if nobody knows any more."""
    if rows.marked is None:
        return None
    try:
        there = Snapshot.open(rows.lake, rows.source, rows.marked)
    except TableError:
        return None
    if there is None or not there.has_files():
        return None
    return SourceRows(rows.lake, rows.source, rows.marked, there.files, there.schema)


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
