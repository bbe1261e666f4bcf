"""A Hive metastore, through the client in the jars of Spark.

A statement of Spark costs a quarter of a second per table, the client a tenth of that.
And the session of a run does not have to be connected to the metastore: it may be down, and a
session that is active already, such as that of a notebook, cannot be connected any more.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from time import time
from typing import TYPE_CHECKING, Any

from headgate.catalog.catalog import not_in_catalog
from headgate.config import Catalog, Granted, Principal
from headgate.config.grants import PrincipalKind
from headgate.errors import CatalogError, CatalogUnavailable, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "hive.metastore.connect.retries": "1",
    "hive.metastore.client.connect.retry.delay": "0s",
    "hive.metastore.client.socket.timeout": "30s",
}
_CONNECT_SECONDS = 3
_PLACEHOLDER = "-__PLACEHOLDER__"
_TRANSPORT = ("TTransportException", "TProtocolException", "ConnectException", "SocketException")
_HINT = "check `catalog.in`; headgate up --catalog starts a metastore on this machine"


def require_reachable(catalog: Catalog) -> None:
    """Raise `CatalogUnavailable` unless one of the metastore's servers accepts connections."""
    reason = ""
    for address in catalog.addresses:
        try:
            socket.create_connection(address, _CONNECT_SECONDS).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    raise _unavailable(catalog, reason)


class HiveMetastore:
    """A database of a Hive metastore."""

    def __init__(self, spark: SparkSession, catalog: Catalog, client: Any) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._catalog = catalog
        self._client = client

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, catalog: Catalog) -> Iterator[HiveMetastore]:
        """Connect for as long as the context lasts."""
        require_reachable(catalog)
        with _explained(catalog):
            hive = _jvm(spark).org.apache.hadoop.hive
            # With the settings of the session, such as those for Kerberos, and of hive-site.xml.
            conf = hive.conf.HiveConf(_hadoop(spark), hive.conf.HiveConf().getClass())
            for key, value in {**_SETTINGS, "hive.metastore.uris": catalog.in_}.items():
                conf.set(key, value)
            client = hive.metastore.HiveMetaStoreClient(conf)
        try:
            yield cls(spark, catalog, client)
        finally:
            with suppress(Exception):  # the connection may be gone
                client.close()

    def tables(self) -> set[str]:
        database = self._catalog.name
        with _explained(self._catalog):
            if database not in self._client.getAllDatabases():
                # With its folder where the metastore wants it.
                self._client.createDatabase(self._api.Database(database, "", None, {}))
            return set(self._client.getAllTables(database))

    def location(self, table: str) -> str | None:
        with _explained(self._catalog):
            found = self._client.getTableObjectsByName(self._catalog.name, [table])
            if not found:
                return None
            descriptor = found[0].getSd()
            path = descriptor.getSerdeInfo().getParameters().get("path")
            return path or descriptor.getLocation() or ""

    def register(self, table: str, location: str) -> None:
        """Add a table, with the properties that Spark writes for an external Delta table."""
        with _explained(self._catalog):
            placeholder = f"{self._folder}/{table}{_PLACEHOLDER}"
            try:
                self._client.createTable(self._table(table, location, placeholder))
            finally:
                self._delete(placeholder)

    def drop(self, table: str) -> None:
        with _explained(self._catalog):
            keep_files, ignore_unknown = False, True
            self._client.dropTable(self._catalog.name, table, keep_files, ignore_unknown)

    def grants(self, table: str) -> frozenset[Granted] | None:
        with _explained(self._catalog, "grant-refused"):
            found = frozenset(map(_granted, self._privileges(table)))
        # Of a missing table, the metastore lists no privileges.
        return found if found or self.location(table) is not None else None

    def grant(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        if self.location(table) is None:  # there, the metastore grants nothing and succeeds
            raise not_in_catalog(self._catalog.name_of(table))
        with _explained(self._catalog, "grant-refused"):
            if principal.kind == "role" and principal.name not in self._client.listRoleNames():
                message = f"the metastore has no role {shown(principal.name)}"
                raise CatalogError("grant-refused", message, "create it with CREATE ROLE in Hive")
            api, kind = self._api, self._kind(principal)
            by = api.PrincipalType.USER
            added = [
                api.HiveObjectPrivilege(
                    self._reference(table),
                    principal.name,
                    kind,
                    api.PrivilegeGrantInfo(privilege, int(time()), self._user, by, False),
                )
                for privilege in privileges
            ]
            self._client.grant_privileges(api.PrivilegeBag(added))

    def revoke(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        with _explained(self._catalog, "grant-refused"):
            wanted = {Granted(principal, privilege) for privilege in privileges}
            for one in self._privileges(table):
                if _granted(one) in wanted:
                    # One at a time: of the same privilege by two grantors, one call revokes one.
                    self._client.revoke_privileges(self._api.PrivilegeBag([one]), False)

    def _privileges(self, table: str) -> list[Any]:
        return [*self._client.list_privileges(None, None, self._reference(table))]

    def _reference(self, table: str) -> Any:
        kind = self._api.HiveObjectType.TABLE
        return self._api.HiveObjectRef(kind, self._catalog.name, table, None, None)

    def _kind(self, principal: Principal) -> Any:
        return self._api.PrincipalType.valueOf((principal.kind or "user").upper())

    def _table(self, name: str, location: str, placeholder: str) -> Any:
        api = self._api
        serde = api.SerDeInfo()
        serde.setSerializationLib("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe")
        serde.setParameters({"serialization.format": "1", "path": location})
        stored = api.StorageDescriptor()
        # Columns and comments are in the log of the table, where Spark and others read them.
        stored.setCols([api.FieldSchema("col", "array<string>", "from deserializer")])
        # A metastore creates the folder of a table, which it may not be able to reach.
        stored.setLocation(placeholder)
        stored.setInputFormat("org.apache.hadoop.mapred.SequenceFileInputFormat")
        stored.setOutputFormat("org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat")
        stored.setNumBuckets(-1)
        stored.setSerdeInfo(serde)
        stored.setBucketCols([])
        stored.setSortCols([])
        stored.setParameters({})
        stored.setSkewedInfo(api.SkewedInfo([], [], {}))
        table = api.Table()
        table.setDbName(self._catalog.name)
        table.setTableName(name)
        table.setOwner(self._user)
        table.setTableType("EXTERNAL_TABLE")
        table.setSd(stored)
        table.setPartitionKeys([])
        table.setParameters(
            {
                "EXTERNAL": "TRUE",
                "spark.sql.create.version": self._spark.version,
                "spark.sql.partitionProvider": "catalog",
                "spark.sql.sources.provider": "delta",
                "spark.sql.sources.schema": '{"type":"struct","fields":[]}',
            }
        )
        return table

    def _delete(self, placeholder: str) -> None:
        """Delete the folder that the metastore made for a table, as Spark does."""
        path = self._jvm.org.apache.hadoop.fs.Path(placeholder)
        with suppress(Exception):  # an empty folder that is out of reach does no harm
            path.getFileSystem(_hadoop(self._spark)).delete(path, False)

    @cached_property
    def _folder(self) -> str:
        return str(self._client.getDatabase(self._catalog.name).getLocationUri())

    @property
    def _api(self) -> Any:
        return self._jvm.org.apache.hadoop.hive.metastore.api

    @property
    def _user(self) -> str:
        security = self._jvm.org.apache.hadoop.security
        return str(security.UserGroupInformation.getCurrentUser().getShortUserName())


def _granted(privilege: Any) -> Granted:
    kind: PrincipalKind = privilege.getPrincipalType().toString().lower()
    principal = Principal(privilege.getPrincipalName(), kind)
    return Granted(principal, privilege.getGrantInfo().getPrivilege().upper())


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _hadoop(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


@contextmanager
def _explained(catalog: Catalog, refused: str = "catalog-refused") -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        thrown: Any = error.java_exception
        kind, text = thrown.getClass().getSimpleName(), str(thrown.getMessage() or "")
        first = (text.strip().splitlines() or [kind])[0]
        if kind in _TRANSPORT or "Could not connect" in text:
            raise _unavailable(catalog, first) from error
        raise CatalogError(refused, first) from error
    except CatalogError:
        raise
    except Exception as error:  # a Spark without the classes of Hive
        raise _unavailable(catalog, f"{type(error).__name__}: {error}") from error


def _unavailable(catalog: Catalog, reason: str) -> CatalogUnavailable:
    message = f"the metastore at {catalog.in_} does not answer: {reason}"
    return CatalogUnavailable("catalog-unavailable", message, _HINT)
