"""The tables of a pipeline: their kinds, the routes that lead to them, and a line for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import TypeVar

from headgate.cdc.source_tables import KnownSource, SourceNaming, source_of, source_text
from headgate.config import PipelineConfig
from headgate.config.gold import is_declared_gold
from headgate.config.pipeline import FILES_TABLE
from headgate.inspect.ledger import PipelineLedger, RecordedChange, open_ledger, recorded_changes
from headgate.lake.ledger_entries import Kind, MergeEntry
from headgate.lake.ledger_snapshot import MergedFrom
from headgate.lake.names import ChangeTables, TableNames
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError
from headgate.quarantine.snapshot import NamesOfRoute

_MAX_WORKERS = 8

Key = TypeVar("Key")
Value = TypeVar("Value")


def map_parallel(function: Callable[[Key], Value], keys: Iterable[Key]) -> dict[Key, Value]:
    """Return the result for each key; the first exception is raised."""
    wanted = list(keys)
    with ThreadPoolExecutor(_MAX_WORKERS) as pool:
        return dict(zip(wanted, pool.map(function, wanted), strict=True))


class TableKind(StrEnum):
    """What a table holds."""

    SILVER = "silver"
    BRONZE = "bronze"
    LOG = "log"
    MERGED = "merged"
    HISTORY = "history"
    GOLD = "gold"
    PREDICTIONS = "predictions"
    QUARANTINE = "quarantine"
    FILES = "files"

    @property
    def is_landed_in(self) -> bool:
        """Whether it is one of the many tables that the source's records or changes land in."""
        return self in (TableKind.SILVER, TableKind.LOG)

    @property
    def is_derived(self) -> bool:
        """Whether it is made from a change log."""
        return self in (TableKind.MERGED, TableKind.HISTORY)

    @property
    def is_own(self) -> bool:
        """Whether every pipeline has exactly one of it."""
        many = self.is_landed_in or self.is_derived
        return not many and self not in (TableKind.GOLD, TableKind.PREDICTIONS)


def kind_of(pipeline: PipelineConfig, table: str) -> TableKind:
    if table == pipeline.quarantine_table:
        return TableKind.QUARANTINE
    if is_declared_gold(pipeline.gold, table):
        return TableKind.GOLD
    if table in pipeline.prediction_tables.values():
        return TableKind.PREDICTIONS
    if pipeline.lands_changes:
        if table == FILES_TABLE:
            return TableKind.FILES
        return TableKind(ChangeTables.of(pipeline).kind_of(table) or TableKind.LOG)
    return TableKind.BRONZE if table == pipeline.bronze else TableKind.SILVER


def landed_tables(pipeline: PipelineConfig) -> list[str]:
    """Return the silver tables or change logs in the lake, whether or not the ledger has them."""
    if pipeline.lands_changes:
        return ChangeTables.of(pipeline).logs_in(pipeline.lake)
    return TableNames.of(pipeline).silver_in(pipeline.lake)


def source_naming(pipeline: PipelineConfig, ledger: PipelineLedger) -> SourceNaming:
    """Return how the source tables in the ledger are named."""
    known = {
        one.table: KnownSource(source_of(one.route))
        for one in ledger.landed.values()
        if one.route is not None
    }
    return SourceNaming(ChangeTables.of(pipeline), known)


def names_of_route(pipeline: PipelineConfig) -> NamesOfRoute:
    """Return a function for the other names by which a person may select a route."""
    if pipeline.lands_changes:
        return _names_of_source(pipeline)
    tables = TableNames.of(pipeline)
    return lambda route: (tables.silver_for(route),)


def _names_of_source(pipeline: PipelineConfig) -> NamesOfRoute:
    @cache
    def naming() -> SourceNaming:
        return source_naming(pipeline, open_ledger(pipeline))

    def names(route: str) -> Collection[str]:
        return naming().names_of_route(route)

    return names


def shown_route(pipeline: PipelineConfig, route: str | None) -> str | None:
    """Return a route for display: for changes, the name of the source table."""
    if route is None or not pipeline.lands_changes:
        return route
    return source_text(source_of(route))


def merge_errors(ledger: PipelineLedger) -> dict[str, str]:
    """Return why merged and history tables are behind, for those whose last merge failed."""
    errors: dict[str, str] = {}
    for row in ledger.everything.last_outcomes(MergeEntry):
        errors.pop(row.entry.table, None)
        if row.entry.error is not None:
            errors[row.entry.table] = row.entry.error
    return errors


def tables_behind(pipeline: PipelineConfig, ledger: PipelineLedger) -> tuple[str, ...]:
    """Return the merged and history tables that are behind their change logs, by name."""
    merged = ledger.everything.merged_tables()
    naming = source_naming(pipeline, ledger)
    behind: set[str] = set()
    for log, known in naming.known.items():
        source, names = known.source, naming.tables_of(known.source)
        wanted = [table for table in (names.merged_for(source), names.history_for(source)) if table]
        made = [table for table in wanted if table in merged]
        behind |= {
            table for table in made if merged[table].log_version < ledger.landed[log].table_version
        }
        if not made:
            # A table without a key has no history, so only the first is certain to be made.
            behind.update(wanted[:1])
    return tuple(sorted(behind))


@dataclass(frozen=True)
class TableSummary:
    """A table according to the ledger and to its own Delta log."""

    table: str
    kind: TableKind
    route: str | None
    """For changes, the table of the source."""
    rows: int
    """Rows landed; for merged, history and derived tables, the rows that they have now."""
    files: int
    """Files landed; compaction may have joined them since."""
    bytes: int
    columns: int | None
    """None if the table cannot be opened."""
    version: int
    last_batch: int
    last_at: datetime
    last_change: RecordedChange | None
    log: str | None = None
    """The change log that a merged or history table is made from."""
    behind: bool = False
    """Whether its change log has changes that it does not have."""


@dataclass(frozen=True)
class _Content:
    """What a table's own Delta log says."""

    columns: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def read_tables(pipeline: PipelineConfig) -> list[TableSummary]:
    """Return the tables that the source's records land in and those merged from them, then derived
    tables, then the pipeline's own."""
    ledger = open_ledger(pipeline)
    last_changes = {change.table: change for change in recorded_changes(ledger)}
    totals = ledger.everything.tables()
    merged: dict[str, MergedFrom] = {}
    behind: tuple[str, ...] = ()
    if pipeline.lands_changes:
        merged, behind = ledger.everything.merged_tables(), tables_behind(pipeline, ledger)
    # Rows come and go in these tables, so the rows recorded do not add up to the rows there are.
    made = {table for table, one in totals.items() if _recorded_kind(one.kinds) is not None}
    counted = made | merged.keys()
    contents = map_parallel(lambda table: _content(pipeline.lake, table, table in counted), totals)
    found = []
    for table, one in totals.items():
        content = contents[table]
        kind = _recorded_kind(one.kinds) or kind_of(pipeline, table)
        log = merged[table].log if table in merged else None
        route = one.route if log is None or log not in totals else totals[log].route
        found.append(
            TableSummary(
                table=table,
                kind=kind,
                route=None if kind.is_own else shown_route(pipeline, route),
                rows=one.rows if content.rows is None else content.rows,
                files=one.files if content.files is None else content.files,
                bytes=one.bytes if content.bytes is None else content.bytes,
                columns=content.columns,
                version=one.table_version,
                last_batch=one.version,
                last_at=one.at,
                last_change=last_changes.get(table),
                log=log,
                behind=table in behind,
            )
        )
    return sorted(found, key=_place)


def _recorded_kind(kinds: Collection[Kind]) -> TableKind | None:
    """Return the kind of a table that the pipeline file may no longer declare."""
    if Kind.GOLD in kinds:
        return TableKind.GOLD
    return TableKind.PREDICTIONS if Kind.PREDICTION in kinds else None


def _place(table: TableSummary) -> tuple[bool, bool, str, int, str]:
    """Sort tables that are merged from a change log right after it."""
    kind = list(TableKind).index(table.kind)
    is_gold = table.kind in (TableKind.GOLD, TableKind.PREDICTIONS)
    return table.kind.is_own, is_gold, table.log or table.table, kind, table.table


def _content(lake: str, table: str, count_rows: bool) -> _Content:
    try:
        snapshot = Snapshot.open(lake, table)
        if snapshot is None:
            return _Content()
        columns = len(snapshot.schema)
        if not count_rows:
            return _Content(columns)
        return _Content(
            columns,
            rows=snapshot.row_count(),
            files=len(snapshot.sizes),
            bytes=snapshot.bytes,
        )
    except (TableError, OSError):
        return _Content()
