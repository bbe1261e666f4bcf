"""What is asked of the shop's database, in any database's language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

ColumnKind = Literal[
    "int",
    "bigint",
    "decimal",
    "varchar",
    "text",
    "timestamp",
    "date",
    "boolean",
    "double",
    "json",
]
ChangeKind = Literal["INSERT", "UPDATE", "UPDATE-INSERT", "UPDATE-DELETE", "DELETE"]


@dataclass(frozen=True)
class Column:
    """A column as it is at the time of a change."""

    name: str
    kind: ColumnKind
    precision: int | None = None
    """The digits of a decimal."""
    scale: int | None = None
    length: int | None = None
    """The most characters of a varchar."""


@dataclass(frozen=True)
class Change:
    """A row after it was written, or the last of a row that went."""

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    kind: ChangeKind
    values: Mapping[str, object]
    """The whole row: int, Decimal, str, datetime (UTC), date, bool, float or None."""
    log_file: str
    log_position: int
    at: datetime
    """When the database made the change."""
    backfill: bool = False
    """Whether it was read from the table and not from the log."""

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(self.values[name] for name in self.primary_key)

    @property
    def is_deleted(self) -> bool:
        return self.kind in ("DELETE", "UPDATE-DELETE")


Row = Mapping[str, object]


@dataclass(frozen=True)
class CreateTable:
    """A table without rows; only its key must have values."""

    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True)
class AddColumn:
    """Null in the rows that are there."""

    column: Column


@dataclass(frozen=True)
class DropColumn:
    """Its name is never used again in the same table."""

    name: str


@dataclass(frozen=True)
class WidenColumn:
    """The same column with a kind that holds every value it has."""

    column: Column


@dataclass(frozen=True)
class AlterTable:
    """One change of one table's columns; the database logs no change of rows for it."""

    table: str
    change: AddColumn | DropColumn | WidenColumn


@dataclass(frozen=True)
class Insert:
    """New rows; a column that a row does not name is null."""

    table: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Update:
    """New values for the rows that have these values in the first columns of the key."""

    table: str
    key: Row
    values: Row


@dataclass(frozen=True)
class Delete:
    """Away with the rows that have these values in the first columns of the key."""

    table: str
    key: Row


Statement = CreateTable | AlterTable | Insert | Update | Delete


@dataclass(frozen=True)
class SourceClock:
    """Whole seconds, as in a database's log: many statements share one."""

    began: datetime = datetime(2026, 1, 1, 8, tzinfo=UTC)
    statements_a_second: int = 10

    def at(self, statement: int) -> datetime:
        """When the statement with that number runs."""
        return self.began + timedelta(seconds=statement // self.statements_a_second)
