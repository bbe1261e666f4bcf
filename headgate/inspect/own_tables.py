"""Which tables of a lake are of which kind: routes' own, and those that every pipeline has."""

from __future__ import annotations

from enum import StrEnum

from headgate.config import Pipeline
from headgate.config.gold import is_declared_gold
from headgate.config.pipeline import FILES_TABLE
from headgate.lake.names import ChangeTables, TableNames


class TableKind(StrEnum):
    """What a table holds."""

    SILVER = "silver"
    BRONZE = "bronze"
    LOG = "log"
    MERGED = "merged"
    HISTORY = "history"
    GOLD = "gold"
    QUARANTINE = "quarantine"
    FILES = "files"

    @property
    def is_landed_in(self) -> bool:
        """Whether it is one of the many tables that a source's own records or changes land in."""
        return self in (TableKind.SILVER, TableKind.LOG)

    @property
    def is_derived(self) -> bool:
        """Whether it follows a table that changes land in."""
        return self in (TableKind.MERGED, TableKind.HISTORY)

    @property
    def is_own(self) -> bool:
        """Whether a pipeline has one of it, whatever its source has."""
        return not (self.is_landed_in or self.is_derived or self is TableKind.GOLD)


def kind_of(pipeline: Pipeline, table: str) -> TableKind:
    if table == pipeline.quarantine:
        return TableKind.QUARANTINE
    if is_declared_gold(pipeline.gold, table):
        return TableKind.GOLD
    if pipeline.lands_changes:
        if table == FILES_TABLE:
            return TableKind.FILES
        return TableKind(ChangeTables.of(pipeline).kind_of(table) or TableKind.LOG)
    return TableKind.BRONZE if table == pipeline.bronze else TableKind.SILVER


def landed_tables(pipeline: Pipeline) -> list[str]:
    """The silver tables or change logs that are in the lake, whatever the ledger says."""
    if pipeline.lands_changes:
        return ChangeTables.of(pipeline).logs_in(pipeline.lake)
    return TableNames.of(pipeline).silver_in(pipeline.lake)
