"""Read row changes from the database's binary log."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, total_ordering
from typing import TYPE_CHECKING, Any, Self

import pymysql
from pymysql.constants import FIELD_TYPE
from pymysqlreplication import BinLogStreamReader  # type: ignore[import-untyped]
from pymysqlreplication.row_event import (  # type: ignore[import-untyped]
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from headgate.lab.shop.statement import Change, ChangeKind, Column

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from headgate.lab.database import Database

SHOP = "shop"


def connect(database: Database, name: str | None = None) -> Connection[Cursor]:
    """Connect as the shop's user, with UTC as the session's time zone."""
    return pymysql.connect(
        **_login(database),
        database=name,
        charset="utf8mb4",
        autocommit=True,
        init_command="SET time_zone = '+00:00'",
    )


def connect_for_log(database: Database, **settings: Any) -> Connection[Any]:
    """Connect for BinLogStreamReader, which still uses an old name for `database`."""
    name = settings.pop("db", None)
    return pymysql.connect(**_login(database), database=name, **settings)


def _login(database: Database) -> dict[str, Any]:
    # The server is local; loading all CA certificates would only cost time.
    return {"read_default_file": str(database.login_file), "ssl_disabled": True}


@total_ordering
@dataclass(frozen=True)
class LogPosition:
    """A position in the binary log."""

    file: str
    offset: int

    def __lt__(self, other: LogPosition) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, int]:
        # Numeric, because the suffix grows from six digits to seven.
        return int(self.file.rpartition(".")[2]), self.offset


def log_end(database: Database) -> LogPosition:
    """Return the end of the log, read on a new connection: others may have a query open."""
    with connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        row = cursor.fetchone()
    assert row is not None
    return LogPosition(str(row[0]), int(row[1]))


_TIMESTAMP2 = 17
_BYTES_PER_CHARACTER = 4
_LONGTEXT_LENGTH_BYTES = 4


@dataclass(frozen=True)
class LoggedTable:
    """A table's columns at the time of a log event; they may have changed since."""

    database: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]

    @classmethod
    def from_event(cls, event: TableMapEvent) -> Self:
        columns = tuple(_column(column) for column in event.columns)
        metadata = event.optional_metadata
        in_key = metadata.simple_primary_key_list or [*metadata.primary_keys_with_prefix]
        key = tuple(columns[index].name for index in in_key)
        return cls(event.schema, event.table, columns, key)

    def key(self, values: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(values[name] for name in self.primary_key)

    def values(self, logged: Mapping[str, object]) -> dict[str, object]:
        """Return a row's values as the types of its columns."""
        return {column.name: _value(column, logged[column.name]) for column in self.columns}


def _column(logged: Any) -> Column:
    match logged.type:
        case FIELD_TYPE.TINY:
            return Column(logged.name, "boolean")
        case FIELD_TYPE.LONG:
            return Column(logged.name, "int")
        case FIELD_TYPE.LONGLONG:
            return Column(logged.name, "bigint")
        case FIELD_TYPE.DOUBLE:
            return Column(logged.name, "double")
        case FIELD_TYPE.DATE:
            return Column(logged.name, "date")
        case FIELD_TYPE.NEWDECIMAL:
            return Column(logged.name, "decimal", logged.precision, logged.decimals)
        case FIELD_TYPE.VARCHAR:
            length = logged.max_length // _BYTES_PER_CHARACTER
            return Column(logged.name, "varchar", length=length)
        case FIELD_TYPE.BLOB:
            return Column(logged.name, "json" if _is_json(logged) else "text")
        case code if code == _TIMESTAMP2:
            return Column(logged.name, "timestamp")
    raise ValueError(f"column {logged.name} has an unsupported type: {logged.type}")


def _is_json(logged: Any) -> bool:
    # MariaDB stores JSON as LONGTEXT with a binary collation.
    is_long: bool = logged.length_size == _LONGTEXT_LENGTH_BYTES
    return is_long and logged.collation_name == "utf8mb4_bin"


def _value(column: Column, value: object) -> object:
    if value is None:
        return None
    if column.kind == "boolean":
        return bool(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value


def read_changes(
    database: Database, name: str, start: LogPosition, end: LogPosition
) -> Iterator[Change]:
    """Yield the row changes of one database between two log positions."""
    reader = BinLogStreamReader(
        connection_settings={},
        pymysql_wrapper=partial(connect_for_log, database),
        # The server disconnects a reader when another one uses the same id.
        server_id=secrets.randbelow(2**31) + 2,
        resume_stream=True,
        log_file=start.file,
        log_pos=start.offset,
        only_events=[TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[name],
        enable_logging=False,
    )
    tables: dict[int, LoggedTable] = {}
    with closing(reader):
        for event in reader:
            position = LogPosition(reader.log_file, event.packet.log_pos)
            if position > end:
                return
            if isinstance(event, TableMapEvent):
                tables[event.table_id] = LoggedTable.from_event(event)
            else:
                at = datetime.fromtimestamp(event.timestamp, UTC)
                yield from _RowEvent(tables[event.table_id], position, at).changes(event)


@dataclass(frozen=True)
class _RowEvent:
    """What the rows of a log event share."""

    table: LoggedTable
    position: LogPosition
    at: datetime

    def changes(self, event: Any) -> Iterator[Change]:
        for row in event.rows:
            if isinstance(event, WriteRowsEvent):
                yield self._change("INSERT", row["values"])
            elif isinstance(event, DeleteRowsEvent):
                yield self._change("DELETE", row["values"])
            else:
                before, after = row["before_values"], row["after_values"]
                if self.table.key(before) == self.table.key(after):
                    yield self._change("UPDATE", after)
                else:
                    yield self._change("UPDATE-DELETE", before)
                    yield self._change("UPDATE-INSERT", after)

    def _change(self, kind: ChangeKind, logged: dict[str, object]) -> Change:
        return Change(
            self.table.database,
            self.table.name,
            self.table.columns,
            self.table.primary_key,
            kind,
            self.table.values(logged),
            self.position.file,
            self.position.offset,
            self.at,
        )
