"""Rows of the last while, kept in memory and updated commit by commit.

Each commit is read once. A start reads only files whose statistics reach into the window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import LandingError, did_you_mean, shown
from headgate.lake.changes import ChangeReader
from headgate.lake.snapshot import Snapshot
from headgate.schema.conform import conform_rows

MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Key = object
"""A value of the key's column."""

ChooseColumns = Callable[[Sequence[str]], Sequence[str]]
"""Returns the columns to keep, from all columns of a table."""


def micros(time: datetime) -> int:
    return (time - _EPOCH) // MICROSECOND


def from_micros(time: int) -> datetime:
    return _EPOCH + time * MICROSECOND


@dataclass
class _Part:
    """Rows of one or more commits, and their newest event time."""

    rows: pa.Table
    newest: int


class RecentRows:
    """The rows of one table whose event time is in the window before the newest one.

    The event time is the first of several columns that is not null.
    """

    def __init__(
        self,
        lake: str,
        table: str,
        times: Sequence[str],
        window: timedelta,
        choose: ChooseColumns,
    ) -> None:
        self.lake, self.table = lake, table
        self.newest: int | None = None
        """The newest event time, in microseconds since 1970."""
        self.commits_read = 0
        self.files_read = 0
        self._wanted_times = times
        self._times: list[str] = []
        """Those that the table has."""
        self._window = window // MICROSECOND
        self._choose = choose
        self._reader: ChangeReader | None = None
        self._schema = pa.schema([])
        self._parts: list[_Part] = []

    def update(self) -> pa.Table:
        """Read new commits, and return their rows; the first time, all rows of the window."""
        if self._reader is None:
            return self._load()
        found: list[pa.Table] = []
        try:
            while (changes := self._reader.next()) is not None:
                self.commits_read += 1
                self._take_schema(changes.schema)
                if not changes.rows.only_inserts:
                    return self._load()
                found.append(self._chosen(changes.rows.inserted))
        except LandingError:  # the table was replaced, or its commits are vacuumed
            return self._load()
        rows = pa.concat_tables([self._schema.empty_table(), *found])
        self._add(rows)
        return rows

    def rows(self) -> pa.Table:
        """Return the rows that are kept: those of the window, and perhaps some before it."""
        return pa.concat_tables([self._schema.empty_table(), *(one.rows for one in self._parts)])

    def evict(self, newest: int) -> None:
        """Drop rows that are out of the window before a time."""
        self._parts = [one for one in self._parts if one.newest > newest - self._window]

    def _load(self) -> pa.Table:
        snapshot = Snapshot.open(self.lake, self.table)
        if snapshot is None:
            raise LandingError("table-unknown", f"the lake has no table {shown(self.table)}")
        self._reader = ChangeReader(snapshot)
        self._parts, self.newest = [], None
        self._take_schema(snapshot.schema)
        portions = self._recent(snapshot).portions(self._schema.names)
        rows = pa.Table.from_batches(portions, self._schema)
        self._add(rows)
        return rows

    def _recent(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with only the files that may have rows of the window."""
        if not snapshot.is_plain:
            return snapshot
        statistics = snapshot.statistics()
        known = [_bounds(statistics, name) for name in self._times]
        # The newest event time is at least that of the first column that a file has.
        newest = pc.max(pc.coalesce(*(greatest for greatest, _ in known))).as_py()
        if newest is None:
            return snapshot
        recent = pc.greater(_last_times(known), newest - self._window)
        start = len(snapshot.url) + 1
        kept = statistics["path"].filter(pc.fill_null(recent, True)).to_pylist()
        sizes = {path[start:]: snapshot.sizes[path[start:]] for path in kept}
        self.files_read += len(sizes)
        return replace(snapshot, list_files=lambda: sizes)

    def _take_schema(self, schema: pa.Schema) -> None:
        """Take over columns and types that the table has from now on."""
        self._times = [name for name in self._wanted_times if name in schema.names]
        if not self._times:
            raise _no_time(self.table, self._wanted_times[0], schema)
        for name in self._times:
            if not pa.types.is_timestamp(schema.field(name).type):
                message = f"{shown(name)} of table {self.table} is not a timestamp"
                raise LandingError("bad-query", message, "`time` names the column of event times")
        wanted = pa.schema([schema.field(one).remove_metadata() for one in self._chosen_of(schema)])
        if wanted.equals(self._schema):
            return
        self._schema = wanted
        for part in self._parts:
            part.rows = self._conformed(part.rows)

    def _chosen_of(self, schema: pa.Schema) -> list[str]:
        chosen = {*self._times, *self._choose(schema.names)}
        return [name for name in schema.names if name in chosen]

    def _chosen(self, rows: pa.Table) -> pa.Table:
        return self._conformed(rows.select(self._schema.names))

    def _conformed(self, rows: pa.Table) -> pa.Table:
        batches = [conform_rows(one, self._schema) for one in rows.to_batches()]
        return pa.Table.from_batches(batches, self._schema)

    def _add(self, rows: pa.Table) -> None:
        newest = pc.max(self.times(rows)).as_py() if len(rows) else None
        if newest is None:
            return
        self.newest = newest if self.newest is None else max(self.newest, newest)
        self._parts.append(_Part(rows, newest))
        # Parts double in size from the newest to the oldest: every row is copied a few times.
        while len(self._parts) > 1 and len(self._parts[-2].rows) < 2 * len(self._parts[-1].rows):
            last, before = self._parts.pop(), self._parts.pop()
            self._parts.append(self._joined(before, last))

    def _joined(self, before: _Part, last: _Part) -> _Part:
        rows = pa.concat_tables([before.rows, last.rows])
        assert self.newest is not None
        kept = rows.filter(pc.greater(self.times(rows), self.newest - self._window))
        return _Part(kept.combine_chunks(), max(before.newest, last.newest))

    def times(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the event times of rows, in microseconds since 1970."""
        return pc.coalesce(*(_as_micros(rows[name]) for name in self._times))


def _as_micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())


_Bounds = tuple[pa.ChunkedArray, pa.ChunkedArray]
"""The greatest value of a column in each file, and whether all of its values are known."""


def _bounds(statistics: pa.Table, name: str) -> _Bounds:
    count = len(statistics)
    unknown = pa.chunked_array([pa.nulls(count, pa.int64())])
    if f"max.{name}" not in statistics.column_names:
        return unknown, pa.chunked_array([pa.repeat(False, count)])
    nulls = f"null_count.{name}"
    missing = statistics[nulls] if nulls in statistics.column_names else unknown
    complete = pc.fill_null(pc.equal(missing, 0), False)
    return _as_micros(statistics[f"max.{name}"]), complete


def _last_times(known: Sequence[_Bounds]) -> pa.ChunkedArray:
    """Return an upper bound of the event times of each file; null if there is none."""
    (greatest, complete), *others = known
    if not others:
        return greatest
    later = pc.max_element_wise(greatest, _last_times(others), skip_nulls=True)
    return pc.if_else(complete, greatest, later)


def _no_time(table: str, time: str, schema: pa.Schema) -> LandingError:
    hint = did_you_mean(time, schema.names) or "name the column with the event time in `time`"
    return LandingError("bad-query", f"table {table} has no column {shown(time)}", hint=hint)


@dataclass
class WindowState:
    """The rows of several tables, and which keys have new ones."""

    key: str
    window: timedelta
    tables: Mapping[str, RecentRows]
    """By the name that the query calls them."""
    changed: set[Key] = field(default_factory=set)
    """Keys with new rows, until they are cleared."""
    _seen: dict[Key, int] = field(default_factory=dict)
    """The newest event time of each key."""

    @property
    def newest(self) -> int | None:
        """The newest event time of all tables: the time of scoring."""
        times = (one.newest for one in self.tables.values() if one.newest is not None)
        return max(times, default=None)

    @property
    def at(self) -> datetime | None:
        newest = self.newest
        return None if newest is None else from_micros(newest)

    def update(self) -> None:
        """Read new commits of all tables."""
        for table in self.tables.values():
            rows = table.update()
            if len(rows):
                self._take_keys(table, rows)
        newest = self.newest
        if newest is not None:
            for table in self.tables.values():
                table.evict(newest)

    def active_changed(self) -> list[Key]:
        """Return the keys with new rows in the window."""
        return _sorted(self.changed.intersection(self.active()))

    def active(self) -> list[Key]:
        """Return the keys with rows in the window."""
        newest = self.newest
        if newest is None:
            return []
        start = newest - self.window // MICROSECOND
        self._seen = {key: time for key, time in self._seen.items() if time > start}
        return _sorted(self._seen)

    @property
    def all(self) -> Collection[RecentRows]:
        return self.tables.values()

    def rows(self) -> dict[str, pa.Table]:
        return {name: table.rows() for name, table in self.tables.items()}

    def key_type(self) -> pa.DataType:
        """Return the type of the key in the first table."""
        return next(iter(self.tables.values())).rows().schema.field(self.key).type

    def _take_keys(self, table: RecentRows, rows: pa.Table) -> None:
        if self.key not in rows.schema.names:
            hint = did_you_mean(self.key, rows.schema.names)
            message = f"table {table.table} has no column {shown(self.key)}"
            raise LandingError("bad-query", message, hint=hint)
        newest = (
            pa.table({"key": rows[self.key], "time": table.times(rows)})
            .group_by("key")
            .aggregate([("time", "max")])
        )
        for key, time in zip(
            newest["key"].to_pylist(), newest["time_max"].to_pylist(), strict=True
        ):
            if key is not None and time is not None:
                self._seen[key] = max(time, self._seen.get(key, time))
                self.changed.add(key)


def _sorted(keys: Iterable[Key]) -> list[Key]:
    return sorted(keys, key=lambda key: (str(type(key)), key))
