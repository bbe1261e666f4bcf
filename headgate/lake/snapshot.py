"""A table of the lake at one version: its columns, its files and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from headgate.lake.definition import TableDefinition
from headgate.lake.log import LogEntry
from headgate.lake.open_tables import (
    KnownVersion,
    OpenTable,
    ReadTable,
    TableCache,
    table_cache,
)
from headgate.lake.parquet import ParquetRows
from headgate.lake.query import quoted_name
from headgate.lake.storage import has_file
from headgate.lake.tables import NotWritable, added_files, open_table, table_url
from headgate.schema.conform import conform_rows

_IN_ORDER = {"datafusion.execution.target_partitions": "1"}
"""Read one file after the other, so that the same version always has the same order of rows."""

ListFiles = Callable[[], Mapping[str, int]]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table."""

    path: str
    """Relative to the table's folder."""
    size: int
    rows: int
    modified: int
    """Milliseconds since the epoch."""
    partition: str | None = None
    """The value of the partition column, if the table has one."""


@dataclass(frozen=True)
class Snapshot:
    """A table at one version."""

    lake: str
    table: str
    version: int
    opened: OpenTable = field(repr=False, compare=False)
    list_files: ListFiles | None = field(default=None, repr=False, compare=False)
    """Returns the sizes of files by path, if the snapshot has only some of the table's files."""

    @classmethod
    def open(cls, lake: str, table: str, version: int | None = None) -> Self | None:
        """Return the newest version, or an older one; None if the table does not exist."""
        delta = open_table(table_url(lake, table), version)
        return None if delta is None else cls.of(lake, table, delta)

    @classmethod
    def newest(cls, lake: str, table: str, tables: TableCache | None = None) -> Self | None:
        """Return the newest version of a table from the cache."""
        opened = (tables or table_cache(lake)).newest(table)
        return None if opened is None else cls(lake, table, opened.version, opened)

    @classmethod
    def of(cls, lake: str, table: str, read: DeltaTable | KnownVersion) -> Self:
        url = table_url(lake, table)
        if isinstance(read, KnownVersion):
            opened = OpenTable.of(ReadTable(url, read.version, read.definition))
        else:
            opened = OpenTable.of(ReadTable(url, read.version(), read))
        return cls(lake, table, opened.version, opened)

    @property
    def url(self) -> str:
        return table_url(self.lake, self.table)

    @property
    def delta(self) -> DeltaTable:
        """The version as delta-rs has it, which may have to read it. Only for modules of `lake`."""
        return self.opened.delta

    @property
    def definition(self) -> TableDefinition:
        """The protocol and the metadata of the table."""
        return self.opened.definition

    @property
    def schema(self) -> pa.Schema:
        return self.opened.schema

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of all files by path."""
        return self.opened.sizes if self.list_files is None else self.list_files()

    @cached_property
    def row_counts(self) -> Mapping[str, int | None]:
        """Numbers of rows of all files by path, where the log has them."""
        added = self._added
        names = map(unquote, added["path"].to_pylist())
        return dict(zip(names, added["num_records"].to_pylist(), strict=True))

    @property
    def data_files(self) -> list[DataFile]:
        """All files whose rows the log has counted, of a table with simple partitions."""
        added = self._added.select(["path", "size_bytes", "num_records", "modification_time"])
        rows = zip(*(column.to_pylist() for column in added.columns), strict=True)
        return [
            DataFile(path, size, count, modified, self.partition_of(path))
            for path, size, count, modified in ((unquote(row[0]), *row[1:]) for row in rows)
            if count is not None
        ]

    def partition_of(self, path: str) -> str | None:
        """Return the value of the partition column for a file of a table with simple partitions."""
        values = self._partitions.get(path)
        value = next(iter(values.values())) if values else None
        return None if value is None else str(value)

    @property
    def files(self) -> tuple[str, ...]:
        """URLs of all files."""
        return tuple(f"{self.url}/{name}" for name in self.sizes)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def table_id(self) -> str:
        """The id that the table got when it was created."""
        return self.opened.table_id

    @property
    def partition_columns(self) -> Sequence[str]:
        return self.definition.metadata.partition_columns

    @property
    def has_simple_partitions(self) -> bool:
        """Whether the table has at most one partition column, which is text."""
        columns = self.partition_columns
        return not columns or (
            len(columns) == 1 and pa.types.is_string(self.schema.field(columns[0]).type)
        )

    @property
    def is_plain(self) -> bool:
        """Whether the Parquet files of the table have its rows as they are, but for the values of
        partition columns."""
        return self.definition.is_plain

    @property
    def files_are_complete(self) -> bool:
        """Whether the Parquet files of the table have its rows, with all columns, as they are."""
        return self.is_plain and not self.partition_columns

    def mark(self, app: str) -> int | None:
        """Return the newest version that an app has marked in the table, if any."""
        return self.opened.mark(app)

    def has_files(self) -> bool:
        """Whether all files exist: VACUUM deletes those of older versions."""
        return all(map(has_file, self.files))

    def since(self, version: int | None) -> Self:
        """Return the files added after a version; the whole table if they are unknown."""
        if version is None or not self.definition.has_added_rows_in_files:
            return self
        added: dict[str, int] = {}
        compacted = False
        for number in range(version + 1, self.version + 1):
            try:
                entry = LogEntry.read(self.url, number)
            except FileNotFoundError:
                return self
            if entry.removed or entry.has_deletion_vectors:
                return self  # rows have been rewritten, or files have others than the table
            compacted |= entry.is_compaction
            added |= {unquote(file["path"]): file["size"] for file in entry.added}
        if compacted and not self._still_has(added):
            return self
        return replace(self, list_files=lambda: added)

    def _still_has(self, paths: Iterable[str]) -> bool:
        """Whether files can still be read, though their rows may be in larger ones now."""
        gone = [path for path in paths if path not in self.sizes]
        is_partitioned = bool(self.partition_columns)  # the values are known no more
        return not gone or (
            not is_partitioned and all(has_file(f"{self.url}/{path}") for path in gone)
        )

    def rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows from the files."""
        return pa.Table.from_batches(self.portions(columns), self.selected(columns))

    def portions(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read rows in the columns and types of the table, which files may not have."""
        wanted = self.selected(columns)
        if self.is_plain or self.list_files is not None:
            for name in self.sizes:
                yield from self._portions_of(name, wanted)
        else:
            yield from self._portions_by_delta(wanted)

    def file_rows(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the rows of one file in the columns and types of the table."""
        if not self.is_plain:
            raise NotWritable(f"files of {self.table} do not have its rows as they are")
        wanted = self.selected(columns)
        return pa.Table.from_batches(self._portions_of(path, wanted, 1 << 20), wanted)

    def _portions_of(
        self, path: str, wanted: pa.Schema, rows_at_once: int = 1 << 16
    ) -> Iterator[pa.RecordBatch]:
        file = ParquetRows(f"{self.url}/{path}")
        in_file = set(file.names)
        for rows in file.batches([one for one in wanted.names if one in in_file], rows_at_once):
            yield _with_constants(conform_rows(rows, wanted), self._partitions.get(path, {}))

    def portions_in_order(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read rows in the order of their files: the same for everyone who reads the version."""
        if not self.is_plain:
            yield from self.portions(columns)
            return
        added = self._added
        times = added["modification_time"].cast(pa.int64()).to_pylist()
        names = [unquote(path) for path in added["path"].to_pylist()]
        order = sorted(zip(times, names, strict=True))
        sizes = {name: self.sizes[name] for _, name in order}
        yield from replace(self, list_files=lambda: sizes).portions(columns)

    def selected(self, columns: Sequence[str] | None) -> pa.Schema:
        return self.schema if columns is None else pa.schema(map(self.schema.field, columns))

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows, also of a table that is not plain.

        Never as a dataset of pyarrow, which reads files by calling back into Python: the process
        aborts if it exits before pyarrow's threads have let go of the last file.
        """
        return self.rows(columns)

    def _portions_by_delta(self, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read rows by delta-rs, which knows deletion vectors and mapped columns."""
        names = ", ".join(map(quoted_name, wanted.names)) or "NULL"
        for rows in self.query(f"SELECT {names} FROM stored", _IN_ORDER):
            selected = pa.Table.from_batches([rows]).select(range(len(wanted)))
            yield from selected.cast(wanted).to_batches()

    def query(self, sql: str, settings: Mapping[str, str] | None = None) -> pa.RecordBatchReader:
        """Run SQL over the table, which the query calls `stored`."""
        builder = QueryBuilder(dict(settings or {})).register("stored", self.delta)
        return pa.RecordBatchReader.from_stream(builder.execute(sql))

    def count(self) -> int:
        return int(self.delta.count())

    def statistics(self) -> pa.Table:
        """Return a row per file: `path`, and `min.<column>` and `max.<column>` where known."""
        added = added_files(self.delta, flatten=True)
        paths = [f"{self.url}/{unquote(path)}" for path in added["path"].to_pylist()]
        at = added.schema.get_field_index("path")
        return added.set_column(at, "path", pa.array(paths, pa.string()))

    def row_count(self) -> int:
        """Return the number of rows, from the table's log."""
        return sum(map(int, self._added["num_records"].to_pylist()))

    @cached_property
    def _partitions(self) -> Mapping[str, Mapping[str, object]]:
        """Values of the partition columns, which files do not have, by path."""
        if not self.partition_columns:
            return {}
        added = self._added
        names = map(unquote, added["path"].to_pylist())
        return dict(zip(names, added["partition"].to_pylist(), strict=True))

    @cached_property
    def _added(self) -> pa.Table:
        return added_files(self.delta)


def _with_constants(rows: pa.RecordBatch, values: Mapping[str, object]) -> pa.RecordBatch:
    if not values:
        return rows
    columns = [
        pa.repeat(pa.scalar(values[field.name], field.type), len(rows))
        if field.name in values
        else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
