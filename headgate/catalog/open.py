"""Opens the catalog of a pipeline, and what grants privileges in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from headgate.catalog.catalog import OpenCatalog, OpenGrants, TableCatalog
from headgate.catalog.databricks import UnityGrants, uses_databricks_api
from headgate.catalog.hive import HiveMetastore, require_reachable
from headgate.catalog.spark_sql import SparkCatalog
from headgate.config import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_catalog(spark: SparkSession, catalog: Catalog) -> OpenCatalog:
    """Open the catalog of a pipeline."""
    kind = HiveMetastore if catalog.is_hive else SparkCatalog
    return kind.open(spark, catalog)


def open_grants(start_spark: Callable[[], SparkSession], catalog: Catalog) -> OpenGrants:
    """Open the grants of a catalog; start Spark only if it is needed for that."""
    if uses_databricks_api(catalog):
        return UnityGrants.open(catalog)
    if catalog.is_hive:
        require_reachable(catalog)
    return open_catalog(start_spark(), catalog)


def grants_of(opened: TableCatalog, catalog: Catalog) -> OpenGrants:
    """Return the grants of a catalog that is open already."""
    return UnityGrants.open(catalog) if uses_databricks_api(catalog) else nullcontext(opened)
