"""The tables of a pipeline, one line each."""

from __future__ import annotations

import json
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.cdc.known_source import KnownSource, source_of
from headgate.cdc.plan import ChangePlan, source_text
from headgate.config import Pipeline
from headgate.inspect.ledger import LedgerRows, RecordedChange, recorded_changes
from headgate.inspect.own_tables import TableKind, kind_of
from headgate.lake.names import TableNames
from headgate.quarantine.snapshot import NamesOfRoute

_LOGS = """
SELECT "table", max(route) AS route FROM everything
WHERE kind = 'table' AND route IS NOT NULL GROUP BY "table"
"""


def plan_of_names(pipeline: Pipeline, ledger: LedgerRows) -> ChangePlan:
    """A plan that knows which logs there are and whose they are, and no more of them."""
    logs = {row["table"]: row["route"] for row in ledger.query(_LOGS)}
    known = {table: KnownSource(source_of(route)) for table, route in logs.items()}
    return replace(ChangePlan.of(pipeline), known=known)


def names_of_route(pipeline: Pipeline) -> NamesOfRoute:
    """What a person may call a route, beside itself."""
    if not pipeline.lands_changes:
        tables = TableNames.of(pipeline)
        return lambda route: (tables.silver_for(route),)

    @cache
    def plan() -> ChangePlan:
        assert pipeline.lands_changes
        return plan_of_names(pipeline, LedgerRows(pipeline))

    def names(route: str) -> Collection[str]:
        return plan().names_of_route(route)

    return names


def shown_route(pipeline: Pipeline, route: str | None) -> str | None:
    """A route as a person reads it: that of changes names a table of the source."""
    if route is None or not pipeline.lands_changes:
        return route
    return source_text(source_of(route))


_LAST_WORD = """
SELECT "table", detail FROM (
    SELECT "table", detail, row_number() OVER (
        PARTITION BY "table" ORDER BY at DESC, table_version DESC
    ) AS place
    FROM everything WHERE kind = 'merged'
) WHERE place = 1
"""
_LOG_VERSIONS = """
SELECT "table", max(table_version) AS version FROM everything
WHERE kind = 'table' AND route IS NOT NULL GROUP BY "table"
"""


@dataclass(frozen=True)
class Following:
    """The change log that a table is made of, and the version of it that it has."""

    log: str
    log_version: int


def read_following(ledger: LedgerRows) -> dict[str, Following]:
    """By merged or history table."""
    told = {row["table"]: json.loads(row["detail"]) for row in ledger.query(_LAST_WORD)}
    return {
        table: Following(str(detail["log"]), int(detail["log_version"]))
        for table, detail in told.items()
    }


def tables_behind(pipeline: Pipeline, ledger: LedgerRows) -> tuple[str, ...]:
    """Those that the pipeline wants and that do not have all of their logs, by name."""
    following = read_following(ledger)
    plan = plan_of_names(pipeline, ledger)
    behind: set[str] = set()
    for row in ledger.query(_LOG_VERSIONS):
        source = plan.known[row["table"]].source
        names = plan.tables_of(source)
        wanted = [table for table in (names.merged_for(source), names.history_for(source)) if table]
        made = [table for table in wanted if table in following]
        behind |= {table for table in made if following[table].log_version < row["version"]}
        if not made:
            # Of one without a key there is no history, so only the first is sure to come.
            behind.update(wanted[:1])
    return tuple(sorted(behind))


_SIDE_BY_SIDE = 8
_ONE_ROW_A_TABLE = """
SELECT
    "table",
    max(route) AS route,
    sum("rows") AS "rows",
    sum(files) AS files,
    sum(bytes) AS bytes,
    max(table_version) AS table_version,
    -- Replays count their versions apart.
    coalesce(max(version) FILTER (WHERE pipeline NOT LIKE '%:replay'), max(version)) AS version,
    max(at) AS at,
    bool_or(kind = 'gold') AS is_gold
FROM everything
-- A derived table that could not follow has a row without a version.
WHERE kind IN ('table', 'merged') OR (kind = 'gold' AND table_version IS NOT NULL)
GROUP BY "table"
"""


@dataclass(frozen=True)
class TableSummary:
    """A table as ledger and log tell of it."""

    table: str
    kind: TableKind
    route: str | None
    """Of changes: the table of the source."""
    rows: int
    """Those that landed; of merged, history and derived tables, those that there are now."""
    files: int
    """Files that were landed; compaction may have joined them since."""
    bytes: int
    columns: int | None
    """None where the table cannot be opened."""
    version: int
    last_batch: int
    last_at: datetime
    last_change: RecordedChange | None
    log: str | None = None
    """The change log that a merged or history table follows."""
    behind: bool = False
    """Whether its log has more than it has."""


@dataclass(frozen=True)
class _Now:
    """What a table's own log says."""

    columns: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def read_tables(pipeline: Pipeline) -> list[TableSummary]:
    """Those that the source's records came to and what is made of them; then derived tables; then
    the pipeline's own."""
    ledger = LedgerRows(pipeline)
    last_changes = {change.table: change for change in recorded_changes(ledger)}
    rows = {row["table"]: row for row in ledger.query(_ONE_ROW_A_TABLE)}
    following: dict[str, Following] = {}
    behind: tuple[str, ...] = ()
    if pipeline.lands_changes:
        following, behind = read_following(ledger), tables_behind(pipeline, ledger)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        now = pool.map(
            lambda row: _look(
                pipeline.lake, row["table"], row["is_gold"] or row["table"] in following
            ),
            rows.values(),
        )
    found = []
    for (table, row), seen in zip(rows.items(), now, strict=True):
        # Also where the file no longer declares it.
        kind = TableKind.GOLD if row["is_gold"] else kind_of(pipeline, table)
        log = following[table].log if table in following else None
        origin = row if log is None else rows.get(log, row)
        found.append(
            TableSummary(
                table=table,
                kind=kind,
                route=None if kind.is_own else shown_route(pipeline, origin["route"]),
                rows=_first(seen.rows, row["rows"]),
                files=_first(seen.files, row["files"]),
                bytes=_first(seen.bytes, row["bytes"]),
                columns=seen.columns,
                version=row["table_version"],
                last_batch=row["version"],
                last_at=row["at"],
                last_change=last_changes.get(table),
                log=log,
                behind=table in behind,
            )
        )
    return sorted(found, key=_place)


def _place(table: TableSummary) -> tuple[bool, bool, str, int, str]:
    """What is made of a log comes right after it."""
    kind = list(TableKind).index(table.kind)
    is_gold = table.kind is TableKind.GOLD
    return table.kind.is_own, is_gold, table.log or table.table, kind, table.table


def _look(lake: str, table: str, counted: bool) -> _Now:
    """Rows come and go in tables that follow others: what landed says little of how many."""
    try:
        opened = DeltaTable(str(Path(lake, table)))
        columns = len(opened.schema().fields)
        if not counted:
            return _Now(columns)
        # By its stream, because pyarrow's own functions ask pandas what it is.
        added = pa.RecordBatchReader.from_stream(opened.get_add_actions()).read_all()
    except (DeltaError, OSError):
        return _Now()
    sizes = {name: added[name].to_pylist() for name in ("num_records", "size_bytes")}
    return _Now(
        columns,
        rows=sum(map(int, sizes["num_records"])),
        files=len(added),
        bytes=sum(map(int, sizes["size_bytes"])),
    )


def _first(*amounts: int | None) -> int:
    return next((amount for amount in amounts if amount is not None), 0)
