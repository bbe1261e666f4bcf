"""Simulate the shop without a database: an in-memory model runs its statements."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from headgate.lab.shop.datastream import FileFormat, FileOptions, write_changes
from headgate.lab.shop.statement import (
    AlterTable,
    Change,
    ChangeKind,
    Column,
    CreateTableStatement,
    Delete,
    Insert,
    Row,
    SourceClock,
    Statement,
    Update,
)
from headgate.lab.shop.tables import columns_after
from headgate.lab.shop.workload import OPENING, statements

_FIRST_POSITION = 4
_EVENT_OVERHEAD = 180
"""Bytes of the events around a row event: transaction, statement, table map."""


class BinaryLog:
    """Positions of a binary log that starts a new file when one is full: mysql-bin.000001, …2."""

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
        """Append a transaction with `size` bytes of rows; return the file and their position."""
        if self._position > self._roll_over:
            self._number += 1
            self._position = _FIRST_POSITION
        self._position += _EVENT_OVERHEAD + size
        return self.file, self._position


Key = tuple[Any, ...]
_BYTES_PER_COLUMN = 9


@dataclass
class TableModel:
    """The current rows and columns of a table."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    _stored: dict[object, dict[Key, Row]] = field(default_factory=dict)
    """Rows by the first key column, so that statements for a key prefix find them."""

    @property
    def rows(self) -> list[Row]:
        """All rows, ordered by key."""
        stored = {key: row for group in self._stored.values() for key, row in group.items()}
        return [self._image(stored[key]) for key in sorted(stored)]

    def insert(self, row: Row) -> Row:
        key = self._key(row)
        group = self._stored.setdefault(key[0], {})
        if key in group:
            raise ValueError(f"duplicate key {key} in {self.name}")
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
    """Applies statements like a database and returns the changes it would log."""

    def __init__(self, name: str = "shop", log: BinaryLog | None = None) -> None:
        self.name = name
        self.tables: dict[str, TableModel] = {}
        self._log = log or BinaryLog()

    def apply(self, statement: Statement, at: datetime) -> list[Change]:
        """Apply a statement; return its row changes. Unchanged rows are not logged."""
        if isinstance(statement, CreateTableStatement):
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
        """Return the current rows of a table, as a backfill reads them."""
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
        size = _BYTES_PER_COLUMN * len(table.columns) * len(images)
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


_PORTION = 10_000


@dataclass(frozen=True)
class ShopPlan:
    """What to simulate; the same plan gives the same files."""

    landing: Path
    changes: int | None = 10_000
    """Total number of changes, rounded up to whole statements; None for unlimited."""
    seed: int = 0
    rate: float | None = None
    """Changes per second; None for unlimited."""
    format: FileFormat = "avro"
    backfill: bool = True
    """Whether the first rows are read from the tables instead of the log."""
    changes_per_file: int = 1_000
    writers: int = 1
    shuffled: bool = False
    duplicates: float = 0.0

    @property
    def file_options(self) -> FileOptions:
        return FileOptions(
            self.format,
            self.changes_per_file,
            self.writers,
            self.shuffled,
            self.duplicates,
            self.seed,
        )

    @property
    def portion(self) -> int:
        """Number of changes written at a time: one second's worth if there is a rate."""
        return _PORTION if self.rate is None else max(1, min(_PORTION, int(self.rate)))


@dataclass
class SimulatedShop:
    """What has been written so far."""

    changes: int = 0
    backfilled: int = 0
    """Rows read from tables; not included in `changes`."""
    files: int = 0
    schema_changes: int = 0
    seconds: float = 0.0
    kinds: Counter[ChangeKind] = field(default_factory=Counter)
    tables: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return self.changes / self.seconds if self.seconds else 0.0

    def add(self, changes: Sequence[Change], files: Sequence[Path]) -> None:
        logged = [change for change in changes if not change.backfill]
        self.changes += len(logged)
        self.backfilled += len(changes) - len(logged)
        self.files += len(files)
        self.kinds.update(change.kind for change in logged)
        self.tables.update(change.table for change in changes)


def simulate_shop(
    plan: ShopPlan,
    model: DatabaseModel | None = None,
    report: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SimulatedShop]:
    """Write changes in portions; yield the totals after each portion.

    `model`, if given, holds the rows of the database after each step.
    """
    model = model or DatabaseModel()
    clock = SourceClock()
    workload = enumerate(statements(plan.seed, clock))
    written = SimulatedShop()
    began = time.perf_counter()
    report("Creating the shop's tables")
    waiting: list[Change] = []
    for number, statement in islice(workload, OPENING):
        waiting += model.apply(statement, clock.at(number))
    if plan.backfill:
        opening = clock.at(OPENING)
        waiting = [row for table in model.tables for row in model.backfill(table, opening)]
        written.add(waiting, write_changes(waiting, plan.landing, plan.file_options))
        waiting = []
    while plan.changes is None or written.changes < plan.changes:
        left = plan.portion
        if plan.changes is not None:
            left = min(left, plan.changes - written.changes)
        while len(waiting) < left:
            number, statement = next(workload)
            waiting += model.apply(statement, clock.at(number))
            written.schema_changes += isinstance(statement, AlterTable | CreateTableStatement)
        written.add(waiting, write_changes(waiting, plan.landing, plan.file_options))
        waiting = []
        if plan.rate is not None:
            ahead = written.changes / plan.rate - (time.perf_counter() - began)
            if ahead > 0:
                sleep(ahead)
        written.seconds = time.perf_counter() - began
        yield written
    written.seconds = time.perf_counter() - began
    yield written
