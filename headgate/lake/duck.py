"""SQL over Arrow tables, evaluated in this process by DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import duckdb
import pyarrow as pa

from headgate.errors import LandingError, shown
from headgate.sql.macros import WINDOW_START_MACRO

_PREPARATION = (
    "SET TimeZone = 'UTC'",
    "SET threads = 2",
    "SET python_enable_replacements = false",
    # Queries come from people who may not read the files of this machine.
    "SET enable_external_access = false",
)
_ROWS_AT_ONCE = 1 << 14
_LOCK = "SET lock_configuration = true"


class Engine(Protocol):
    """Evaluates SQL over Arrow tables."""

    def table(self, sql: str, **views: pa.Table) -> pa.Table:
        """Run a query over tables that it calls by these names."""

    def bounded(self, portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return rows as they are read, unless they are more than a query may read."""


class Sql:
    """An engine for SQL in this process, without access to anything but the tables."""

    def __init__(self, memory: int | None = None) -> None:
        """Let queries use some memory, in bytes, and no disk; without it, what DuckDB takes."""
        self._connection = duckdb.connect()
        self._schemas: dict[str, pa.Schema] = {}
        self._memory = memory
        for statement in (*_limiting(memory), *_PREPARATION, _LOCK, WINDOW_START_MACRO):
            self._connection.execute(statement)

    def bounded(self, portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from portions

    def register(self, name: str, rows: pa.Table) -> None:
        """Let queries read rows by a name, in place of any that it had before."""
        self._connection.register(name, rows)
        self._schemas[name] = rows.schema

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The schemas of registered tables, by name."""
        return dict(self._schemas)

    def table(self, sql: str, **views: pa.Table) -> pa.Table:
        """Run a query over registered tables, and over others that it calls by these names."""
        for name, rows in views.items():
            self._connection.register(name, rows)
        try:
            found = self._connection.execute(sql)
            kinds = [str(kind) for _, kind, *_ in found.description or ()]
            return _with_spark_types(self._result(found), kinds)
        except duckdb.OutOfMemoryException as error:
            raise LandingError("query-too-large", bad_query(error).message) from None
        except duckdb.Error as error:
            raise bad_query(error) from None
        finally:
            for name in views:
                self._connection.unregister(name)

    def _result(self, found: duckdb.DuckDBPyConnection) -> pa.Table:
        if self._memory is None:
            return found.to_arrow_table()
        reader = found.to_arrow_reader(_ROWS_AT_ONCE)
        return pa.Table.from_batches(bounded(reader, self._memory), reader.schema)


def bounded(portions: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Return rows as they come; raise as soon as they have more bytes."""
    size = 0
    for portion in portions:
        size += portion.nbytes
        if size > most:
            raise LandingError("query-too-large", f"these are more than {most:,} bytes of rows")
        yield portion


def _limiting(memory: int | None) -> Sequence[str]:
    if memory is None:
        return ()
    # What does not fit into memory would fill the disk.
    return (f"SET memory_limit = '{memory}B'", "SET temp_directory = ''")


def _with_spark_types(rows: pa.Table, kinds: Sequence[str]) -> pa.Table:
    """DuckDB's sum of whole numbers has 128 bits, Spark's has 64."""
    for at, kind in enumerate(kinds):
        if kind == "HUGEINT":
            name = rows.column_names[at]
            try:
                rows = rows.set_column(at, name, rows.column(at).cast(pa.int64()))
            except pa.ArrowInvalid:
                message = f"{shown(name)} does not fit into 64 bits"
                raise LandingError("bad-query", message) from None
    return rows


def bad_query(error: duckdb.Error) -> LandingError:
    lines = str(error).splitlines()
    _, _, message = lines[0].partition("Error: ")
    hint = next((line.strip() for line in lines[1:] if line.startswith("Did you mean")), None)
    return LandingError("bad-query", message or lines[0], hint=hint)
