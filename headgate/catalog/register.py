"""Registers the tables of a pipeline in its catalog as they appear, and drops them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from headgate.catalog.catalog import (
    OpenCatalog,
    TableCatalog,
    is_same_location,
    location_of,
    registered_elsewhere,
)
from headgate.catalog.hive import HiveMetastore
from headgate.catalog.spark_sql import SparkCatalog
from headgate.config import Catalog, PipelineConfig
from headgate.engine.events import CatalogFailed, Listener, TablesRegistered
from headgate.engine.follow_up import Followed, TableChanged
from headgate.errors import CatalogError, CatalogUnavailable
from headgate.lake.ledger_entries import CatalogEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETRY_SECONDS = 10.0
"""Seconds without an attempt after the catalog did not answer."""


@dataclass(frozen=True)
class Recorded:
    """Tables of a pipeline, and what the ledger says of their registration in a catalog."""

    tables: frozenset[str]
    registered: frozenset[str] = frozenset()
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why tables could not be registered."""

    @classmethod
    def of(cls, pipeline: PipelineConfig, catalog: Catalog) -> Recorded:
        snapshot = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
        last = {
            row.entry.table: row.entry.error
            for row in sorted(snapshot.last_outcomes(CatalogEntry), key=lambda row: row.at)
            if row.entry.catalog == catalog.identity
        }
        found = snapshot.tables()
        return cls(
            frozenset({*found, pipeline.ledger} if found else ()),
            frozenset(table for table, error in last.items() if error is None),
            {table: error for table, error in last.items() if error is not None},
        )

    @property
    def missing(self) -> list[str]:
        return sorted(self.tables - self.registered)


class CatalogFollowUp:
    """Registers new tables after all other follow-ups.

    What the catalog has is listed once in a run. From then on, only new tables cost a call.
    """

    while_idle: ClassVar = True
    of_all_tables: ClassVar = True

    def __init__(
        self,
        catalog: Catalog,
        lake: str,
        recorded: Callable[[], Recorded],
        open_catalog: Callable[[], OpenCatalog],
        listener: Listener,
    ) -> None:
        self._catalog = catalog
        self._lake = lake
        self._read_recorded = recorded
        self._open = open_catalog
        self._listener = listener
        self._recorded: Recorded | None = None
        self._listed: set[str] | None = None
        """What the catalog had at the start of the run."""
        self._waiting: set[str] = set()
        self._seen: set[str] = set()
        self._is_down = False
        self._retry_at = 0.0

    @classmethod
    def of(
        cls, spark: SparkSession, pipeline: PipelineConfig, catalog: Catalog, listener: Listener
    ) -> CatalogFollowUp:
        return cls(
            catalog,
            pipeline.lake,
            lambda: Recorded.of(pipeline, catalog),
            lambda: open_catalog(spark, catalog),
            listener,
        )

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        """Register tables that are new; the first time, all that are missing."""
        tables = {one.table for one in changed}
        if self._recorded is None:
            self._recorded = self._read_recorded()
            tables |= self._recorded.tables
        self._waiting |= tables - self._seen
        self._seen |= tables
        if not self._waiting or monotonic() < self._retry_at:
            return Followed()
        entries: list[CatalogEntry] = []
        try:
            with self._open() as catalog:
                if self._listed is None:
                    self._listed = catalog.tables()
                for table in sorted(self._waiting):
                    entries += self._register(catalog, table, self._recorded)
                    self._waiting.remove(table)
        except CatalogError as error:
            self._postpone(error)
        else:
            self._is_down = False
        if new := tuple(entry.table for entry in entries if entry.error is None):
            self._listener(TablesRegistered(self._catalog.name, new))
        return Followed(entries)

    def _register(
        self, catalog: TableCatalog, table: str, recorded: Recorded
    ) -> Sequence[CatalogEntry]:
        """Register a table; return what is new about it for the ledger."""
        is_listed = self._listed is not None and table in self._listed
        if is_listed and table in recorded.registered:
            return ()
        try:
            self._require_entry(catalog, table, is_listed)
        except CatalogUnavailable:
            raise
        except CatalogError as error:
            name = self._catalog.name_of(table)
            self._listener(CatalogFailed(name, f"not registered: {error.message}", error.code))
            if recorded.errors.get(table) == error.message:
                return ()
            return (CatalogEntry(table, self._catalog.identity, error.message),)
        return (CatalogEntry(table, self._catalog.identity),)

    def _require_entry(self, catalog: TableCatalog, table: str, is_listed: bool) -> None:
        location = location_of(self._lake, table)
        refused: CatalogError | None = None
        if not is_listed:
            try:
                catalog.register(table, location)
            except CatalogUnavailable:
                raise
            except CatalogError as error:
                refused = error  # maybe because another process has registered it meanwhile
            else:
                return
        found = catalog.location(table)
        if found is not None and is_same_location(found, location):
            return
        if refused is not None and found is None:
            raise refused
        raise registered_elsewhere(self._catalog.name_of(table), found or "an unknown location")

    def _postpone(self, error: CatalogError) -> None:
        self._retry_at = monotonic() + _RETRY_SECONDS
        if not self._is_down:
            self._is_down = True
            reason = f"{error.message}; will be retried"
            self._listener(CatalogFailed(self._catalog.name, reason, error.code))


def open_catalog(spark: SparkSession, catalog: Catalog) -> OpenCatalog:
    """Open the catalog of a pipeline."""
    kind = HiveMetastore if catalog.is_hive else SparkCatalog
    return kind.open(spark, catalog)


@dataclass(frozen=True)
class Dropped:
    """Tables whose entries were dropped, and those that are entries for other tables."""

    tables: tuple[str, ...]
    kept: tuple[str, ...]


def drop_entries(catalog: TableCatalog, lake: str, tables: Sequence[str]) -> Dropped:
    """Drop the entries of tables, but not those that point elsewhere, and no files."""
    dropped, kept = [], []
    for table in sorted(catalog.tables() & {*tables}):
        found = catalog.location(table)
        if found is not None and is_same_location(found, location_of(lake, table)):
            catalog.drop(table)
            dropped.append(table)
        else:
            kept.append(table)
    return Dropped(tuple(dropped), tuple(kept))
