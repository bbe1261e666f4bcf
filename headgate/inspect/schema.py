"""A table's columns now, and the changes that led to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headgate.cdc.history import VALIDITY
from headgate.cdc.source_tables import source_text
from headgate.config import PipelineConfig
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.errors import LandingError, nearest
from headgate.inspect.ledger import PipelineLedger, RecordedChange, open_ledger, recorded_changes
from headgate.inspect.tables import TableKind, kind_of, source_naming
from headgate.lake.ledger_entries import Kind
from headgate.lake.names import TableNames, pattern_name
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError, table_url
from headgate.notebook import ResultView
from headgate.schema.fit import type_name
from headgate.schema.origin import ORIGIN_COLUMNS

_METADATA_OF_CHANGES = LOG_COLUMN_NAMES | set(VALIDITY.names)


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    type: str
    origin: bool
    """Whether it is metadata about where the record or change came from."""


@dataclass(frozen=True)
class TableSchema(ResultView):
    """Columns now, and their history, the oldest change first."""

    table: str
    kind: TableKind
    route: str | None
    """For changes, the table of the source."""
    version: int
    columns: tuple[TableColumn, ...]
    history: tuple[RecordedChange, ...]
    """For a merged or history table, the changes of its change log."""
    follows: str | None = None
    """The change log that a merged or history table is made from."""


def read_table_schema(pipeline: PipelineConfig, name: str) -> TableSchema:
    """Find a table by its name, by its route, or by the name of its source table."""
    ledger = open_ledger(pipeline)
    gold = ledger.everything.tables(Kind.GOLD)
    if name in gold:
        return _of_gold(pipeline, name)
    if pipeline.lands_changes:
        return _of_changes(pipeline, ledger, name, gold)
    known = ledger.stream.tables(Kind.TABLE)
    table = find_table(pipeline, name, known)
    if table is None:
        raise unknown_table(pipeline, name, nearest_table(pipeline, name, [*known, *gold]))
    opened = open_table(pipeline, table)
    totals = known[table]
    return TableSchema(
        table=table,
        kind=kind_of(pipeline, table),
        route=totals.route if totals.routes == 1 else None,
        version=opened.version,
        columns=_columns(opened, ORIGIN_COLUMNS),
        history=tuple(recorded_changes(ledger, table)),
    )


def _of_gold(pipeline: PipelineConfig, table: str) -> TableSchema:
    """Describe a derived table, whose columns follow from its declaration and have no history."""
    opened = open_table(pipeline, table)
    return TableSchema(
        table=table,
        kind=TableKind.GOLD,
        route=None,
        version=opened.version,
        columns=_columns(opened, ()),
        history=(),
    )


def _of_changes(
    pipeline: PipelineConfig, ledger: PipelineLedger, name: str, gold: Collection[str]
) -> TableSchema:
    merged = ledger.everything.merged_tables()
    naming = source_naming(pipeline, ledger)
    known = [*ledger.landed, *merged]
    by_source = {source_text(one.source): log for log, one in naming.known.items()}
    by_source |= {pattern_name(one.source): log for log, one in naming.known.items()}
    table = name if name in known else by_source.get(name)
    if table is None:
        raise unknown_table(pipeline, name, nearest(name, [*known, *gold, *by_source]))
    opened = open_table(pipeline, table)
    log = merged[table].log if table in merged else None
    source = naming.known.get(log or table)
    return TableSchema(
        table=table,
        kind=kind_of(pipeline, table),
        route=None if source is None else source_text(source.source),
        version=opened.version,
        columns=_columns(opened, _METADATA_OF_CHANGES if source is not None else ()),
        history=tuple(recorded_changes(ledger, log or table)),
        follows=log,
    )


def _columns(table: Snapshot, origin: Collection[str]) -> tuple[TableColumn, ...]:
    return tuple(
        TableColumn(field.name, type_name(field.type), field.name in origin)
        for field in table.schema
    )


def find_table(pipeline: PipelineConfig, name: str, known: Collection[str]) -> str | None:
    """Return the table of that name or route."""
    if name in known:
        return name
    by_route = TableNames.of(pipeline).silver_for(name)
    return by_route if by_route in known else None


def nearest_table(pipeline: PipelineConfig, name: str, known: Collection[str]) -> str | None:
    """Return the table whose name or route is most like this one."""
    return nearest(name, known) or nearest(TableNames.of(pipeline).silver_for(name), known)


def open_table(pipeline: PipelineConfig, table: str) -> Snapshot:
    """Open a table that the ledger has."""
    try:
        snapshot = Snapshot.open(pipeline.lake, table)
    except (TableError, OSError) as error:
        message = f"table `{table}` cannot be read: {str(error).splitlines()[0]}"
    else:
        if snapshot is not None:
            return snapshot
        message = f"the ledger knows table `{table}`, but it is not in the lake"
    where = table_url(pipeline.lake, table)
    raise LandingError("lake-unreadable", message, "restore the table's folder", where=where)


def unknown_table(pipeline: PipelineConfig, name: str, meant: str | None) -> LandingError:
    """Return the error for a name that no table has."""
    hint = f"did you mean `{meant}`?" if meant else "headgate tables lists them"
    message = f"nothing has landed in a table `{name}`"
    return LandingError("table-unknown", message, hint, where=pipeline.lake)
