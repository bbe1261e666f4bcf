"""SQL over Arrow tables, evaluated in this process by DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from headgate.errors import LandingError
from headgate.lake.query import quoted_name

_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET threads = 2",
    "SET python_enable_replacements = false",
    # Queries come from people who may not read the files of this machine.
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Sql:
    """An engine for SQL over Arrow tables, without access to anything else."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._schemas: dict[str, pa.Schema] = {}
        for setting in _SETTINGS:
            self._connection.execute(setting)

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
            return _with_spark_types(self._connection.sql(sql)).to_arrow_table()
        except duckdb.Error as error:
            raise bad_query(error) from None
        finally:
            for name in views:
                self._connection.unregister(name)


def _with_spark_types(found: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """DuckDB's sum of whole numbers has 128 bits, Spark's has 64."""
    types = list(map(str, found.types))
    if "HUGEINT" not in types:
        return found
    names = [quoted_name(name) for name in found.columns]
    return found.project(
        ", ".join(
            f"CAST({name} AS BIGINT) AS {name}" if kind == "HUGEINT" else name
            for name, kind in zip(names, types, strict=True)
        )
    )


def bad_query(error: duckdb.Error) -> LandingError:
    lines = str(error).splitlines()
    _, _, message = lines[0].partition("Error: ")
    hint = next((line.strip() for line in lines[1:] if line.startswith("Did you mean")), None)
    return LandingError("bad-query", message or lines[0], hint=hint)
