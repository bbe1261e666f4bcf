"""Statements in MariaDB's language: values apart, names quoted in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from headgate.simulate.shop.change import Column
from headgate.simulate.shop.statement import (
    AddColumn,
    AlterTable,
    CreateTable,
    Delete,
    DropColumn,
    Insert,
    Row,
    Statement,
    Update,
    WidenColumn,
)


@dataclass(frozen=True)
class Sql:
    """Text with a mark for each value."""

    text: str
    values: tuple[object, ...] = ()


def sql(statement: Statement) -> Sql:
    match statement:
        case CreateTable(table, columns, primary_key):
            parts = [_definition(column) for column in columns]
            parts.append(f"PRIMARY KEY ({_names(primary_key)})")
            return Sql(f"CREATE TABLE {quoted(table)} ({', '.join(parts)})")
        case AlterTable(table, change):
            return Sql(f"ALTER TABLE {quoted(table)} {_change(change)}")
        case Insert(table, rows):
            return _insert(table, rows)
        case Update(table, key, values):
            chosen = ", ".join(f"{quoted(name)} = %s" for name in values)
            text = f"UPDATE {quoted(table)} SET {chosen} WHERE {_where(key)}"
            return Sql(text, _values([*values.values(), *key.values()]))
        case Delete(table, key):
            text = f"DELETE FROM {quoted(table)} WHERE {_where(key)}"
            return Sql(text, _values(key.values()))


def quoted(name: str) -> str:
    """A name that can be nothing else, whatever stands in it."""
    # The client reads a percent sign as the mark for a value.
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def _change(change: AddColumn | DropColumn | WidenColumn) -> str:
    match change:
        case AddColumn(column):
            return f"ADD COLUMN {_definition(column)}"
        case DropColumn(name):
            return f"DROP COLUMN {quoted(name)}"
        case WidenColumn(column):
            return f"MODIFY COLUMN {_definition(column)}"


def _definition(column: Column) -> str:
    # Nullable, unless it is in the key: then the database itself sees to it.
    return f"{quoted(column.name)} {_type(column)}"


def _type(column: Column) -> str:
    match column.kind:
        case "decimal":
            return f"decimal({column.precision}, {column.scale})"
        case "varchar":
            return f"varchar({column.length})"
        case "timestamp":
            return "timestamp(6) NULL"
        case kind:
            return kind


def _insert(table: str, rows: tuple[Row, ...]) -> Sql:
    names = list(dict.fromkeys(name for row in rows for name in row))
    marks = f"({', '.join(['%s'] * len(names))})"
    text = f"INSERT INTO {quoted(table)} ({_names(names)}) VALUES {', '.join([marks] * len(rows))}"
    return Sql(text, _values(row.get(name) for row in rows for name in names))


def _where(key: Row) -> str:
    return " AND ".join(f"{quoted(name)} = %s" for name in key)


def _names(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _values(values: Iterable[object]) -> tuple[object, ...]:
    return tuple(_in_utc(value) if isinstance(value, datetime) else value for value in values)


def _in_utc(value: datetime) -> datetime:
    # The client leaves the time zone out; the session's is UTC.
    return value.astimezone(UTC).replace(tzinfo=None)
