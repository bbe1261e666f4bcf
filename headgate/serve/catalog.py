"""The tables that queries can read: their names, as people write them, and their keys."""

from __future__ import annotations

from fnmatch import fnmatchcase

from headgate.cdc.key import TableKey
from headgate.config import GoldQuery, PipelineConfig
from headgate.config.gold import ROUTE
from headgate.errors import LandingError, UsageError, did_you_mean, shown
from headgate.lake.changes import version_gone
from headgate.lake.names import TableNames
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError, tables_in
from headgate.serve.feed import Feed, Feeds
from headgate.sql.gold_select import parse_gold


class Catalog:
    """The tables of a pipeline's lake."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        self.pipeline = pipeline
        self.feeds = Feeds()

    def resolve(self, name: str) -> str:
        """Return the table that a query means, by its name or its route in any case."""
        tables = tables_in(self.pipeline.lake)
        meant = [name]
        if not self.pipeline.lands_changes:
            names = TableNames.of(self.pipeline)
            meant += [names.silver_for(name), names.silver_for(name.lower())]
        for each in meant:
            if each in tables:
                return each
            if found := [table for table in tables if table.lower() == each.lower()]:
                return found[0]
        visible = [table for table in tables if not table.startswith("_")]
        hints = (did_you_mean(each.lower(), visible) for each in meant)
        hint = next(filter(None, hints), "headgate tables lists all tables")
        raise LandingError("table-unknown", f"the lake has no table {shown(name)}", hint=hint)

    def open(self, table: str, version: int | None = None) -> Snapshot:
        """Return a table at a version, or at its newest one."""
        try:
            snapshot = Snapshot.open(self.pipeline.lake, table, version)
        except (TableError, OverflowError):
            if version is None:
                raise
            newest = self.open(table).version
            if 0 <= version <= newest:
                raise version_gone(table, version, "its log has been cleaned up") from None
            message = f"table {shown(table)} has no version {version}"
            raise UsageError("bad-argument", message, f"the newest is {newest}") from None
        if snapshot is None:
            raise LandingError("table-unknown", f"the lake has no table {shown(table)}")
        return snapshot

    def feed(self, snapshot: Snapshot) -> Feed:
        return self.feeds.of(snapshot, self.key(snapshot))

    def key(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the columns that identify a row of a merged or derived table."""
        if key := TableKey.from_schema(snapshot.schema):
            return key.columns
        for name, declared in self.pipeline.gold.items():
            if isinstance(declared, GoldQuery) and fnmatchcase(
                snapshot.table, name.replace(ROUTE, "*")
            ):
                keys = parse_gold(declared.sql).keys
                outputs = tuple(key.output for key in keys if key.output is not None)
                return outputs if len(outputs) == len(keys) else ()
        return ()
