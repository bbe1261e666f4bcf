"""Runs Spark's SQL in DuckDB, and keeps a gold table up to date with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import duckdb
import sqlglot

from headgate.sql.incremental import EACH_TABLE, Incremental


class Row(NamedTuple):
    """A row of some silver table; `_table` says which."""

    table: str
    user: str | None
    day: int | None
    x: int | None
    y: float | None
    ok: bool | None
    t: int | None
    v: str | None


COLUMNS = '_table TEXT, "user" TEXT, day INT, x INT, y DOUBLE, ok BOOLEAN, t INT, v TEXT'
COLUMNS += ", nested STRUCT(field INT)"


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for all: to open one takes longer than to run a query."""
    return duckdb.connect()


@cache
def for_duckdb(sql: str) -> str:
    [translated] = sqlglot.transpile(sql, read="spark", write="duckdb")
    return translated


class Lake:
    """Rows in batches, and a gold table over them."""

    def __init__(self) -> None:
        self.connection = _connection()
        for table in ("all_rows", "new_rows"):
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} ({COLUMNS})")
        self._has_gold = False

    def rows_of(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query gives, in an order that does not depend on it."""
        return sorted(self.connection.execute(for_duckdb(sql)).fetchall(), key=repr)

    def add(self, rows: Iterable[Row]) -> None:
        self.connection.execute("DELETE FROM new_rows")
        values = ", ".join(f"({', '.join(map(_literal, (*row, row)))})" for row in rows)
        if values:
            self.connection.execute(f"INSERT INTO new_rows VALUES {values}")
        self.connection.execute("INSERT INTO all_rows SELECT * FROM new_rows")

    def merge_batch(self, how: Incremental, extra_keys: Sequence[str] = EACH_TABLE) -> None:
        """What a run does with the rows that were added last."""
        partial = for_duckdb(how.partial_sql("new_rows", extra_keys))
        self.connection.execute(f"CREATE OR REPLACE TABLE new_states AS {partial}")
        if not self._has_gold:
            self.connection.execute(
                "CREATE OR REPLACE TABLE gold AS SELECT * FROM new_states WHERE false"
            )
            self._has_gold = True
        self.connection.execute("INSERT INTO new_states BY NAME SELECT * FROM gold")
        merged = for_duckdb(how.merge_sql("new_states", extra_keys))
        self.connection.execute(f"CREATE OR REPLACE TABLE merged AS {merged}")
        self.connection.execute("DELETE FROM gold")
        self.connection.execute("INSERT INTO gold SELECT * FROM merged")


def _literal(value: object) -> str:
    match value:
        case Row():
            return f"{{'field': {_literal(value.x)}}}"
        case None:
            return "NULL"
        case str():
            return f"'{value}'"
    return str(value)
