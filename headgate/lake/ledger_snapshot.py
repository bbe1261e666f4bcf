"""What the ledger says: one version of it, read for one or more pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headgate.errors import LandingError
from headgate.lake.ledger_entries import (
    LEDGER,
    EntryType,
    Kind,
    LayoutEntry,
    LedgerRow,
    MergeEntry,
    OfTable,
    PendingEntry,
    SchemaEntry,
    columns_of,
    decode_entry,
)
from headgate.lake.query import python_rows, query_table, quoted
from headgate.lake.staged import ExpectationResult
from headgate.lake.storage import require_reachable
from headgate.lake.streams import (
    Layout,
    app_id,
    followed_app,
    layout_app,
    pipeline_of,
    replay_name,
    totals_app,
)
from headgate.lake.tables import TableError, open_table, table_url
from headgate.schema.changes import DropColumn, SchemaHistory

_OF_PREDICTIONS = (Kind.PREDICTION, Kind.ACCURACY, Kind.TRAINING)
_IN_CATALOG = (Kind.CATALOG, Kind.GRANTS)
_NOT_OF_A_BATCH = (
    *(Kind.LAYOUT, Kind.START, Kind.RUN, Kind.MERGED, Kind.GOLD, *_IN_CATALOG),
    *_OF_PREDICTIONS,
)
"""Rows that are also written between batches, and do not list the files that are pending."""

_SUMMED = (
    *(Kind.TABLE, Kind.MERGED, Kind.GOLD, Kind.EXPECTATION, Kind.BATCH, *_IN_CATALOG),
    *_OF_PREDICTIONS,
)
"""Rows that totals sum up, by the columns that tell them apart."""
_GROUPED = ("pipeline", "kind", "table", "route", "rule", "on_fail")
_SUMS = (
    *("rows", "bytes", "files", "unknown_fields"),
    *("inserted", "updated", "deleted", "checked", "failed", "fallback"),
)


_MAX_READS = 3
"""How often a query is tried on ever newer versions."""
_READ_ERRORS = (TableError, OSError, pa.ArrowException)


@dataclass(frozen=True)
class TableTotals:
    """Everything recorded for one table, added up."""

    table: str
    kinds: frozenset[Kind]
    route: str | None
    routes: int
    """Number of routes; only bronze has more than one."""
    rows: int
    bytes: int
    files: int
    table_version: int
    version: int
    """The newest batch of the stream, or of replays if the stream has none."""
    at: datetime
    lineages: tuple[str, ...]
    """As last recorded."""


@dataclass(frozen=True)
class Totals:
    """A number of batches or rows, and the newest of them."""

    count: int
    version: int | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class MergedFrom:
    """The change log that a table is merged from, and the version that it is merged up to."""

    log: str
    log_version: int


class LedgerSnapshot:
    """One version of the ledger, read for one or more pipelines.

    This is the only reader. Filters on pipeline, kind, table and version are pushed down to Delta,
    and a read takes only the columns that it needs.
    """

    def __init__(self, path: str, table: DeltaTable | None, pipelines: Sequence[str]) -> None:
        self._path = path
        self._table = table
        self._pipelines = tuple(pipelines)

    @classmethod
    def open(cls, lake: str, ledger: str, *pipelines: str) -> LedgerSnapshot:
        """Open the newest version; a ledger that does not exist has no rows."""
        path = table_url(lake, ledger)
        try:
            return cls(path, open_table(path), pipelines)
        except (TableError, OSError) as error:
            raise _unreadable(path, error) from error

    @classmethod
    def open_all(cls, lake: str, ledger: str, pipeline: str) -> LedgerSnapshot:
        """Open the newest version for all streams of a pipeline, and for its replays."""
        of_one = cls.open(lake, ledger, pipeline)
        return of_one.of(*of_one.streams, replay_name(pipeline))

    @property
    def table(self) -> str:
        """The name of the ledger."""
        return self._path.rpartition("/")[2]

    def of(self, *pipelines: str) -> LedgerSnapshot:
        """Return the same version, read for other pipelines."""
        return LedgerSnapshot(self._path, self._table, pipelines)

    @property
    def names(self) -> tuple[str, ...]:
        """The pipelines, streams and replays that it is read for."""
        return self._pipelines

    def all_names(self) -> list[str]:
        """Return every pipeline, stream and replay that the ledger has rows of."""
        if self._table is None:
            return []
        found = query_table(self._table, "SELECT DISTINCT pipeline FROM stored ORDER BY pipeline")
        return [row["pipeline"] for row in python_rows(found)]

    def streams_by_table(self) -> dict[str, set[str]]:
        """Return which pipelines, streams and replays the ledger has rows of, by table."""
        if self._table is None:
            return {}
        sql = 'SELECT DISTINCT pipeline, "table" FROM stored WHERE "table" IS NOT NULL'
        streams: dict[str, set[str]] = {}
        for row in python_rows(query_table(self._table, sql)):
            streams.setdefault(row["table"], set()).add(row["pipeline"])
        return streams

    @property
    def each(self) -> list[LedgerSnapshot]:
        """The same version, read for each of the pipelines."""
        return [self.of(name) for name in self._pipelines]

    @property
    def name(self) -> str:
        """The pipeline, of a snapshot for one."""
        (pipeline,) = self._pipelines
        return pipeline

    @cached_property
    def layouts(self) -> list[Layout]:
        """All layouts of one pipeline; the last is that of now."""
        first = Layout(0, 1)
        if self._marked(layout_app(app_id(self.name))) is None:
            return [first]
        rows = self.entries(LayoutEntry)
        return [first, *(_layout(row) for row in rows)]

    @property
    def all_streams(self) -> LedgerSnapshot:
        """The same version for all streams of the pipeline that this stream or replay is of."""
        return self.of(*self.of(pipeline_of(self.name)).streams)

    @property
    def streams(self) -> list[str]:
        """The streams of one pipeline, of all layouts."""
        return [stream for layout in self.layouts for stream in layout.streams(self.name)]

    @cached_property
    def landed(self) -> int | None:
        """The newest complete version, of a snapshot for one pipeline."""
        return self._marked(app_id(self.name))

    @cached_property
    def totals_at(self) -> int | None:
        """The version whose commit has the newest totals, of a snapshot for one pipeline."""
        return self._marked(totals_app(app_id(self.name)))

    @cached_property
    def followed(self) -> int | None:
        """The newest batch that all merged and derived tables include, of one pipeline."""
        return self._marked(followed_app(app_id(self.name)))

    def entries(
        self, kind: type[EntryType], *, table: str | None = None, since: int | None = None
    ) -> list[LedgerRow[EntryType]]:
        """Return all rows of one kind, the oldest first."""
        where = _where((kind.kind,), table, since)
        return self._rows(kind, f"FROM mine WHERE {where} ORDER BY version, at")

    def newest(
        self, kind: type[EntryType], since: int | None = None
    ) -> LedgerRow[EntryType] | None:
        """Return the row of the newest version; of several in one version, the last written."""
        where = _where((kind.kind,), since=since)
        rows = self._rows(kind, f"FROM mine WHERE {where} ORDER BY version DESC, at DESC LIMIT 1")
        return rows[0] if rows else None

    def last_outcomes(self, kind: type[OfTable]) -> list[LedgerRow[OfTable]]:
        """Return the last success and the last failure of each table, in order of time."""
        last = _last_of_each('"table", error IS NULL', _where((kind.kind,)))
        return self._rows(kind, f'{last} ORDER BY "table", at')

    def merged_tables(self) -> dict[str, MergedFrom]:
        """Return the merged and history tables, by name."""
        return {
            row.entry.table: MergedFrom(row.entry.log, row.entry.log_version)
            for row in self.last_outcomes(MergeEntry)
            if row.entry.log_version is not None
        }

    def tables(
        self, *kinds: Kind, table: str | None = None, since: int | None = None
    ) -> dict[str, TableTotals]:
        """Return the totals of each table that has rows of these kinds, by name.

        A derived table that was never updated, and only failed to be, is not among them.
        """
        wanted = kinds or (Kind.TABLE, Kind.MERGED, Kind.GOLD, Kind.PREDICTION)
        replays = [one for one in self._pipelines if one.endswith(replay_name(""))]
        of_stream = _not_in("pipeline", replays)
        found = self._query(
            f"""
            SELECT
                "table",
                array_agg(DISTINCT kind) AS kinds,
                max(route) AS route,
                count(DISTINCT route) AS routes,
                coalesce(sum("rows"), 0) AS "rows",
                coalesce(sum(bytes), 0) AS bytes,
                coalesce(sum(files), 0) AS files,
                last_value(table_version ORDER BY at, version) AS table_version,
                -- Replays count their versions separately.
                coalesce(max(version) FILTER (WHERE {of_stream}), max(version)) AS version,
                max(at) AS at,
                last_value(lineages ORDER BY version, at)
                    FILTER (WHERE lineages IS NOT NULL) AS lineages
            FROM mine
            WHERE {_where(wanted, table, since)} AND table_version IS NOT NULL
            GROUP BY "table" ORDER BY "table"
            """
        )
        return {
            row["table"]: TableTotals(
                **{
                    **row,
                    "kinds": frozenset(map(Kind, row["kinds"])),
                    "lineages": tuple(row["lineages"] or ()),
                }
            )
            for row in found
        }

    def table_versions(self) -> dict[str, int]:
        """Return the Delta version of each table after its last batch."""
        last = _last_of_each('"table"', _where((Kind.TABLE,)), order="version DESC, at DESC")
        found = self._query(f'SELECT "table", table_version {last}')
        return {row["table"]: row["table_version"] for row in found}

    def schema_ids(self) -> dict[str, set[int]]:
        """Return the schemas of the records that each table got."""
        found = self._query(
            f"""
            SELECT DISTINCT "table", unnest(schema_ids) AS schema_id FROM mine
            WHERE {_where((Kind.TABLE,))} AND schema_ids IS NOT NULL
            """
        )
        ids: dict[str, set[int]] = {}
        for row in found:
            ids.setdefault(row["table"], set()).add(row["schema_id"])
        return ids

    def schema_history(self) -> SchemaHistory:
        """Return which schemas each table has met, and which columns they dropped."""
        history = SchemaHistory()
        for row in self.entries(SchemaEntry):
            record_change(history, row.entry)
        return history

    def pending(self) -> list[LedgerRow[PendingEntry]]:
        """Return the files that are pending after the newest batch, in the order of their tables.

        Every batch tries them again, and so does every start of a run, which writes under the
        version of the last batch: the last of these commits has all that are still pending.
        """
        if self.landed is None:
            return []
        others = _not_in("kind", _NOT_OF_A_BATCH)
        return self._rows(
            PendingEntry,
            f"""
            FROM mine WHERE {_where((Kind.PENDING,), since=self.landed)} AND at = (
                SELECT max(at) FROM mine WHERE version >= {self.landed} AND {others}
            )
            ORDER BY "table"
            """,
        )

    def expectations(self) -> tuple[ExpectationResult, ...]:
        """Return the totals of each expectation; those that most rows failed come first."""
        found = self._query(
            f"""
            SELECT "table", rule, on_fail, sum(checked) AS checked, sum(failed) AS failed
            FROM mine WHERE {_where((Kind.EXPECTATION,))}
            GROUP BY "table", rule, on_fail ORDER BY failed DESC, "table", rule, on_fail
            """
        )
        return tuple(ExpectationResult(**row) for row in found)

    def batches(self) -> Totals:
        found = self._query(
            f"""
            SELECT coalesce(sum(coalesce(batches, 1)), 0) AS count, max(version) AS version,
                last_value(at ORDER BY version, at) AS at
            FROM mine WHERE {_where((Kind.BATCH,))}
            """
        )
        return Totals(**found[0]) if found else Totals(0)

    def totals(self) -> pa.Table:
        """Return rows that stand for all rows so far, in the columns of the ledger.

        Schema changes and lost files stay as they are; of the others, each table keeps its sums
        and its last values. Rows whose meaning ends with the next batch are left out.
        """
        if self._table is None:
            return LEDGER.empty_table()
        grouped = ", ".join(f'"{name}"' for name in _GROUPED)
        values = ", ".join(
            _total_of(field) for field in LEDGER if field.name not in (*_GROUPED, "last_version")
        )
        columns = ", ".join(f'"{name}"' for name in LEDGER.names if name != "last_version")
        sql = f"""
            SELECT {grouped}, max(version) AS last_version, {values}
            FROM mine WHERE {_in("kind", _SUMMED)} GROUP BY {grouped}, error IS NULL
            UNION ALL BY NAME
            SELECT {columns}, version AS last_version
            FROM mine WHERE {_where((Kind.SCHEMA, Kind.LOST, Kind.LAYOUT))}
            UNION ALL BY NAME
            SELECT {columns}, version AS last_version
            {_last_of_each("pipeline", _where((Kind.START,)), order="version DESC, at DESC")}
        """
        return self._arrow(sql).select(LEDGER.names).cast(LEDGER)

    def _rows(self, kind: type[EntryType], clauses: str) -> list[LedgerRow[EntryType]]:
        columns = ("pipeline", "version", "batch", "at", *columns_of(kind))
        if self._table is None:
            return []
        known = {field.name for field in self._table.schema().fields}
        # A column that is newer than the ledger is null in all of its rows.
        selected = ", ".join(
            f'"{name}"' if name in known else f'NULL AS "{name}"' for name in columns
        )
        return [
            LedgerRow(
                row["pipeline"], row["version"], row["batch"], row["at"], decode_entry(kind, row)
            )
            for row in self._query(f"SELECT {selected} {clauses}")
        ]

    def _query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query over `mine`, as Python values."""
        return [] if self._table is None else python_rows(self._arrow(sql))

    def _arrow(self, sql: str) -> pa.Table:
        """Return the rows of a query over `mine`: totals of these pipelines, and the rows since.

        Totals have the versions of the rows that they stand for.
        """
        assert self._table is not None
        versions = "coalesce(last_version, version) AS version"
        mine = f"SELECT * REPLACE ({versions}) FROM stored WHERE {self._since_totals}"
        text = f"WITH mine AS ({mine}) {sql}"
        try:
            for _ in range(_MAX_READS - 1):
                with suppress(*_READ_ERRORS):
                    return query_table(self._table, text)
                # Its files may have been compacted and deleted; a newer version has their rows.
                self._table = open_table(self._path) or self._table
            return query_table(self._table, text)
        except _READ_ERRORS as error:
            raise _unreadable(self._path, error) from error

    @cached_property
    def _since_totals(self) -> str:
        conditions = []
        for pipeline in self._pipelines:
            at = self._marked(totals_app(app_id(pipeline)))
            since = "" if at is None else f" AND version >= {at}"
            conditions.append(f"(pipeline = {quoted(pipeline)}{since})")
        return " OR ".join(conditions)

    def _marked(self, app: str) -> int | None:
        return None if self._table is None else self._table.transaction_version(app)


def _layout(row: LedgerRow[LayoutEntry]) -> Layout:
    entry = row.entry
    return Layout(row.batch, entry.shards, entry.source_end, entry.source_ids)


def record_change(history: SchemaHistory, entry: SchemaEntry) -> None:
    """Add a schema change to the history of its table."""
    dropped = entry.column if entry.change == DropColumn.__name__ else None
    history.record(entry.table, entry.schema_ids, dropped)


def _where(kinds: Sequence[Kind], table: str | None = None, since: int | None = None) -> str:
    conditions = [_in("kind", kinds)]
    if table is not None:
        conditions.append(f'"table" = {quoted(table)}')
    if since is not None:
        conditions.append(f"version >= {since}")
    return " AND ".join(conditions)


def _total_of(field: pa.Field) -> str:
    """Return the expression for a column of totals: its sum, all of its values, or the last."""
    name = f'"{field.name}"'
    if field.name in _SUMS:
        return f"sum({name}) AS {name}"
    if field.name == "batches":
        return f"sum(CASE WHEN kind = '{Kind.BATCH}' THEN coalesce(batches, 1) END) AS batches"
    if field.name == "schema_ids":
        lists = f"array_agg({name}) FILTER (WHERE {name} IS NOT NULL)"
        return f"array_sort(array_distinct(flatten({lists}))) AS {name}"
    if field.name == "lineages":
        return (
            f"last_value({name} ORDER BY version, at) FILTER (WHERE {name} IS NOT NULL) AS {name}"
        )
    return f"last_value({name} ORDER BY version, at) AS {name}"


def _in(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(map(quoted, values))})"


def _not_in(column: str, values: Sequence[str]) -> str:
    return f"{column} NOT IN ({', '.join(map(quoted, values))})" if values else "true"


def _last_of_each(
    group: str, where: str, order: str = "at DESC, version DESC, table_version DESC"
) -> str:
    """Return the clauses of a query for the last row of each group."""
    return f"""
        FROM (
            SELECT *, row_number() OVER (PARTITION BY {group} ORDER BY {order}) AS place
            FROM mine WHERE {where}
        ) WHERE place = 1
    """


def _unreadable(path: str, error: Exception) -> LandingError:
    require_reachable(path)
    return LandingError(
        "lake-unreadable",
        f"the ledger cannot be read: {str(error).splitlines()[0]}",
        hint="check `lake`, and that you may read the folder",
        where=path,
    )
