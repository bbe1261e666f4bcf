"""Sources of derived tables: which of their rows a derived table does not include yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headgate.lake.open_tables import TableCache
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError

_FEW = 4
"""How many times the size of its new rows a table has to have for them to be few."""
_SMALL = 512 << 10
"""Bytes of a table up to which all of it is read and written sooner than some groups are found."""
_LARGE = 8 << 20
"""Bytes of rows that are derived by several tasks."""


@dataclass(frozen=True)
class DerivedTable:
    """A derived table at its newest version, or one that does not exist yet."""

    lake: str
    name: str
    snapshot: Snapshot | None
    was_changed: bool = False
    """Whether others have changed its rows, so that it includes no version of any source."""

    def marked(self, app: str) -> int | None:
        """Return the version of a source that the table includes."""
        return None if self.snapshot is None or self.was_changed else self.snapshot.mark(app)


def app_of_version(app: str, source_id: str) -> str:
    """Return the app of the mark for a source: one that is created again has other versions."""
    return f"{app}@{source_id}"


@dataclass(frozen=True)
class SourceRows:
    """Rows of a source that a derived table does not include yet, or all rows."""

    lake: str
    source: str
    source_id: str
    version: int
    """The version of the source that the derived table includes once it has these rows."""
    files: tuple[str, ...]
    schema: pa.Schema
    marked: int | None = None
    """The version that the derived table includes so far."""
    is_whole: bool = True
    """Whether these are all rows: none was included so far, or some have changed."""
    is_plain: bool = True
    """Whether the files can be read directly, without deletion vectors or column mapping."""
    was_replaced: bool = False
    """Whether the derived table includes rows of another table of that name."""
    bytes: int = 0
    """Size of the files."""

    @property
    def was_rewritten(self) -> bool:
        """Whether rows that the derived table includes may have changed."""
        return self.was_replaced or (self.is_whole and self.marked is not None)


@dataclass(frozen=True)
class OutdatedTable:
    """A derived table, and the rows of its sources that it does not include yet."""

    derived: DerivedTable
    sources: tuple[SourceRows, ...]
    is_whole: bool
    """Whether these are all rows of all sources, so that the table is rebuilt."""

    @property
    def name(self) -> str:
        return self.derived.name

    @property
    def bytes(self) -> int:
        """Size of the files with rows that it does not include yet."""
        return sum(one.bytes for one in self.sources)

    @property
    def can_merge(self) -> bool:
        """Whether new rows can be merged into its files."""
        table = self.kept
        return table is not None and table.definition.obstacle_to_merge is None

    @property
    def has_few_new_rows(self) -> bool:
        """Whether it is not small, and much larger than what is new: most of its groups stay."""
        return self.kept is not None and self.kept.bytes > max(_SMALL, _FEW * self.bytes)

    @property
    def is_large(self) -> bool:
        """Whether one task would take long to write it as a whole."""
        return max(self.bytes, self.kept.bytes if self.kept else 0) > _LARGE

    @property
    def size(self) -> int:
        """Bytes that are read to update it as a whole."""
        return self.bytes + (self.kept.bytes if self.kept else 0)

    @property
    def files(self) -> int:
        """Files that are read to update it as a whole."""
        kept = len(self.kept.sizes) if self.kept else 0
        return kept + sum(len(one.files) for one in self.sources)

    @property
    def kept(self) -> Snapshot | None:
        """The table whose rows are kept; None if it is rebuilt, or does not exist yet."""
        return None if self.is_whole else self.derived.snapshot


class SourceTables:
    """Sources of derived tables, each opened once for all declarations."""

    def __init__(self, lake: str, tables: TableCache) -> None:
        self._lake = lake
        self._tables = tables
        self._snapshots: dict[str, Snapshot | None] = {}

    def rows_since(
        self, source: str, derived: DerivedTable, app: str, full: bool = False
    ) -> SourceRows | None:
        """Return new rows, or all rows if `full`; None if the derived table is up to date."""
        if source not in self._snapshots:
            self._open(source)
        table = self._snapshots[source]
        if table is None:
            return None
        marked = derived.marked(app_of_version(app, table.table_id))
        if marked is not None and marked > table.version:
            # Another process may have derived a newer version in the meantime.
            table = self._open(source) or table
        if marked == table.version and not full:
            return None
        is_plain = table.files_are_complete
        can_add = is_plain and not full and (marked is None or marked <= table.version)
        new = table.since(marked) if can_add else table
        if new is not table and not new.sizes:
            return None  # its newer versions have the same rows
        return SourceRows(
            self._lake,
            source,
            table.table_id,
            table.version,
            new.files,
            new.schema,
            marked,
            is_whole=new is table,
            is_plain=is_plain,
            was_replaced=marked is None and derived.marked(app) is not None,
            bytes=new.bytes,
        )

    def _open(self, source: str) -> Snapshot | None:
        self._snapshots[source] = table = Snapshot.newest(self._lake, source, self._tables)
        return table


def rows_at_mark(rows: SourceRows) -> SourceRows | None:
    """Return all rows of a source at the marked version; None if its files are gone."""
    if rows.marked is None:
        return None
    try:
        table = Snapshot.open(rows.lake, rows.source, rows.marked)
    except TableError:
        return None
    if table is None or not table.has_files():
        return None
    version = rows.marked
    return SourceRows(rows.lake, rows.source, rows.source_id, version, table.files, table.schema)


def group_by_types(
    sources: Iterable[SourceRows], columns: Iterable[str], required: Iterable[str]
) -> list[tuple[pa.Schema, list[SourceRows]]]:
    """Group sources by the types of the given columns; a column that a source lacks fits any type.

    Columns in `required` are part of every schema, as null if no source has them; other names may
    be aliases that the query defines.
    """
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
    always = {name.lower() for name in required}
    return [(_schema(fields, always), members) for fields, members in groups]


def _same(known: pa.Field | None, field: pa.Field) -> bool:
    return known is None or (known.name == field.name and known.type.equals(field.type))


def _schema(fields: Mapping[str, pa.Field], always: Iterable[str]) -> pa.Schema:
    """Return a schema with untyped nulls for missing columns; `route` is added elsewhere."""
    missing = sorted(name for name in always if name not in fields and name != "route")
    plain = [pa.field(field.name, field.type) for field in fields.values()]
    return pa.schema([*plain, *(pa.field(name, pa.null()) for name in missing)])
