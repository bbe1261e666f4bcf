"""Registers the tables of a pipeline in its catalog as they appear, with grants, and drops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from headgate.catalog.catalog import (
    OpenCatalog,
    OpenGrants,
    TableCatalog,
    is_same_location,
    location_of,
    registered_elsewhere,
)
from headgate.catalog.grants import NewGrants
from headgate.catalog.open import grants_of, open_catalog
from headgate.catalog.recorded import Recorded
from headgate.config import Catalog, Grant, PipelineConfig
from headgate.engine.events import CatalogFailed, Listener, TablesRegistered
from headgate.engine.follow_up import Followed, TableChanged
from headgate.errors import CatalogError, CatalogUnavailable, SetupError
from headgate.lake.ledger_entries import CatalogEntry, Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETRY_SECONDS = 10.0
"""Seconds without an attempt after the catalog did not answer."""


class CatalogFollowUp:
    """Registers new tables after all other follow-ups, and grants what is declared on them.

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
        grants: Sequence[Grant] = (),
        open_grants: Callable[[TableCatalog], OpenGrants] = nullcontext,
    ) -> None:
        self._catalog = catalog
        self._lake = lake
        self._read_recorded = recorded
        self._open = open_catalog
        self._listener = listener
        self._grants = NewGrants(grants, catalog, listener)
        self._open_grants = open_grants
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
            pipeline.grants,
            lambda opened: grants_of(opened, catalog),
        )

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        """Register tables that are new, with their grants; the first time, all that is missing."""
        tables = {one.table for one in changed}
        if self._recorded is None:
            self._recorded = self._read_recorded()
            tables |= self._recorded.tables
        self._waiting |= tables - self._seen
        self._seen |= tables
        if not (self._waiting or self._grants.waiting) or monotonic() < self._retry_at:
            return Followed()
        entries: list[Entry] = []
        try:
            with self._open() as catalog:
                if self._listed is None:
                    self._listed = catalog.tables()
                self._register_waiting(catalog, self._recorded, entries)
                self._grant(catalog, self._recorded, entries)
        except CatalogError as error:
            self._postpone(error)
        else:
            self._is_down = False
        return Followed(entries)

    def _register_waiting(
        self, catalog: TableCatalog, recorded: Recorded, entries: list[Entry]
    ) -> None:
        new: list[str] = []
        try:
            for table in sorted(self._waiting):
                registered = self._register(catalog, table, recorded)
                self._waiting.remove(table)
                entries += registered
                new += [entry.table for entry in registered if entry.error is None]
        finally:
            if new:
                self._listener(TablesRegistered(self._catalog.name, tuple(new)))

    def _grant(self, catalog: TableCatalog, recorded: Recorded, entries: list[Entry]) -> None:
        """Add to the entries what was granted, also if the catalog stops answering on the way."""
        if not self._grants.waiting:
            return
        try:
            if self._grants.given_up is not None:
                raise self._grants.given_up
            with self._open_grants(catalog) as grants:
                for entry in self._grants.grant(grants, recorded):
                    entries.append(entry)
        except CatalogUnavailable:
            raise
        except (CatalogError, SetupError) as error:
            entries += self._grants.give_up(error, recorded)

    def _register(
        self, catalog: TableCatalog, table: str, recorded: Recorded
    ) -> Sequence[CatalogEntry]:
        """Register a table; return what is new about it for the ledger."""
        is_listed = self._listed is not None and table in self._listed
        if is_listed and table in recorded.registered:
            self._grants.expect(table, recorded, is_new=False)
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
        self._grants.expect(table, recorded, is_new=True)
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
