"""One database of the server: statements go in, and the changes that its log tells come out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from headgate.simulate.shop.change import Change
from headgate.simulate.shop.database.log_place import log_end
from headgate.simulate.shop.database.read_changes import read_changes
from headgate.simulate.shop.database.sql import quoted, sql
from headgate.simulate.shop.database.tables_now import table_names, tables_now
from headgate.simulate.shop.shop_tables import columns_after
from headgate.simulate.shop.statement import AlterTable, CreateTable, Statement, Update

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from headgate.local import Database


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
