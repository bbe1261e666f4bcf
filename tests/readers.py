"""The three readers that every landed table must open in."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_deltalake(path: str) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table()


def by_spark(spark: SparkSession, path: str) -> pa.Table:
    return spark.read.format("delta").load(path).toArrow()


def by_duckdb(path: str) -> pa.Table:
    return _duckdb().sql(f"SELECT * FROM delta_scan('{path}')").to_arrow_table()


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """To load its reader of Delta tables takes many times as long as to read one."""
    folder = resources.files("duckdb_extension_delta") / "extensions" / f"v{duckdb.__version__}"
    connection = duckdb.connect()
    connection.execute(f"LOAD '{folder / 'delta.duckdb_extension'}'")
    return connection


def comparable(table: pa.Table, like: pa.Table) -> list[str]:
    """The rows in an order and in types that can be compared between readers."""
    return sorted(
        repr(row) for row in table.select(like.column_names).cast(like.schema).to_pylist()
    )
