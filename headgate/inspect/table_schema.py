"""A table's columns as they are, and what they went through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.errors import LandingError
from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.recorded_change import RecordedChange, recorded_changes
from headgate.pipeline import Pipeline
from headgate.pipeline.wording import nearest
from headgate.route.table_names import TableNames
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.schema.type_names import type_name


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    origin: bool
    """It says where a record came from, and is not the message's own."""


@dataclass(frozen=True)
class TableSchema:
    """Columns now, and their history with the oldest change first."""

    table: str
    route: str | None
    version: int
    columns: tuple[Column, ...]
    history: tuple[RecordedChange, ...]


def read_table_schema(pipeline: Pipeline, name: str) -> TableSchema:
    """By the table's name, or by the route that lands in it."""
    ledger = LedgerRows(pipeline)
    routes = ledger.query(
        """
        SELECT "table", max(route) AS route, count(DISTINCT route) AS routes FROM ledger
        WHERE kind = 'table' GROUP BY "table"
        """
    )
    table = _resolve(pipeline, name, [row["table"] for row in routes])
    opened = _open(pipeline, table)
    mine = next(row for row in routes if row["table"] == table)
    return TableSchema(
        table=table,
        route=mine["route"] if mine["routes"] == 1 else None,
        version=opened.version(),
        columns=tuple(
            Column(field.name, type_name(field.type), field.name in ORIGIN_COLUMNS)
            for field in pa.schema(opened.schema())
        ),
        history=tuple(recorded_changes(ledger, table)),
    )


def _resolve(pipeline: Pipeline, name: str, known: Sequence[str]) -> str:
    if name in known:
        return name
    names = TableNames(pipeline.silver, pipeline.quarantine, pipeline.ledger, pipeline.bronze)
    by_route = names.silver_for(name)
    if by_route in known:
        return by_route
    meant = nearest(name, known) or nearest(by_route, known)
    hint = f"did you mean `{meant}`?" if meant else "headgate tables lists them"
    raise LandingError(
        "table-unknown", f"nothing has landed in a table `{name}`", hint, where=pipeline.lake
    )


def _open(pipeline: Pipeline, table: str) -> DeltaTable:
    path = Path(pipeline.lake, table)
    try:
        return DeltaTable(str(path))
    except TableNotFoundError:
        message = f"the ledger knows table `{table}`, but it is not in the lake"
    except (DeltaError, OSError) as error:
        message = f"table `{table}` cannot be read: {str(error).splitlines()[0]}"
    raise LandingError("lake-unreadable", message, "restore the table's folder", where=str(path))
