"""Run the shop on a real database and write the changes of its binary log to files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
from pymysql.constants import FIELD_TYPE

from headgate.errors import SourceError, UsageError
from headgate.lab.database import Database
from headgate.lab.services import DEFAULT_FOLDER, find_database
from headgate.lab.shop.binary_log import SHOP, connect, log_end, read_changes
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.simulate import ShopPlan, SimulatedShop
from headgate.lab.shop.statement import (
    AddColumnStatement,
    AlterTable,
    Change,
    Column,
    CreateTableStatement,
    Delete,
    DropColumnStatement,
    Insert,
    Row,
    Statement,
    Update,
    WidenColumn,
)
from headgate.lab.shop.tables import columns_after
from headgate.lab.shop.workload import OPENING, statements

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor


@dataclass(frozen=True)
class Sql:
    """SQL text with a placeholder for each value."""

    text: str
    values: tuple[object, ...] = ()


def sql(statement: Statement) -> Sql:
    """Return the SQL of a statement."""
    match statement:
        case CreateTableStatement(table, columns, primary_key):
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
    """Return a name quoted as an identifier, safe for any content."""
    # The client reads a percent sign as a placeholder.
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def _change(change: AddColumnStatement | DropColumnStatement | WidenColumn) -> str:
    match change:
        case AddColumnStatement(column):
            return f"ADD COLUMN {_definition(column)}"
        case DropColumnStatement(name):
            return f"DROP COLUMN {quoted(name)}"
        case WidenColumn(column):
            return f"MODIFY COLUMN {_definition(column)}"


def _definition(column: Column) -> str:
    # Nullable; the database makes key columns NOT NULL.
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
    placeholders = f"({', '.join(['%s'] * len(names))})"
    values = ", ".join([placeholders] * len(rows))
    text = f"INSERT INTO {quoted(table)} ({_names(names)}) VALUES {values}"
    return Sql(text, _values(row.get(name) for row in rows for name in names))


def _where(key: Row) -> str:
    return " AND ".join(f"{quoted(name)} = %s" for name in key)


def _names(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _values(values: Iterable[object]) -> tuple[object, ...]:
    return tuple(_in_utc(value) if isinstance(value, datetime) else value for value in values)


def _in_utc(value: datetime) -> datetime:
    # The client drops the time zone; the session uses UTC.
    return value.astimezone(UTC).replace(tzinfo=None)


def read_tables(connection: Connection[Cursor]) -> dict[str, list[dict[str, object]]]:
    """Return all rows of all tables of the connection's database, from one snapshot."""
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
    """The shop's database; remembers its position in the log, so that each change is read once."""

    def __init__(self, database: Database, connection: Connection[Cursor], name: str) -> None:
        self._database = database
        self._connection = connection
        self._cursor = connection.cursor()
        self.name = name
        self._tables: dict[str, CreateTableStatement] = {}
        self._cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(name)}", ())
        connection.select_db(name)
        self._position = log_end(database)

    def recreate(self) -> None:
        """Drop and recreate the database; the log has no deletes for its rows."""
        self._cursor.execute(f"DROP DATABASE {quoted(self.name)}", ())
        self._cursor.execute(f"CREATE DATABASE {quoted(self.name)}", ())
        self._connection.select_db(self.name)
        self.skip_changes()

    def empty(self) -> None:
        """Delete all rows, then drop all tables, so that the log has a delete for each row."""
        for table in table_names(self._cursor):
            self._cursor.execute(f"DELETE FROM {quoted(table)}", ())
            self._cursor.execute(f"DROP TABLE {quoted(table)}", ())

    def run(self, statement: Statement) -> int:
        """Run a statement; return the number of changes it makes, estimated without the log."""
        rendered = sql(statement)
        rows = self._cursor.execute(rendered.text, rendered.values)
        match statement:
            case CreateTableStatement(table):
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
        """Return the changes logged since the last call."""
        end = log_end(self._database)
        if end == self._position:
            return []
        changes = list(read_changes(self._database, self.name, self._position, end))
        self._position = end
        return changes

    def skip_changes(self) -> None:
        """Ignore the changes logged so far: a backfill has read their rows."""
        self._position = log_end(self._database)

    def backfill(self, at: datetime) -> list[Change]:
        """Return the current rows of all tables, as a backfill reads them."""
        rows = read_tables(self._connection)
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


def run_on_database(
    plan: ShopPlan,
    folder: Path = DEFAULT_FOLDER,
    report: Callable[[str], None] = lambda _: None,
    name: str = SHOP,
) -> Iterator[SimulatedShop]:
    """Write changes in portions; yield the totals after each portion.

    A shop of an earlier run is removed first: row by row if its change files exist, so that the
    log has the deletes; by dropping the database otherwise.
    """
    database = find_database(folder)
    if database is None:
        raise UsageError(
            "bad-argument",
            f"no database is running in {folder}",
            hint="headgate up --database starts one",
        )
    with _connection_errors(database), connect(database) as connection:
        shop = ShopDatabase(database, connection, name)
        yield from _run(plan, shop, report)


def _run(
    plan: ShopPlan, shop: ShopDatabase, report: Callable[[str], None]
) -> Iterator[SimulatedShop]:
    workload = statements(plan.seed)
    written = SimulatedShop()
    began = time.perf_counter()

    def write(changes: list[Change]) -> None:
        written.add(changes, write_changes(changes, plan.landing, plan.file_options))
        written.seconds = time.perf_counter() - began

    try:
        is_first = not any(plan.landing.glob(f"{shop.name}_*"))
        if is_first:
            shop.recreate()
        else:
            report("Removing the shop of the previous run")
            shop.empty()
            # These deletes do not count as requested changes.
            closing = write_changes(shop.new_changes(), plan.landing, plan.file_options)
            written.files += len(closing)
        report("Creating the shop's tables")
        for statement in islice(workload, OPENING):
            shop.run(statement)
        if plan.backfill and is_first:
            shop.skip_changes()
            write(shop.backfill(datetime.now(UTC)))
        while plan.changes is None or written.changes < plan.changes:
            left = plan.portion
            if plan.changes is not None:
                left = min(left, plan.changes - written.changes)
            while left > 0:
                statement = next(workload)
                left -= shop.run(statement)
                written.schema_changes += isinstance(statement, AlterTable | CreateTableStatement)
            write(shop.new_changes())
            if plan.rate is not None:
                ahead = written.changes / plan.rate - (time.perf_counter() - began)
                if ahead > 0:
                    time.sleep(ahead)
            yield written
    finally:
        # An interrupted portion has changed rows too.
        write(shop.new_changes())
    yield written


@contextmanager
def _connection_errors(database: Database) -> Iterator[None]:
    try:
        yield
    except pymysql.MySQLError as error:
        raise SourceError(
            "source-missing",
            f"the database at {database.address} does not respond ({error})",
            hint=f"see its log: {database.folder / 'database.log'}",
        ) from error
