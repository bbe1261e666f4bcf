"""Which tables of a lake are of which kind: routes' own, and those that every pipeline has."""

from __future__ import annotations

from enum import StrEnum

from headgate.pipeline import Pipeline
from headgate.route.table_names import TableNames


class TableKind(StrEnum):
    """What a table holds."""

    SILVER = "silver"
    BRONZE = "bronze"
    QUARANTINE = "quarantine"


def kind_of(pipeline: Pipeline, table: str) -> TableKind:
    if table == pipeline.quarantine:
        return TableKind.QUARANTINE
    return TableKind.BRONZE if table == pipeline.bronze else TableKind.SILVER


def silver_tables(pipeline: Pipeline) -> list[str]:
    """The silver tables that are in the lake, whatever the ledger says."""
    return TableNames.of(pipeline).silver_in(pipeline.lake)
