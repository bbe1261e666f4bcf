"""The change log of one source table: every change once, in the order in which they landed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headgate.cdc.fold import KnownRows, by_row_id_alone
from headgate.cdc.key import ROW_ID, TableKey
from headgate.lake.tables import open_table, tables_kept_open
from headgate.schema.conform import conform_rows

_PORTION = 1 << 16


@dataclass(frozen=True)
class ChangeLog:
    """A log at one version."""

    path: Path
    version: int
    schema: pa.Schema
    list_files: Callable[[], Mapping[str, int]]
    """Gives the sizes of its files; to ask costs as much as to open it."""

    @classmethod
    def open(cls, lake: str, table: str, version: int | None = None) -> ChangeLog | None:
        """As it is, or as it was at a version; None if there is no such table."""
        path = Path(lake, table)
        opened = open_table(path, version)
        return None if opened is None else cls.of(opened, path)

    @classmethod
    def newest(cls, lake: str, table: str) -> ChangeLog | None:
        """As it is, for tasks that look at it again and again."""
        opened = tables_kept_open(lake).newest(table)
        return None if opened is None else cls.of(opened, Path(lake, table))

    @classmethod
    def of(cls, opened: DeltaTable, path: Path) -> ChangeLog:
        version = opened.version()
        return cls(path, version, pa.schema(opened.schema()), lambda: _sizes(opened, path, version))

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return self.list_files()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    def since(self, version: int | None) -> ChangeLog:
        """Only what was added after a version; all of it where the log cannot tell any more."""
        if version is None:
            return self
        added: dict[str, int] = {}
        replaced = False
        for number in range(version + 1, self.version + 1):
            try:
                text = (self.path / "_delta_log" / f"{number:020d}.json").read_text()
            except FileNotFoundError:
                return self
            for action in map(json.loads, text.splitlines()):
                if "remove" in action:
                    if action["remove"]["dataChange"]:
                        return self  # all of it was written anew
                    replaced = True
                if "add" in action and action["add"]["dataChange"]:
                    added[unquote(action["add"]["path"])] = action["add"]["size"]
        if replaced and not added.keys() <= self.sizes.keys():
            return self  # rows of before and after were put into one file
        return ChangeLog(self.path, self.version, self.schema, lambda: added)

    def changes(self, columns: Sequence[str] | None = None) -> pa.Table:
        return pa.Table.from_batches(self.portions(columns), self._selected(columns))

    def rows_by_id(self, key: TableKey) -> KnownRows:
        """A way to ask for what is known of rows by their row ids."""
        columns = [*key.columns, ROW_ID, "_order"]

        def known_rows(row_ids: Collection[str]) -> pa.Table:
            wanted = pa.array(sorted(row_ids), pa.string())
            found = [
                portion.filter(pc.is_in(portion[ROW_ID], value_set=wanted))
                for portion in self.portions(columns)
            ]
            return pa.Table.from_batches(found, self._selected(columns))

        return known_rows

    def by_row_id_alone(self, key: TableKey) -> list[pa.Table]:
        """Deletions that name their row by its row id and nothing else, which are few."""
        names = [*key.columns, ROW_ID, "_order", "_is_deleted", "_source_timestamp"]
        columns = [name for name in dict.fromkeys(names) if name in self.schema.names]
        found = [self._selected(columns).empty_table()]
        if ROW_ID in columns and not key.by_row_id:
            for portion in self.portions(columns):
                rows = pa.Table.from_batches([portion])
                found.append(rows.filter(pa.array(by_row_id_alone(rows, key))))
        return found

    def portions(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """In the log's own columns and types, whatever those of the files are."""
        wanted = self._selected(columns)
        for name in self.files:
            file = pq.ParquetFile(self.path / name)
            in_file = set(file.schema_arrow.names)
            there = [name for name in wanted.names if name in in_file]
            for rows in file.iter_batches(columns=there, batch_size=_PORTION):
                yield conform_rows(rows, wanted)

    def _selected(self, columns: Sequence[str] | None) -> pa.Schema:
        return self.schema if columns is None else pa.schema(map(self.schema.field, columns))


def _sizes(opened: DeltaTable, path: Path, version: int) -> Mapping[str, int]:
    there = opened if opened.version() == version else DeltaTable(path, version)
    added = pa.table(there.get_add_actions())
    names = map(unquote, added["path"].to_pylist())
    return dict(zip(names, map(int, added["size_bytes"].to_pylist()), strict=True))
