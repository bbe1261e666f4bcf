"""A table's columns as they are, and what they went through."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headgate.cdc.history import VALIDITY
from headgate.cdc.plan import source_text
from headgate.config import Pipeline
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.errors import LandingError, nearest
from headgate.inspect.ledger import LedgerRows, RecordedChange, recorded_changes
from headgate.inspect.own_tables import TableKind, kind_of
from headgate.inspect.tables import plan_of_names, read_following
from headgate.lake.names import TableNames, pattern_name
from headgate.schema.fit import type_name
from headgate.schema.origin import ORIGIN_COLUMNS

_DERIVED = """
SELECT DISTINCT "table" FROM everything WHERE kind = 'gold' AND table_version IS NOT NULL
"""
_BESIDE_ROWS = LOG_COLUMN_NAMES | set(VALIDITY.names)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    origin: bool
    """It says where a record or a change came from, and is not the message's or the row's own."""


@dataclass(frozen=True)
class TableSchema:
    """Columns now, and their history with the oldest change first."""

    table: str
    kind: TableKind
    route: str | None
    """Of changes: the table of the source."""
    version: int
    columns: tuple[Column, ...]
    history: tuple[RecordedChange, ...]
    """Of a merged or history table: what happened to the columns of its change log."""
    follows: str | None = None
    """The change log that a merged or history table is made of."""


def read_table_schema(pipeline: Pipeline, name: str) -> TableSchema:
    """By the table's name, by the route that lands in it, or by the name of the source's table."""
    ledger = LedgerRows(pipeline)
    gold = [row["table"] for row in ledger.query(_DERIVED)]
    if name in gold:
        return _of_gold(pipeline, name)
    if pipeline.lands_changes:
        return _of_changes(pipeline, ledger, name, gold)
    routes = ledger.query(
        """
        SELECT "table", max(route) AS route, count(DISTINCT route) AS routes FROM ledger
        WHERE kind = 'table' GROUP BY "table"
        """
    )
    known = [row["table"] for row in routes]
    table = find_table(pipeline, name, known)
    if table is None:
        raise _unknown(pipeline, name, nearest_table(pipeline, name, [*known, *gold]))
    opened = open_table(pipeline, table)
    mine = next(row for row in routes if row["table"] == table)
    return TableSchema(
        table=table,
        kind=kind_of(pipeline, table),
        route=mine["route"] if mine["routes"] == 1 else None,
        version=opened.version(),
        columns=_columns(opened, ORIGIN_COLUMNS),
        history=tuple(recorded_changes(ledger, table)),
    )


def _of_gold(pipeline: Pipeline, table: str) -> TableSchema:
    """What a derived table has follows from its declaration: nothing happens to its columns."""
    opened = open_table(pipeline, table)
    return TableSchema(
        table=table,
        kind=TableKind.GOLD,
        route=None,
        version=opened.version(),
        columns=_columns(opened, ()),
        history=(),
    )


def _of_changes(
    pipeline: Pipeline, ledger: LedgerRows, name: str, gold: Collection[str]
) -> TableSchema:
    landed = ledger.query("""SELECT DISTINCT "table" FROM everything WHERE kind = 'table'""")
    following = read_following(ledger)
    plan = plan_of_names(pipeline, ledger)
    known = [*(row["table"] for row in landed), *following]
    by_source = {source_text(one.source): log for log, one in plan.known.items()}
    by_source |= {pattern_name(one.source): log for log, one in plan.known.items()}
    table = name if name in known else by_source.get(name)
    if table is None:
        raise _unknown(pipeline, name, nearest(name, [*known, *gold, *by_source]))
    opened = open_table(pipeline, table)
    log = following[table].log if table in following else None
    source = plan.known.get(log or table)
    return TableSchema(
        table=table,
        kind=kind_of(pipeline, table),
        route=None if source is None else source_text(source.source),
        version=opened.version(),
        columns=_columns(opened, _BESIDE_ROWS if source is not None else ()),
        history=tuple(recorded_changes(ledger, log or table)),
        follows=log,
    )


def _columns(table: DeltaTable, origin: Collection[str]) -> tuple[Column, ...]:
    return tuple(
        Column(field.name, type_name(field.type), field.name in origin)
        for field in pa.schema(table.schema())
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


def _unknown(pipeline: Pipeline, name: str, meant: str | None) -> LandingError:
    hint = f"did you mean `{meant}`?" if meant else "headgate tables lists them"
    message = f"nothing has landed in a table `{name}`"
    return LandingError("table-unknown", message, hint, where=pipeline.lake)
