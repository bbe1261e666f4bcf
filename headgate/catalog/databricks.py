"""Grants of Unity Catalog through the API of Databricks: from outside of it, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.cluster.driver import is_databricks
from headgate.config import Catalog, Granted, Principal
from headgate.config.catalog import SESSION_CATALOG
from headgate.errors import CatalogError, CatalogUnavailable, extra_missing, first_line

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.catalog import PermissionsChange

_CONFIGURED_BY = ("DATABRICKS_HOST", "DATABRICKS_CONFIG_PROFILE")
_RETRY_SECONDS = 10
_REQUEST_SECONDS = 30
_SERVER_CHOOSES = 0
"""Page size that asks for pages, as long as the server likes."""
_HINT = "set DATABRICKS_HOST and DATABRICKS_TOKEN, or DATABRICKS_CONFIG_PROFILE"


def uses_databricks_api(catalog: Catalog) -> bool:
    """Whether grants go through the API: not in Hive, and Databricks is configured from outside."""
    if catalog.is_hive or catalog.in_ == SESSION_CATALOG or is_databricks():
        return False
    return any(os.environ.get(name) for name in _CONFIGURED_BY)


class UnityGrants:
    """The privileges on tables of a schema of Unity Catalog."""

    def __init__(self, client: WorkspaceClient, catalog: Catalog) -> None:
        self._client = client
        self._catalog = catalog

    @classmethod
    @contextmanager
    def open(cls, catalog: Catalog) -> Iterator[UnityGrants]:
        try:
            from databricks.sdk import WorkspaceClient
            from databricks.sdk.core import Config
        except ImportError:
            raise extra_missing("databricks", ["databricks-sdk"]) from None
        try:
            config = Config(
                retry_timeout_seconds=_RETRY_SECONDS, http_timeout_seconds=_REQUEST_SECONDS
            )
            client = WorkspaceClient(config=config)
        except ValueError as error:  # no credentials, or no such profile
            raise _unavailable(first_line(error)) from error
        yield cls(client, catalog)

    def grants(self, table: str) -> frozenset[Granted] | None:
        from databricks.sdk.errors import NotFound

        try:
            return self._listed(table)
        except CatalogError as error:
            if isinstance(error.__cause__, NotFound):
                return None
            raise

    def _listed(self, table: str) -> frozenset[Granted]:
        found: set[Granted] = set()
        page: str | None = None
        with _explained():
            while True:
                answer = self._client.grants.get(
                    self._kind, self._name(table), max_results=_SERVER_CHOOSES, page_token=page
                )
                for one in answer.privilege_assignments or ():
                    principal = Principal(one.principal or "")
                    for privilege in one.privileges or ():
                        found.add(Granted(principal, privilege.value.replace("_", " ")))
                page = answer.next_page_token
                if not page:  # a page may be empty, and yet not the last
                    return frozenset(found)

    def grant(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        from databricks.sdk.service.catalog import PermissionsChange, Privilege

        added = [Privilege(one.replace(" ", "_")) for one in privileges]
        self._update(table, PermissionsChange(principal=principal.name, add=added))

    def revoke(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        from databricks.sdk.service.catalog import PermissionsChange, Privilege

        removed = [Privilege(one.replace(" ", "_")) for one in privileges]
        self._update(table, PermissionsChange(principal=principal.name, remove=removed))

    def _update(self, table: str, change: PermissionsChange) -> None:
        with _explained():
            self._client.grants.update(self._kind, self._name(table), changes=[change])

    @property
    def _kind(self) -> str:
        from databricks.sdk.service.catalog import SecurableType

        return SecurableType.TABLE.value

    def _name(self, table: str) -> str:
        return self._catalog.name_of(table)


@contextmanager
def _explained() -> Iterator[None]:
    from databricks.sdk import errors
    from databricks.sdk.errors.base import DatabricksError

    transient = (errors.TemporarilyUnavailable, errors.InternalError, errors.DeadlineExceeded)
    try:
        yield
    except (*transient, errors.TooManyRequests, errors.Unauthenticated) as error:
        raise _unavailable(first_line(error)) from error
    except DatabricksError as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise CatalogError("grant-refused", message) from error
    except (OSError, TimeoutError) as error:  # requests raises errors of both kinds
        raise _unavailable(first_line(error)) from error


def _unavailable(reason: str) -> CatalogUnavailable:
    message = f"Unity Catalog does not answer: {reason}"
    return CatalogUnavailable("catalog-unavailable", message, _HINT)
