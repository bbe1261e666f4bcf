"""What is asked of the shop's database, in any database's language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.simulate.shop.change import Column

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
