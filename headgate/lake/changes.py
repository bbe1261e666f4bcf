"""The commits of a table, one after the other, and the rows that each of them changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema

from headgate.errors import LandingError
from headgate.lake.duck import Engine, Sql
from headgate.lake.log import LogEntry, identify_entry
from headgate.lake.parquet import ParquetRows
from headgate.lake.query import quoted_name
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError, table_url
from headgate.schema.conform import conform_rows

_CHANGE_TYPE = "_change_type"
"""The column of change data files that says what happened to a row."""


@dataclass(frozen=True)
class RowChanges:
    """Rows that were inserted, deleted and updated."""

    inserted: pa.Table
    deleted: pa.Table
    before: pa.Table
    """Updated rows as they were."""
    after: pa.Table
    """The same rows as they are now, in the same order."""

    @classmethod
    def of_inserted(cls, rows: pa.Table) -> Self:
        none = rows.schema.empty_table()
        return cls(rows, none, none, none)

    @property
    def tables(self) -> tuple[pa.Table, ...]:
        return self.inserted, self.deleted, self.before, self.after

    @property
    def only_inserts(self) -> bool:
        return not len(self.deleted) and not len(self.before)

    @property
    def bytes(self) -> int:
        return sum(rows.nbytes for rows in self.tables)

    def __len__(self) -> int:
        return len(self.inserted) + len(self.deleted) + len(self.after)


@dataclass(frozen=True)
class Changes:
    """The rows that one commit changed, in the columns that the table has since then."""

    version: int
    at: datetime
    rows: RowChanges

    @property
    def schema(self) -> pa.Schema:
        return self.rows.inserted.schema


class ChangeReader:
    """Reads the commits of a table in order, starting after a version."""

    def __init__(self, snapshot: Snapshot, key: Sequence[str] = ()) -> None:
        self.lake, self.table = snapshot.lake, snapshot.table
        self.version = snapshot.version
        self.schema = snapshot.schema
        self.is_plain = snapshot.is_plain
        self._key = key
        self._partitioned_by = tuple(snapshot.partition_columns)
        self._entry = identify_entry(snapshot.url, self.version)

    @property
    def url(self) -> str:
        return table_url(self.lake, self.table)

    def next(self) -> Changes | None:
        """Return the changes of the next commit; None if there is none yet."""
        version = self.version + 1
        entry = identify_entry(self.url, version)
        if entry is None:
            self._refuse_missing()
            return None
        known = identify_entry(self.url, self.version)
        if self._entry is not None and known not in (self._entry, None):
            raise table_gone(self.table)
        commit = LogEntry.read(self.url, version)
        if commit.protocol is not None:
            self.is_plain = self._snapshot(version).is_plain
        if commit.metadata is not None:
            self.schema = pa.schema(Schema.from_json(commit.metadata["schemaString"]))
            self._partitioned_by = tuple(commit.metadata["partitionColumns"])
        rows = self._changes(commit)
        self.version, self._entry = version, entry
        return Changes(version, commit.at, rows)

    def _changes(self, commit: LogEntry) -> RowChanges:
        if not commit.changes_rows:
            return RowChanges.of_inserted(self.schema.empty_table())
        if not self.is_plain:
            old = _conformed(self._snapshot(commit.version - 1).read(), self.schema)
            return compare_rows(old, self._snapshot(commit.version).read(), self._key)
        if commit.change_files:
            return self._recorded(commit)
        added = self._rows(commit.added)
        if not commit.removed:
            return RowChanges.of_inserted(added)
        return compare_rows(self._rows(commit.removed), added, self._key)

    def _recorded(self, commit: LogEntry) -> RowChanges:
        """Return the changes that the writer has recorded in change data files."""
        kind = pa.field(_CHANGE_TYPE, pa.string())
        rows = self._rows(commit.change_files, self.schema.append(kind))
        kinds = rows[_CHANGE_TYPE]
        rows = rows.drop_columns([_CHANGE_TYPE])
        gone = pc.is_in(kinds, pa.array(["delete", "update_preimage"]))
        return compare_rows(rows.filter(gone), rows.filter(pc.invert(gone)), self._key)

    def _rows(
        self, files: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None
    ) -> pa.Table:
        wanted = schema or self.schema
        try:
            return pa.Table.from_batches(self._portions(files, wanted), wanted)
        except FileNotFoundError as missing:
            raise version_gone(self.table, self.version + 1, str(missing)) from None

    def _portions(
        self, files: Sequence[Mapping[str, Any]], wanted: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            rows = ParquetRows(f"{self.url}/{unquote(file['path'])}")
            in_file = set(rows.names)
            values = file.get("partitionValues") or {}
            for batch in rows.batches([name for name in wanted.names if name in in_file]):
                yield _with_partition(conform_rows(batch, wanted), self._partitioned_by, values)

    def _snapshot(self, version: int) -> Snapshot:
        found = Snapshot.open(self.lake, self.table, version)
        if found is None:
            raise table_gone(self.table)
        return found

    def _refuse_missing(self) -> None:
        """Raise if the table is gone, or has newer versions whose log is gone."""
        if identify_entry(self.url, self.version) == self._entry and self._entry is not None:
            return
        try:
            newest = Snapshot.open(self.lake, self.table)
        except TableError:
            # It is disappearing just now.
            raise table_gone(self.table) from None
        if newest is None or newest.version < self.version:
            raise table_gone(self.table)
        if newest.version > self.version:
            raise version_gone(self.table, self.version + 1, "its log has been cleaned up")
        if identify_entry(self.url, self.version) is not None:
            raise table_gone(self.table)


def table_gone(table: str) -> LandingError:
    return LandingError(
        "table-replaced",
        f"table {table} has been dropped or replaced",
        hint="start the query again, without a token",
    )


def version_gone(table: str, version: int, why: str) -> LandingError:
    return LandingError(
        "version-vacuumed",
        f"version {version} of table {table} can no longer be read: {why}",
        hint="start again without a token: first come the rows so far; `maintain.max_versions`, or "
        "delta.deletedFileRetentionDuration for VACUUM, gives readers more time",
    )


def _with_partition(
    rows: pa.RecordBatch, columns: Sequence[str], values: Mapping[str, str | None]
) -> pa.RecordBatch:
    for name in columns:
        at = rows.schema.get_field_index(name)
        constant = _partition_value(values.get(name), rows.schema.field(at).type)
        rows = rows.set_column(at, rows.schema.field(at), pa.repeat(constant, len(rows)))
    return rows


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Read a value of a partition as the log has it."""
    value = pa.scalar(text or None, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None and text and not _OFFSET.search(text):
        # In UTC.
        return value.cast(pa.timestamp(kind.unit)).cast(kind)
    return value.cast(kind)


_OFFSET = re.compile(r"(Z|[+-]\d{2}:?\d{2})$")


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([conform_rows(one, schema) for one in rows.to_batches()], schema)


def compare_rows(
    old: pa.Table, new: pa.Table, key: Sequence[str], sql: Engine | None = None
) -> RowChanges:
    """Return the differences between rows; those with the same key are updates."""
    none = new.schema.empty_table()
    if not len(old):
        return RowChanges.of_inserted(new)
    key = [name for name in key if name in new.schema.names]
    sql = sql or Sql()
    old, new = _without_equal(sql, old, new)
    if not key or not len(old) or not len(new):
        return RowChanges(new, old, none, none)
    pairs = _pairs(sql, old, new, key)
    before, after = pairs["before"], pairs["after"]
    return RowChanges(
        _without(new, after), _without(old, before), old.take(before), new.take(after)
    )


_PLACE = "_headgate_place"
_COPY = "_headgate_copy"


def _without_equal(sql: Engine, old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Drop the rows that both have, as often as both have them."""
    numbered = {"old": _with_copies(sql, old), "new": _with_copies(sql, new)}
    same = _equal(new.schema.names)

    def places(of: str, other: str) -> pa.ChunkedArray:
        query = f"SELECT {_PLACE} FROM {of} ANTI JOIN {other} ON {same} ORDER BY {_PLACE}"
        return sql.table(query, **numbered)[_PLACE]

    return old.take(places("old", "new")), new.take(places("new", "old"))


def _pairs(sql: Engine, old: pa.Table, new: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the places of rows with the same key: `before` in `old`, `after` in `new`."""
    query = (
        f"SELECT old.{_PLACE} AS before, new.{_PLACE} AS after "
        f"FROM old JOIN new ON {_equal(key)} ORDER BY after"
    )
    old, new = _with_copies(sql, old.select(key)), _with_copies(sql, new.select(key))
    return sql.table(query, old=old, new=new)


def _equal(names: Sequence[str]) -> str:
    every = [quoted_name(name) for name in (*names, _COPY)]
    return " AND ".join(f"old.{name} IS NOT DISTINCT FROM new.{name}" for name in every)


def _with_copies(sql: Engine, rows: pa.Table) -> pa.Table:
    """Add the places of rows, and numbers for rows that are equal."""
    names = ", ".join(map(quoted_name, rows.schema.names))
    places = pa.array(range(len(rows)), pa.int64())
    query = (
        f"SELECT *, row_number() OVER (PARTITION BY {names} ORDER BY {_PLACE}) AS {_COPY} "
        "FROM rows_"
    )
    return sql.table(query, rows_=rows.append_column(_PLACE, places))


def _without(rows: pa.Table, places: pa.ChunkedArray) -> pa.Table:
    every = pa.array(range(len(rows)), pa.int64())
    return rows.filter(pc.invert(pc.is_in(every, places.combine_chunks())))
