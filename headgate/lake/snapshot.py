"""A table of the lake at one version: its columns, its files and its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from headgate.lake.tables import OpenTables, open_table, reads_as_it_is, tables_kept_open
from headgate.schema.conform import conform_rows

_PORTION = 1 << 16

ListFiles = Callable[[], Mapping[str, int]]


@dataclass(frozen=True)
class Snapshot:
    """A table at one version."""

    lake: str
    table: str
    version: int
    delta: DeltaTable = field(repr=False, compare=False)
    """For the modules of the lake alone; it may be at a later version by now."""
    list_files: ListFiles | None = field(default=None, repr=False, compare=False)
    """Gives the sizes of files, where they are not all that the table has."""

    @classmethod
    def open(cls, lake: str, table: str, version: int | None = None) -> Self | None:
        """Return the newest version, or an older one; None where there is no such table."""
        return cls.of(lake, table, open_table(Path(lake, table), version))

    @classmethod
    def newest(cls, lake: str, table: str, tables: OpenTables | None = None) -> Self | None:
        """Return the newest version of a table that is looked at again and again."""
        return cls.of(lake, table, (tables or tables_kept_open(lake)).newest(table))

    @classmethod
    def of(cls, lake: str, table: str, opened: DeltaTable | None) -> Self | None:
        if opened is None:
            return None
        return cls(lake, table, opened.version(), opened)

    @property
    def url(self) -> str:
        return table_url(self.lake, self.table)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta_then().schema())

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of all files by path, which costs as much as opening the table."""
        if self.list_files is not None:
            return self.list_files()
        added = pa.table(self._delta_then().get_add_actions())
        names = map(unquote, added["path"].to_pylist())
        return dict(zip(names, map(int, added["size_bytes"].to_pylist()), strict=True))

    @property
    def files(self) -> tuple[str, ...]:
        """Addresses of all files."""
        return tuple(f"{self.url}/{name}" for name in self.sizes)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def is_plain(self) -> bool:
        """Whether the rows of the files are the rows of the table."""
        return reads_as_it_is(self.delta)

    def mark(self, app: str) -> int | None:
        """Return the newest version that an app has marked in the table."""
        return self.delta.transaction_version(app)

    def has_files(self) -> bool:
        """Whether all files are still there: older versions lose theirs to VACUUM."""
        return all(Path(file).exists() for file in self.files)

    def since(self, version: int | None) -> Self:
        """Return what was added after a version; the whole table where the log cannot say."""
        if version is None:
            return self
        added: dict[str, int] = {}
        replaced = False
        for number in range(version + 1, self.version + 1):
            try:
                text = Path(self.url, "_delta_log", f"{number:020d}.json").read_text()
            except FileNotFoundError:
                return self
            for action in map(json.loads, text.splitlines()):
                if "remove" in action:
                    if action["remove"]["dataChange"]:
                        return self  # rows were rewritten
                    replaced = True
                if "add" in action and action["add"]["dataChange"]:
                    added[unquote(action["add"]["path"])] = action["add"]["size"]
        if replaced and not added.keys() <= self.sizes.keys():
            return self  # rows of before and after were compacted into one file
        return type(self)(self.lake, self.table, self.version, self.delta, lambda: added)

    def rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows from the files."""
        return pa.Table.from_batches(self.portions(columns), self.selected(columns))

    def portions(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read rows in the table's columns and types, whatever those of the files are."""
        wanted = self.selected(columns)
        for path in self.files:
            file = pq.ParquetFile(path)
            in_file = set(file.schema_arrow.names)
            there = [name for name in wanted.names if name in in_file]
            for rows in file.iter_batches(columns=there, batch_size=_PORTION):
                yield conform_rows(rows, wanted)

    def selected(self, columns: Sequence[str] | None) -> pa.Schema:
        return self.schema if columns is None else pa.schema(map(self.schema.field, columns))

    def read(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
        """Read rows as Delta does, of any table."""
        return self.delta.to_pyarrow_table(
            columns=None if columns is None else list(columns), filters=filters
        )

    def query(self, sql: str, name: str, settings: Mapping[str, str]) -> pa.RecordBatchReader:
        """Run SQL over the table, which it knows by a name."""
        builder = QueryBuilder(dict(settings)).register(name, self.delta)
        return pa.RecordBatchReader.from_stream(builder.execute(sql))

    def count(self) -> int:
        return int(self.delta.count())

    def statistics(self) -> pa.Table:
        """One row per file: `path`, and `min.<column>` and `max.<column>` where known."""
        added = pa.table(self._delta_then().get_add_actions(flatten=True))
        paths = [f"{self.url}/{unquote(path)}" for path in added["path"].to_pylist()]
        at = added.schema.get_field_index("path")
        return added.set_column(at, "path", pa.array(paths, pa.string()))

    def _delta_then(self) -> DeltaTable:
        """Other threads may have brought the table up to a later version."""
        if self.delta.version() == self.version:
            return self.delta
        return DeltaTable(self.url, version=self.version)


def table_url(lake: str, table: str) -> str:
    """Return the address of a table, whether it exists or not."""
    return f"{lake.rstrip('/')}/{table}"
