"""The change log of one source table: every change once, in the order in which they landed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headgate.change.fold import KnownRows, by_row_id_alone
from headgate.change.table_key import ROW_ID, TableKey
from headgate.land.open_table import open_table
from headgate.schema.conform import conform_rows

_PORTION = 1 << 16


@dataclass(frozen=True)
class ChangeLog:
    """A log at one version."""

    path: Path
    version: int
    schema: pa.Schema
    files: tuple[str, ...]
    bytes: int

    @classmethod
    def open(cls, lake: str, table: str, version: int | None = None) -> ChangeLog | None:
        """As it is, or as it was at a version; None if there is no such table."""
        path = Path(lake, table)
        opened = open_table(path, version)
        return None if opened is None else cls.of(opened, path)

    @classmethod
    def of(cls, opened: DeltaTable, path: Path) -> ChangeLog:
        added = pa.table(opened.get_add_actions())
        return cls(
            path,
            opened.version(),
            pa.schema(opened.schema()),
            tuple(unquote(one) for one in added["path"].to_pylist()),
            sum(map(int, added["size_bytes"].to_pylist())),
        )

    def since(self, version: int | None) -> ChangeLog:
        """Only what was added after a version; all of it where the log cannot tell any more."""
        if version is None:
            return self
        added: list[str] = []
        size = 0
        for number in range(version + 1, self.version + 1):
            try:
                text = (self.path / "_delta_log" / f"{number:020d}.json").read_text()
            except FileNotFoundError:
                return self
            for action in map(json.loads, text.splitlines()):
                if "remove" in action and action["remove"]["dataChange"]:
                    return self  # all of it was written anew
                if "add" in action and action["add"]["dataChange"]:
                    added.append(unquote(action["add"]["path"]))
                    size += action["add"]["size"]
        still = set(self.files)
        files = tuple(one for one in added if one in still)
        return ChangeLog(self.path, self.version, self.schema, files, size)

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
