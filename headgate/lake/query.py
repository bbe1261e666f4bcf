"""SQL over one Delta table, evaluated in this process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def query_table(table: DeltaTable, sql: str) -> pa.Table:
    """Return the rows of a query over the table, which the query calls `stored`."""
    found = QueryBuilder().register("stored", table).execute(sql)
    return pa.RecordBatchReader.from_stream(found).read_all()


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python values."""
    columns = [_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def quoted(value: str) -> str:
    """Return a string literal; quotes in the value are doubled."""
    return "'" + value.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """Return an identifier; quotes in the name are doubled."""
    return '"' + name.replace('"', '""') + '"'


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    # By hand, because pyarrow imports pandas for timestamps with a time zone.
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if each is None else _EPOCH + timedelta(microseconds=each) for each in micros]
