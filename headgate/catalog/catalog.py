"""A catalog of tables: what Headgate needs of it, and where its entries point to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from headgate.config import Granted, Principal
from headgate.config.location import is_remote
from headgate.config.storage import S3, scheme_of
from headgate.errors import CatalogError
from headgate.lake.tables import table_url

_LOCAL = re.compile(r"file:/+")


class GrantCatalog(Protocol):
    """The privileges on tables of one schema of a catalog.

    Every method raises `CatalogUnavailable` if the catalog cannot be reached, and `CatalogError` if
    it refuses, or has no grants at all (`grants-unsupported`).
    """

    def grants(self, table: str) -> frozenset[Granted] | None:
        """Return the privileges granted on a table itself, without inherited ones; None if there is
        no such table."""
        ...

    def grant(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        """Grant privileges that the principal does not have yet."""
        ...

    def revoke(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        """Revoke privileges that the principal has."""
        ...


class TableCatalog(GrantCatalog, Protocol):
    """One schema of a catalog.

    Every method raises `CatalogUnavailable` if the catalog cannot be reached, and `CatalogError` if
    it refuses.
    """

    def tables(self) -> set[str]:
        """Return the names of all tables; create the schema if it does not exist."""
        ...

    def location(self, table: str) -> str | None:
        """Return the location of a table; None if there is no such table."""
        ...

    def register(self, table: str, location: str) -> None:
        """Add an external Delta table."""
        ...

    def drop(self, table: str) -> None:
        """Remove a table, but none of its files."""
        ...


OpenCatalog = AbstractContextManager[TableCatalog]
OpenGrants = AbstractContextManager[GrantCatalog]


def location_of(lake: str, table: str) -> str:
    """Return the location of a table for Spark, whose file system for S3 is `s3a`."""
    url = table_url(lake, table)
    if not is_remote(url):
        return f"file:{url}"
    return f"s3a{url[len(scheme_of(url)) :]}" if scheme_of(url) in S3 else url


def is_same_location(one: str, other: str) -> bool:
    return _normal(one) == _normal(other)


def _normal(location: str) -> str:
    if location.startswith("/"):
        location = f"file:{location}"
    if scheme_of(location) in (*S3, "s3n"):
        location = f"s3a{location[len(scheme_of(location)) :]}"
    return _LOCAL.sub("file:/", location).rstrip("/")


def registered_elsewhere(name: str, location: str) -> CatalogError:
    return CatalogError(
        "catalog-refused",
        f"{name} is registered already, for another table at {location}",
        hint="drop that entry, or register this pipeline's tables under another `catalog.name`",
    )


def not_in_catalog(name: str) -> CatalogError:
    """Return the error for a table without an entry, which has no grants either."""
    hint = "headgate run registers tables that are missing"
    return CatalogError("grant-refused", f"{name} is not in the catalog", hint)
