"""A table as the log describes it just before a change of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pymysql.constants import FIELD_TYPE
from pymysqlreplication.row_event import TableMapEvent  # type: ignore[import-untyped]

from headgate.simulate.shop.change import Column

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
