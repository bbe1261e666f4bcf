"""SQL statements and row changes as values, independent of the database."""

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
    """A column at the time of a change."""

    name: str
    kind: ColumnKind
    precision: int | None = None
    """Digits of a decimal."""
    scale: int | None = None
    length: int | None = None
    """Maximum number of characters of a varchar."""


@dataclass(frozen=True)
class Change:
    """A row after an insert or update, or before a delete."""

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
    """Whether the row was read from the table instead of the log."""

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(self.values[name] for name in self.primary_key)

    @property
    def is_deleted(self) -> bool:
        return self.kind in ("DELETE", "UPDATE-DELETE")


Row = Mapping[str, object]


@dataclass(frozen=True)
class CreateTableStatement:
    """Create an empty table; only key columns are NOT NULL."""

    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True)
class AddColumnStatement:
    """Add a column that is null in existing rows."""

    column: Column


@dataclass(frozen=True)
class DropColumnStatement:
    """Drop a column; its name is never reused in the same table."""

    name: str


@dataclass(frozen=True)
class WidenColumn:
    """Change a column to a type that holds all of its values."""

    column: Column


@dataclass(frozen=True)
class AlterTable:
    """Change one column of a table; the database logs no row change for it."""

    table: str
    change: AddColumnStatement | DropColumnStatement | WidenColumn


@dataclass(frozen=True)
class Insert:
    """Insert rows; columns missing from a row are null."""

    table: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Update:
    """Update the rows that match a prefix of the primary key."""

    table: str
    key: Row
    values: Row


@dataclass(frozen=True)
class Delete:
    """Delete the rows that match a prefix of the primary key."""

    table: str
    key: Row


Statement = CreateTableStatement | AlterTable | Insert | Update | Delete


@dataclass(frozen=True)
class SourceClock:
    """Times of statements, in whole seconds as in a binary log: several statements share one."""

    start: datetime = datetime(2026, 1, 1, 8, tzinfo=UTC)
    statements_per_second: int = 10

    def at(self, statement: int) -> datetime:
        """Return the time at which the statement with this number runs."""
        return self.start + timedelta(seconds=statement // self.statements_per_second)
