"""Rows of a Delta table, read by delta-rs's own engine.

The other way, through pyarrow's datasets, imports pandas, and a command that takes a blink would
take a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def query_table(
    table: DeltaTable,
    schema: pa.Schema,
    where: Mapping[str, str | int] | None = None,
    columns: Sequence[str] = (),
) -> pa.Table:
    """The rows whose columns have exactly these values."""
    chosen = columns or schema.names
    query = f"SELECT {', '.join(map(_name, chosen))} FROM t"
    if where:
        query += " WHERE " + " AND ".join(
            f"{_name(column)} = {_value(value)}" for column, value in where.items()
        )
    found = QueryBuilder().register("t", table).execute(query)
    wanted = pa.schema([schema.field(column) for column in chosen])
    return pa.RecordBatchReader.from_stream(found).read_all().cast(wanted)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _value(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
