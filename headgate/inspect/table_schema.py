"""A table's columns as they are, and what they went through."""

from __future__ import annotations

from collections.abc import Collection
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
    known = [row["table"] for row in routes]
    table = find_table(pipeline, name, known)
    if table is None:
        raise _unknown(pipeline, name, known)
    opened = open_table(pipeline, table)
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


def find_table(pipeline: Pipeline, name: str, known: Collection[str]) -> str | None:
    """The table of that name, or of that route."""
    if name in known:
        return name
    by_route = TableNames.of(pipeline).silver_for(name)
    return by_route if by_route in known else None


def nearest_table(pipeline: Pipeline, name: str, known: Collection[str]) -> str | None:
    """The table that a mistyped name or route may mean."""
    return nearest(name, known) or nearest(TableNames.of(pipeline).silver_for(name), known)


def open_table(pipeline: Pipeline, table: str) -> DeltaTable:
    path = Path(pipeline.lake, table)
    try:
        return DeltaTable(str(path))
    except TableNotFoundError:
        message = f"the ledger knows table `{table}`, but it is not in the lake"
    except (DeltaError, OSError) as error:
        message = f"table `{table}` cannot be read: {str(error).splitlines()[0]}"
    raise LandingError("lake-unreadable", message, "restore the table's folder", where=str(path))


def _unknown(pipeline: Pipeline, name: str, known: Collection[str]) -> LandingError:
    meant = nearest_table(pipeline, name, known)
    hint = f"did you mean `{meant}`?" if meant else "headgate tables lists them"
    message = f"nothing has landed in a table `{name}`"
    return LandingError("table-unknown", message, hint, where=pipeline.lake)
