"""A catalog of Spark, such as one of Unity Catalog, through SQL in the pipeline's session."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.config import Catalog, Granted, Principal
from headgate.errors import CatalogError, CatalogUnavailable, shown
from headgate.sql.parse import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_NO_SCHEMA = ("SCHEMA_NOT_FOUND", "NO_SUCH_SCHEMA", "NO_SUCH_DATABASE")
_NO_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_OWNER = "OWN"
"""What `SHOW GRANTS` lists for the owner of a table; it is not a grant."""
_PRIVILEGE = re.compile(r"[A-Z][A-Z_ ]*")


class SparkCatalog:
    """A schema of a catalog that the session has."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        self._spark = spark
        self._catalog = catalog
        self._schema = ".".join(map(quoted, (catalog.in_, *catalog.name.split("."))))

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, catalog: Catalog) -> Iterator[SparkCatalog]:
        yield cls(spark, catalog)

    def tables(self) -> set[str]:
        try:
            rows = self._sql(f"SHOW TABLES IN {self._schema}").collect()
        except Exception as error:
            if _condition(error) not in _NO_SCHEMA:
                raise self._unavailable(error) from error
            return self._created()
        return {row.tableName for row in rows if not row.isTemporary}

    def _created(self) -> set[str]:
        try:
            self._sql(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
        except Exception as error:
            message = f"{self._catalog.identity} cannot be created: {_first_line(error)}"
            raise CatalogError("catalog-refused", message) from error
        return set()

    def location(self, table: str) -> str | None:
        try:
            described = self._sql(f"DESCRIBE TABLE EXTENDED {self._name(table)}").collect()
        except Exception as error:
            if _condition(error) == _NO_TABLE:
                return None
            raise self._refused(error) from error
        found = [row.data_type for row in described if row.col_name == "Location"]
        return str(found[-1]) if found else ""

    def register(self, table: str, location: str) -> None:
        with self._reported():
            self._sql(f"CREATE TABLE {self._name(table)} USING DELTA LOCATION {text(location)}")

    def drop(self, table: str) -> None:
        with self._reported():
            self._sql(f"DROP TABLE IF EXISTS {self._name(table)}")

    def grants(self, table: str) -> frozenset[Granted] | None:
        with self._granting():
            try:
                rows = self._sql(f"SHOW GRANTS ON TABLE {self._name(table)}").collect()
            except Exception as error:
                if _condition(error) == _NO_TABLE:
                    return None
                raise
        # With those that the table inherits from its schema and its catalog.
        own = [row for row in map(_by_lower_name, rows) if row["objecttype"] == "TABLE"]
        return frozenset(
            Granted(Principal(row["principal"]), row["actiontype"].upper())
            for row in own
            if row["actiontype"] != _OWNER
        )

    def grant(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        with self._granting():
            what = f"{_listed(privileges)} ON TABLE {self._name(table)}"
            self._sql(f"GRANT {what} TO {quoted(principal.name)}")

    def revoke(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        with self._granting():
            what = f"{_listed(privileges)} ON TABLE {self._name(table)}"
            self._sql(f"REVOKE {what} FROM {quoted(principal.name)}")

    @contextmanager
    def _granting(self) -> Iterator[None]:
        from pyspark.errors import ParseException

        try:
            yield
        except ParseException as error:
            raise CatalogError(
                "grants-unsupported",
                f"Spark's catalog {self._catalog.in_} has no grants: Spark refuses the statement",
                "use a Hive metastore (`in: thrift://…`), or Unity Catalog: on Databricks, or from "
                "elsewhere with DATABRICKS_HOST",
            ) from error
        except CatalogError:
            raise
        except Exception as error:  # whatever the catalog's own client raises
            raise self._refused(error, "grant-refused") from error

    def _sql(self, statement: str) -> DataFrame:
        return self._spark.sql(statement)

    def _name(self, table: str) -> str:
        return f"{self._schema}.{quoted(table)}"

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever the catalog's own client raises
            raise self._refused(error) from error

    def _refused(self, error: Exception, code: str = "catalog-refused") -> CatalogError:
        """Return the error of a statement: that of the whole catalog if it does not answer."""
        try:
            self._sql(f"DESCRIBE SCHEMA {self._schema}").collect()
        except Exception as unreachable:
            return self._unavailable(unreachable)
        return CatalogError(code, _first_line(error))

    def _unavailable(self, error: Exception) -> CatalogUnavailable:
        return CatalogUnavailable(
            "catalog-unavailable",
            f"Spark's catalog {self._catalog.in_} does not answer: {_first_line(error)}",
            f"check `spark.sql.catalog.{self._catalog.in_}` under `spark`",
        )


def text(value: str) -> str:
    """Return a text as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _by_lower_name(row: Row) -> dict[str, str]:
    """Return the values of a row by column; the case of the names depends on the version."""
    return {name.lower(): value for name, value in row.asDict().items()}


def _listed(privileges: Sequence[str]) -> str:
    for privilege in privileges:
        if not _PRIVILEGE.fullmatch(privilege):
            raise CatalogError("grant-refused", f"{shown(privilege)} is not a privilege")
    return ", ".join(privileges)


def _condition(error: Exception) -> str:
    from pyspark.errors import PySparkException

    return (error.getCondition() or "") if isinstance(error, PySparkException) else ""


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
