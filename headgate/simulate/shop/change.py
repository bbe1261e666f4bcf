"""One change of one row, as a database's log tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
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
