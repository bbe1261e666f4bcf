"""Derived tables as a run leaves them: rows, marks, and what the ledger tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from headgate.config import Pipeline
from headgate.gold.declared import declared_gold
from headgate.lake.ledger import Entry, Kind, Ledger

ROWS = pa.table({"user_name": [f"player {each}" for each in range(200)], "_kept": [*range(200)]})


def app_of(pipeline: Pipeline, declaration: str) -> str:
    """What the marks of a declaration begin with."""
    queries, unions = declared_gold(pipeline, ledger_of(pipeline).app)
    return {
        **{one.name: one.app for one in queries},
        **{one.name: one.app for one in unions},
    }[declaration]


def derive(pipeline: Pipeline, declaration: str, table: str, *sources: str) -> None:
    """A table that has what its sources have; without sources, it is of one alone."""
    app = app_of(pipeline, declaration)
    marks = [f"{app}:{source}" for source in sources] or [app]
    commit(pipeline, table, dict.fromkeys(marks, 1))


def commit(pipeline: Pipeline, table: str, marks: Mapping[str, int] | None = None) -> None:
    transactions = [Transaction(app, version) for app, version in (marks or {}).items()]
    write_deltalake(
        str(Path(pipeline.lake, table)),
        ROWS,
        mode="append",
        commit_properties=CommitProperties(app_transactions=transactions),
    )


def tell(pipeline: Pipeline, table: str, rows: int | None = 2, **detail: Any) -> None:
    """A row of the ledger, written after a batch."""
    failed = "error" in detail
    entry = Entry(
        Kind.GOLD,
        table=table,
        rows=0 if failed else rows,
        table_version=None if failed else 0,
        detail=detail or None,
    )
    ledger = ledger_of(pipeline)
    ledger.add(ledger.landed() or 0, [entry])


def ledger_of(pipeline: Pipeline) -> Ledger:
    return Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
