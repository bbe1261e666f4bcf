"""Source tables of a change pipeline: what is known of each, and the names of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.config import PipelineConfig
from headgate.envelopes.datastream.changes import SourceTable
from headgate.errors import LandingError, UsageError, did_you_mean, listed, shown
from headgate.lake.ledger_entries import Kind
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.log import read_entries
from headgate.lake.names import ChangeTables, pattern_name
from headgate.lake.open_tables import TableCache
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.streams import replay_name
from headgate.lake.tables import TableError

_MAX_WORKERS = 16
_BOUNDS = ("min._source_timestamp", "max._source_timestamp")
_MAX_CLOCK_SKEW = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class KnownSource:
    """A source table that has a change log."""

    source: SourceTable
    lineages: tuple[str, ...] = ()
    """Oldest first; each took over from the one before."""
    newest: datetime | None = None
    """Newest source timestamp in the log that is not in the future."""
    log: LogEnd | None = None
    """Where the log ends, if that is known."""

    def updated(self, later: KnownSource) -> KnownSource:
        """Return the source with what is known of it later."""
        times = [time for time in (self.newest, later.newest) if time is not None]
        lineages = later.lineages or self.lineages
        return KnownSource(self.source, lineages, max(times, default=None), later.log)


@dataclass(frozen=True)
class LogEnd:
    """A version of a change log, and a time after which it has no changes."""

    version: int
    time: int
    """Microseconds since 1970: it may be one that Python's times cannot represent."""

    @classmethod
    def of(cls, version: int, newest: pa.Array) -> LogEnd | None:
        """Return the end of a log, given the newest time of each file; None if one is unknown."""
        if newest.null_count:
            return None
        time = pc.max(newest.cast(pa.int64())).as_py()
        # Spark truncates the statistics of timestamps to milliseconds.
        return cls(version, _NO_TIME if time is None else time + 1_000)

    def after(self, files: Iterable[Mapping[str, Any]], version: int, url: str) -> LogEnd | None:
        """Return the end after a commit of files, given by their statistics.

        Others may have committed since, such as a replay, or maintenance.
        """
        between = range(self.version + 1, version)
        entries = list(read_entries(url, between)) if len(between) <= _MAX_BETWEEN else []
        if len(entries) < len(between):
            return None
        others = [json.loads(one.get("stats") or "{}") for entry in entries for one in entry.added]
        newest = [_bound(one, "max") for one in (*files, *others)]
        end = LogEnd.of(version, pa.array(newest, pa.timestamp("us", "UTC")))
        return end and replace(end, time=max(self.time, end.time))


_NO_TIME = -(1 << 63)
NEW_LOG = LogEnd(-1, _NO_TIME)
_MAX_BETWEEN = 20
"""Commits of others that are looked at: a log that gets more of them is opened."""


def source_in_files(files: Sequence[StagedFile]) -> KnownSource:
    """Return the source table of staged files of one log."""
    route = files[0].route
    assert route is not None
    lineages = max((file.lineages for file in files), default=())
    return KnownSource(source_of(route), lineages, newest_in(map(statistics_of, files)))


def statistics_of(file: StagedFile) -> Mapping[str, Any]:
    statistics: dict[str, Any] = json.loads(file.statistics)
    return statistics


def route_of(source: SourceTable) -> str:
    """Return an unambiguous text for a source table."""
    return json.dumps([source.database, source.schema, source.table], ensure_ascii=False)


def source_of(route: str) -> SourceTable:
    """Parse the text that `route_of` returns."""
    return SourceTable(*json.loads(route))


def source_text(source: SourceTable) -> str:
    """Return the source table as people write it, with its schema where it also has a database."""
    return ".".join(part for part in (source.database, source.schema, source.table) if part)


def known_logs(ledger: LedgerSnapshot, tables: TableCache) -> dict[str, KnownSource]:
    """Return every log in the ledger, with the time of its newest change."""
    sources = {
        entry.table: KnownSource(source_of(entry.route), entry.lineages)
        for entry in ledger.tables(Kind.TABLE).values()
        if entry.route is not None
    }
    with ThreadPoolExecutor(_MAX_WORKERS) as pool:
        return dict(pool.map(lambda one: (one[0], _opened(tables, *one)), sources.items()))


def known_logs_with_replays(
    pipeline: PipelineConfig, tables: TableCache | None = None
) -> dict[str, KnownSource]:
    """Return every log of the pipeline, also those that only a replay has created.

    They are opened for that, and stay open in the cache.
    """
    tables = tables or TableCache(pipeline.lake)
    sources: dict[str, KnownSource] = {}
    ledger = LedgerSnapshot.open(pipeline.lake, pipeline.ledger, pipeline.name)
    for name in (pipeline.name, replay_name(pipeline.name)):
        for table, found in known_logs(ledger.of(name), tables).items():
            sources[table] = _combine(sources[table], found) if table in sources else found
    return sources


def _combine(first: KnownSource, second: KnownSource) -> KnownSource:
    """Combine two records of one source; the one with more lineages is later."""
    earlier, later = sorted((first, second), key=lambda source: len(source.lineages))
    return earlier.updated(later)


def _opened(tables: TableCache, table: str, source: KnownSource) -> KnownSource:
    """Return the source with the times of its log, which is opened for that."""
    try:
        log = Snapshot.newest(tables.lake, table, tables)
    except TableError:
        return source
    if log is None:
        return source
    added = log.statistics()
    bounds = [
        added[one].cast(pa.timestamp("us", "UTC")) for one in _BOUNDS if one in added.column_names
    ]
    plausible = filter(None, map(newest_plausible, bounds))
    newest = bounds[-1].combine_chunks() if len(bounds) == len(_BOUNDS) else pa.nulls(1)
    end = LogEnd.of(log.version, newest)
    return replace(source, newest=max(plausible, default=None), log=end)


def newest_in(statistics: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the newest source timestamp in the statistics of files."""
    bounds = (one for file in statistics for one in (_bound(file, "min"), _bound(file, "max")))
    times = pa.array(filter(None, bounds), pa.timestamp("us", "UTC"))
    return newest_plausible(pa.chunked_array([times]))


def _bound(file: Mapping[str, Any], kind: str) -> datetime | None:
    """Return a bound of the source timestamps in the statistics of a file."""
    text = file.get(f"{kind}Values", {}).get("_source_timestamp")
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")) if text else None


def microseconds(time: datetime) -> int:
    """Return the time since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def newest_plausible(times: pa.ChunkedArray) -> datetime | None:
    """Return the newest timestamp, except those of the future.

    They come from a wrong clock or a wrong value, and would make all other changes too old.
    """
    limit = pa.scalar(datetime.now(UTC) + _MAX_CLOCK_SKEW, pa.timestamp("us", "UTC"))
    newest: datetime | None = pc.max(times.filter(pc.less_equal(times, limit))).as_py()
    return newest


@dataclass(frozen=True)
class SourceNaming:
    """How the tables of sources are named, given the sources that have change logs."""

    tables: ChangeTables
    known: Mapping[str, KnownSource]
    """By change log."""

    def tables_of(self, source: SourceTable) -> ChangeTables:
        """Return the names of a source's tables: short ones, unless another source has them."""
        owner = self.known.get(self.tables.log_for(source))
        return self.tables if owner is None or owner.source == source else self.tables.apart

    def names_of_route(self, route: str) -> frozenset[str]:
        """Return the other names of a route: its tables and its source table."""
        source = source_of(route)
        tables = self.tables_of(source)
        names = (
            tables.log_for(source),
            tables.merged_for(source),
            tables.history_for(source),
            pattern_name(source),
            source_text(source),
        )
        return frozenset(name for name in names if name is not None)


@dataclass(frozen=True)
class SourceTableNames:
    """A source table, and the names of its tables in the lake."""

    known: KnownSource
    log: str
    merged: str | None
    history: str | None
    tombstones: str
    key: tuple[str, ...] | None
    """Declared by the pipeline."""

    @property
    def name(self) -> str:
        return pattern_name(self.known.source)

    @property
    def in_lake(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.merged, self.log, self.history)))

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, in the lake and at the source."""
        source = self.known.source
        by_schema = f"{source.schema}.{source.table}" if source.schema else self.name
        return (*self.in_lake, self.name, by_schema, f"{source.database}.{by_schema}")


def known_sources(pipeline: PipelineConfig) -> list[SourceTableNames]:
    """Return all source tables in the ledger, by the names of their logs."""
    naming = SourceNaming(ChangeTables.of(pipeline), known_logs_with_replays(pipeline))
    found = []
    for log, source in sorted(naming.known.items()):
        table = source.source
        names = naming.tables_of(table)
        key = pipeline.datastream.key_of(pattern_name(table))
        merged, history = names.merged_for(table), names.history_for(table)
        deleted = names.tombstones_for(table)
        found.append(SourceTableNames(source, log, merged, history, deleted, key))
    return found


def find_source(sources: Sequence[SourceTableNames], name: str) -> SourceTableNames:
    """Return the source table with this name.

    Names in the lake go before names at the source, and an exact match before one that ignores
    case.
    """
    for normalize in (str, str.lower):
        for names in (attrgetter("in_lake"), attrgetter("names")):
            found = [
                source for source in sources if normalize(name) in map(normalize, names(source))
            ]
            if len(found) == 1:
                return found[0]
            if found:
                raise UsageError(
                    "bad-argument",
                    f"{shown(name)} matches {len(found)} source tables",
                    hint=f"name its change log: {listed(source.log for source in found)}",
                )
    candidates = [candidate for source in sources for candidate in source.names]
    raise LandingError(
        "table-unknown",
        f"unknown table {shown(name)}: none of its changes has landed",
        hint=did_you_mean(name, candidates) or "headgate tables lists all tables",
    )
