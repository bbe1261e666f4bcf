"""The database's log as changes, in its order."""

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

    from headgate.lab import Database

SHOP = "shop"


def connect(database: Database, name: str | None = None) -> Connection[Cursor]:
    """As the shop's user, in one of its databases; times are in UTC whatever the server's are."""
    return pymysql.connect(
        **_login(database),
        database=name,
        charset="utf8mb4",
        autocommit=True,
        init_command="SET time_zone = '+00:00'",
    )


def connect_for_log(database: Database, **settings: Any) -> Connection[Any]:
    """As the reader of the log wants it, by the names that its settings have now."""
    name = settings.pop("db", None)
    return pymysql.connect(**_login(database), database=name, **settings)


def _login(database: Database) -> dict[str, Any]:
    # Nothing leaves this machine: the client need not read all the certificates it has.
    return {"read_default_file": str(database.login_file), "ssl_disabled": True}


@total_ordering
@dataclass(frozen=True)
class LogPlace:
    """After everything that the log has before this position of this file."""

    file: str
    position: int

    def __lt__(self, other: LogPlace) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, int]:
        # The number behind the dot has six digits until it needs a seventh.
        return int(self.file.rpartition(".")[2]), self.position


def log_end(database: Database) -> LogPlace:
    """Where the log ends now; asked on a connection of its own, others may be in the middle."""
    with connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        row = cursor.fetchone()
    assert row is not None
    return LogPlace(str(row[0]), int(row[1]))


_TIMESTAMP2 = 17
_BYTES_OF_A_CHARACTER = 4
_BYTES_OF_A_LONGTEXTS_LENGTH = 4


@dataclass(frozen=True)
class LoggedTable:
    """Not the table as it is now: its columns may be others since."""

    database: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]

    @classmethod
    def described(cls, event: TableMapEvent) -> Self:
        columns = tuple(_column(column) for column in event.columns)
        facts = event.optional_metadata
        in_key = facts.simple_primary_key_list or [*facts.primary_keys_with_prefix]
        key = tuple(columns[index].name for index in in_key)
        return cls(event.schema, event.table, columns, key)

    def key(self, values: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(values[name] for name in self.primary_key)

    def values(self, logged: Mapping[str, object]) -> dict[str, object]:
        """A row's values as the kinds of its columns have them."""
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
            length = logged.max_length // _BYTES_OF_A_CHARACTER
            return Column(logged.name, "varchar", length=length)
        case FIELD_TYPE.BLOB:
            return Column(logged.name, "json" if _is_json(logged) else "text")
        case code if code == _TIMESTAMP2:
            return Column(logged.name, "timestamp")
    raise ValueError(f"column {logged.name} has a type that the shop does not use: {logged.type}")


def _is_json(logged: Any) -> bool:
    # MariaDB keeps JSON as long text, compared byte by byte.
    is_long: bool = logged.length_size == _BYTES_OF_A_LONGTEXTS_LENGTH
    return is_long and logged.collation_name == "utf8mb4_bin"


def _value(column: Column, value: object) -> object:
    if value is None:
        return None
    if column.kind == "boolean":
        return bool(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value


def read_changes(database: Database, name: str, start: LogPlace, end: LogPlace) -> Iterator[Change]:
    """The changes of one database's rows that the log has between two places."""
    reader = BinLogStreamReader(
        connection_settings={},
        pymysql_wrapper=partial(connect_for_log, database),
        # The server ends a reader when another one comes with the same number.
        server_id=secrets.randbelow(2**31) + 2,
        resume_stream=True,
        log_file=start.file,
        log_pos=start.position,
        only_events=[TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[name],
        enable_logging=False,
    )
    tables: dict[int, LoggedTable] = {}
    with closing(reader):
        for event in reader:
            place = LogPlace(reader.log_file, event.packet.log_pos)
            if place > end:
                return
            if isinstance(event, TableMapEvent):
                tables[event.table_id] = LoggedTable.described(event)
            else:
                at = datetime.fromtimestamp(event.timestamp, UTC)
                yield from _RowEvent(tables[event.table_id], place, at).changes(event)


@dataclass(frozen=True)
class _RowEvent:
    """What all rows of one event have in common."""

    table: LoggedTable
    place: LogPlace
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
            self.place.file,
            self.place.position,
            self.at,
        )
