"""What the shop's tables hold at this moment, to compare with what changes add up to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pymysql.constants import FIELD_TYPE

from headgate.simulate.shop.database.sql import quoted

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor


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
