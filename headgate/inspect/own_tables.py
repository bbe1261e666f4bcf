"""Which tables of a lake are of which kind: routes' own, and those that every pipeline has."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from headgate.pipeline import Pipeline


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
    own = {pipeline.bronze, pipeline.quarantine, pipeline.ledger}
    logs = Path(pipeline.lake).glob(f"{pipeline.silver.replace('{route}', '*')}/_delta_log")
    return sorted(log.parent.name for log in logs if log.parent.name not in own)
