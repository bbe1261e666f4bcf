"""One database of the server: statements go in, and the changes that its log tells come out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pymysql.constants import FIELD_TYPE

from headgate.lab.shop.binary_log import log_end, read_changes
from headgate.lab.shop.statement import (
    AddColumn,
    AlterTable,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    Insert,
    Row,
    Statement,
    Update,
    WidenColumn,
)
from headgate.lab.shop.tables import columns_after

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from headgate.lab import Database


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


def tables_now(connection: Connection[Cursor]) -> dict[str, list[dict[str, object]]]:
    """All rows of all tables of the connection's database, as one moment has them."""
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        try:
            return {name: _rows(cursor, name) for name in table_names(cursor)}
        finally:
            connection.rollback()


def table_names(cursor: Cursor) -> list[str]:
    cursor.execute("SHOW TABLES")
    return [str(name) for (name,) in cursor.fetchall()]


def _rows(cursor: Cursor, table: str) -> list[dict[str, object]]:
    cursor.execute(f"SELECT * FROM {quoted(table)}", ())
    columns = [(str(column[0]), int(column[1])) for column in cursor.description]
    return [_row(columns, row) for row in cursor.fetchall()]


def _row(columns: Sequence[tuple[str, int]], row: Sequence[object]) -> dict[str, object]:
    return {name: _value(code, value) for (name, code), value in zip(columns, row, strict=True)}


def _value(code: int, value: object) -> object:
    if code == FIELD_TYPE.TINY and value is not None:
        return bool(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value


class ShopDatabase:
    """Knows how far it has read the log: no change is told twice, and none is left out."""

    def __init__(self, database: Database, connection: Connection[Cursor], name: str) -> None:
        self._database = database
        self._connection = connection
        self._cursor = connection.cursor()
        self.name = name
        self._tables: dict[str, CreateTable] = {}
        self._cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(name)}", ())
        connection.select_db(name)
        self._read_until = log_end(database)

    def begin_anew(self) -> None:
        """Away with all tables, as if they had never been: the log tells of no row that goes."""
        self._cursor.execute(f"DROP DATABASE {quoted(self.name)}", ())
        self._cursor.execute(f"CREATE DATABASE {quoted(self.name)}", ())
        self._connection.select_db(self.name)
        self.skip_changes()

    def empty(self) -> None:
        """Away with all tables, but first row by row, for those who follow the log."""
        for table in table_names(self._cursor):
            self._cursor.execute(f"DELETE FROM {quoted(table)}", ())
            self._cursor.execute(f"DROP TABLE {quoted(table)}", ())

    def run(self, statement: Statement) -> int:
        """How many changes it makes, as far as one can tell without the log."""
        rendered = sql(statement)
        rows = self._cursor.execute(rendered.text, rendered.values)
        match statement:
            case CreateTable(table):
                self._tables[table] = statement
                return 0
            case AlterTable(table, change):
                known = self._tables[table]
                self._tables[table] = replace(known, columns=columns_after(known.columns, change))
                return 0
            case Update(table, _, values):
                key = self._tables[table].primary_key
                return 2 * rows if any(name in key for name in values) else rows
            case _:
                return rows

    def new_changes(self) -> list[Change]:
        """Those since the last time."""
        end = log_end(self._database)
        if end == self._read_until:
            return []
        changes = list(read_changes(self._database, self.name, self._read_until, end))
        self._read_until = end
        return changes

    def skip_changes(self) -> None:
        """Whoever has read the tables needs no change from before."""
        self._read_until = log_end(self._database)

    def backfill(self, at: datetime) -> list[Change]:
        """The rows that the tables have now, as one who reads the tables and not the log."""
        rows = tables_now(self._connection)
        return [
            Change(
                self.name,
                table.table,
                table.columns,
                table.primary_key,
                "INSERT",
                row,
                "",
                0,
                at,
                backfill=True,
            )
            for table in self._tables.values()
            for row in rows[table.table]
        ]
