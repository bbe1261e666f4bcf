"""Derived tables as a run leaves them: rows, marks, and rows of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headgate.config import PipelineConfig
from headgate.gold.declared import declared_gold
from headgate.gold.source_table import app_of_version
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import GoldEntry

ROWS = pa.table({"user_name": [f"player {each}" for each in range(200)], "_kept": [*range(200)]})


def app_of(pipeline: PipelineConfig, declaration: str) -> str:
    """What the marks of a declaration begin with."""
    queries, unions = declared_gold(pipeline, ledger_of(pipeline).app)
    return {
        **{one.name: one.app for one in queries},
        **{one.name: one.app for one in unions},
    }[declaration]


def derive(pipeline: PipelineConfig, declaration: str, table: str, *sources: str) -> None:
    """A table that has what its sources have; without sources, it is of one alone."""
    app = app_of(pipeline, declaration)
    logs = Path(pipeline.lake).glob("*/_delta_log")
    every = (app_of_version(app, str(DeltaTable(log.parent).metadata().id)) for log in logs)
    marks = [f"{app}:{source}" for source in sources] or every
    commit(pipeline, table, dict.fromkeys(marks, 1))


def commit(pipeline: PipelineConfig, table: str, marks: Mapping[str, int] | None = None) -> None:
    transactions = [Transaction(app, version) for app, version in (marks or {}).items()]
    write_deltalake(
        str(Path(pipeline.lake, table)),
        ROWS,
        mode="append",
        commit_properties=CommitProperties(app_transactions=transactions),
    )


def record(pipeline: PipelineConfig, table: str, rows: int = 2, error: str | None = None) -> None:
    """Add a row to the ledger, as after a batch."""
    entry = GoldEntry(table, rows, 0) if error is None else GoldEntry(table, 0, None, error)
    ledger = ledger_of(pipeline)
    ledger.add(ledger.landed() or 0, [entry])


def ledger_of(pipeline: PipelineConfig) -> Ledger:
    return Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
