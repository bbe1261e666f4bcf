"""The shop's database as plain dictionaries: what its rows are, and what its log says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headgate.lab.shop.statement import (
    AlterTable,
    Change,
    ChangeKind,
    Column,
    CreateTable,
    Delete,
    Insert,
    Row,
    Statement,
    Update,
)
from headgate.lab.shop.tables import columns_after

_FIRST_POSITION = 4
_AROUND_ROWS = 180
"""Bytes of the events around those with rows: transaction, statement, table."""


class BinaryLog:
    """Grows by events, and goes on in a new file when one is full: mysql-bin.000001, …2."""

    def __init__(
        self, roll_over: int = 1_000_000, base_name: str = "mysql-bin", first_file: int = 1
    ) -> None:
        self._roll_over = roll_over
        self._base_name = base_name
        self._number = first_file
        self._position = _FIRST_POSITION

    @property
    def file(self) -> str:
        return f"{self._base_name}.{self._number:06d}"

    def append(self, size: int) -> tuple[str, int]:
        """One transaction with so many bytes of rows: its file, and the position of the rows."""
        if self._position > self._roll_over:
            self._number += 1
            self._position = _FIRST_POSITION
        self._position += _AROUND_ROWS + size
        return self.file, self._position


Key = tuple[Any, ...]
_BYTES_A_COLUMN = 9


@dataclass
class TableModel:
    """A table as it is now."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    _stored: dict[object, dict[Key, Row]] = field(default_factory=dict)
    """By the first column of the key, so that a statement for several rows finds them."""

    @property
    def rows(self) -> list[Row]:
        """In the order of the key."""
        stored = {key: row for group in self._stored.values() for key, row in group.items()}
        return [self._image(stored[key]) for key in sorted(stored)]

    def insert(self, row: Row) -> Row:
        key = self._key(row)
        group = self._stored.setdefault(key[0], {})
        if key in group:
            raise ValueError(f"{self.name} has a row {key} already")
        group[key] = row
        return self._image(row)

    def remove(self, row: Row) -> None:
        key = self._key(row)
        group = self._stored[key[0]]
        del group[key]
        if not group:
            del self._stored[key[0]]

    def find(self, key: Row) -> list[Row]:
        group = self._stored.get(key[self.primary_key[0]], {})
        return [
            self._image(row)
            for row in group.values()
            if all(row[name] == value for name, value in key.items())
        ]

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.primary_key)

    def _image(self, row: Row) -> Row:
        return {column.name: row.get(column.name) for column in self.columns}


class DatabaseModel:
    """Applies statements as a database does; what it logs for them is returned."""

    def __init__(self, name: str = "shop", log: BinaryLog | None = None) -> None:
        self.name = name
        self.tables: dict[str, TableModel] = {}
        self._log = log or BinaryLog()

    def apply(self, statement: Statement, at: datetime) -> list[Change]:
        """The changes of all its rows; rows that stay as they are are not logged."""
        if isinstance(statement, CreateTable):
            self.tables[statement.table] = TableModel(
                statement.table, statement.columns, statement.primary_key
            )
            self._log.append(0)
            return []
        table = self.tables[statement.table]
        images: list[tuple[ChangeKind, Row]]
        match statement:
            case AlterTable(_, change):
                table.columns = columns_after(table.columns, change)
                self._log.append(0)
                return []
            case Insert(_, rows):
                images = [("INSERT", table.insert(row)) for row in rows]
            case Update(_, key, values):
                images = list(_update(table, key, values))
            case Delete(_, key):
                images = list(_delete(table, key))
        return self._logged(table, images, at)

    def backfill(self, table: str, at: datetime) -> list[Change]:
        """The rows that a table has now, as one who reads the table and not the log."""
        model = self.tables[table]
        return [
            Change(
                self.name,
                table,
                model.columns,
                model.primary_key,
                "INSERT",
                row,
                "",
                0,
                at,
                backfill=True,
            )
            for row in model.rows
        ]

    def _logged(
        self, table: TableModel, images: Sequence[tuple[ChangeKind, Row]], at: datetime
    ) -> list[Change]:
        if not images:
            return []
        size = _BYTES_A_COLUMN * len(table.columns) * len(images)
        file, position = self._log.append(size)
        return [
            Change(
                self.name,
                table.name,
                table.columns,
                table.primary_key,
                kind,
                row,
                file,
                position,
                at,
            )
            for kind, row in images
        ]


def _update(table: TableModel, key: Row, values: Row) -> Iterator[tuple[ChangeKind, Row]]:
    for old in table.find(key):
        new = {**old, **values}
        if new == old:
            continue
        table.remove(old)
        table.insert(new)
        if any(old[name] != new[name] for name in table.primary_key):
            yield "UPDATE-DELETE", old
            yield "UPDATE-INSERT", new
        else:
            yield "UPDATE", new


def _delete(table: TableModel, key: Row) -> Iterator[tuple[ChangeKind, Row]]:
    for row in table.find(key):
        table.remove(row)
        yield "DELETE", row
