"""Which tables of a lake are of which kind: routes' own, and those that every pipeline has."""

from __future__ import annotations

from enum import StrEnum

from headgate.pipeline import ChangePipeline, Pipeline
from headgate.route.change_tables import ChangeTables
from headgate.route.table_names import TableNames


class TableKind(StrEnum):
    """What a table holds."""

    SILVER = "silver"
    BRONZE = "bronze"
    LOG = "log"
    MERGED = "merged"
    HISTORY = "history"
    QUARANTINE = "quarantine"

    @property
    def is_landed_in(self) -> bool:
        """Whether it is one of the many tables that a source's own records or changes land in."""
        return self in (TableKind.SILVER, TableKind.LOG)


def kind_of(pipeline: Pipeline | ChangePipeline, table: str) -> TableKind:
    if table == pipeline.quarantine:
        return TableKind.QUARANTINE
    if isinstance(pipeline, ChangePipeline):
        return TableKind(ChangeTables.of(pipeline).kind_of(table) or TableKind.LOG)
    return TableKind.BRONZE if table == pipeline.bronze else TableKind.SILVER


def landed_tables(pipeline: Pipeline | ChangePipeline) -> list[str]:
    """The silver tables or change logs that are in the lake, whatever the ledger says."""
    if isinstance(pipeline, ChangePipeline):
        return ChangeTables.of(pipeline).logs_in(pipeline.lake)
    return TableNames.of(pipeline).silver_in(pipeline.lake)
