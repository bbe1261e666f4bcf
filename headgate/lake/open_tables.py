"""Tables that stay open: what was read of them once, and what commits have changed since.

Most commits only add and remove files. Their entries in the log take a tenth of the time that
delta-rs takes to bring a table up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from headgate.lake.files import Identity
from headgate.lake.log import LogEntry, identify_entry, identify_entry_and_next
from headgate.lake.tables import added_files, open_table, open_version, table_url

_MAX_OPEN = 2_000
"""Beyond this number, the least recently used table is evicted."""

_MAX_CHANGES = 10
"""Commits after which delta-rs brings a table up to date."""


@dataclass(frozen=True)
class KnownVersion:
    """A version of a table without partitions: enough to read its files, if they are known."""

    version: int
    schema: pa.Schema


class ReadTable:
    """A version of a table that delta-rs has read, and what was looked up in it."""

    def __init__(self, url: str, read: DeltaTable | KnownVersion) -> None:
        self._url = url
        self._sizes: Mapping[str, int] | None = None
        self._marks: dict[str, int | None] = {}
        if isinstance(read, KnownVersion):
            self.version, self.schema, self.partition_columns = read.version, read.schema, []
        else:
            self.version, self.delta = read.version(), read

    @cached_property
    def delta(self) -> DeltaTable:
        """The table at this version, or at a later one if others have updated it."""
        return open_version(self._url, self.version)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(self.at(self.version).schema())

    @cached_property
    def partition_columns(self) -> list[str]:
        return self.delta.metadata().partition_columns

    def at(self, version: int) -> DeltaTable:
        """Return the table at this version or a later one."""
        if self.delta.version() < version:
            self.delta.update_incremental()
        return self.delta if self.delta.version() == version else open_version(self._url, version)

    def sizes(self, later: Sequence[FileChanges]) -> Mapping[str, int]:
        """Return the sizes by path of all files after some changes."""
        if self._sizes is None and later:
            return _sizes_of(self.at(self.version + len(later)))
        if self._sizes is None:
            self._sizes = _sizes_of(self.at(self.version))
        sizes = dict(self._sizes)
        for one in later:
            for path in one.removed:
                sizes.pop(path, None)
            sizes |= one.added
        return sizes

    def mark(self, app: str) -> int | None:
        """Return the newest version that an app has marked in the table, if any."""
        if app not in self._marks:
            self._marks[app] = self.at(self.version).transaction_version(app)
        return self._marks[app]


def _sizes_of(table: DeltaTable) -> dict[str, int]:
    added = added_files(table)
    names = map(unquote, added["path"].to_pylist())
    return dict(zip(names, map(int, added["size_bytes"].to_pylist()), strict=True))


@dataclass(frozen=True)
class FileChanges:
    """What a commit has changed that only adds and removes files."""

    added: Mapping[str, int]
    """Sizes by path."""
    removed: frozenset[str]
    marks: Mapping[str, int]

    @classmethod
    def of(cls, entry: LogEntry) -> FileChanges | None:
        """Return the changes of a commit; None if it changes more of the table."""
        if entry.kinds - _FILE_ACTIONS:
            return None
        added = {unquote(one["path"]): int(one["size"]) for one in entry.added_files}
        removed = frozenset(unquote(one["path"]) for one in entry.removed_files)
        return cls(added, removed, entry.marks)


_FILE_ACTIONS = {"add", "remove", "cdc", "txn", "commitInfo"}


@dataclass(frozen=True)
class OpenTable:
    """A version of a table: an earlier one that delta-rs has read, and all changes since."""

    read: ReadTable
    changes: tuple[FileChanges, ...] = ()

    @property
    def version(self) -> int:
        return self.read.version + len(self.changes)

    @property
    def delta(self) -> DeltaTable:
        """The version itself, which delta-rs may have to read."""
        return self.read.at(self.version)

    @property
    def schema(self) -> pa.Schema:
        return self.read.schema

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of all files by path."""
        return self.read.sizes(self.changes)

    def mark(self, app: str) -> int | None:
        """Return the newest version that an app has marked in the table, if any."""
        for one in reversed(self.changes):
            if app in one.marks:
                return one.marks[app]
        return self.read.mark(app)


class TableCache:
    """Open tables of a lake. Updating an open table is faster than opening it again."""

    def __init__(self, lake: str) -> None:
        self.lake = lake
        self._opened: dict[str, tuple[OpenTable, Identity | None]] = {}
        """Each with the entry of its version in the log, which is another if it is replaced."""

    def entry_of(self, table: str) -> Identity | None:
        """Return the entry, in the log, of the version that was returned last."""
        return self._opened[table][1] if table in self._opened else None

    def newest(self, table: str) -> OpenTable | None:
        """Return the newest version of a table; None if it does not exist."""
        url = table_url(self.lake, table)
        opened, known = self._opened.pop(table, (None, None))
        if opened is not None:
            current, newer = identify_entry_and_next(url, opened.version)
            if current is None or current != known:
                opened = None  # replaced by another table of the same name
            elif newer is not None:
                opened, known = _updated(url, opened, newer)
        if opened is None:
            read = open_table(url)
            if read is None:
                return None
            opened, known = OpenTable(ReadTable(url, read)), identify_entry(url, read.version())
        self._opened[table] = opened, known
        if len(self._opened) > _MAX_OPEN:
            self._opened.pop(next(iter(self._opened)))
        return opened

    def newest_read(self, table: str) -> DeltaTable | None:
        """Return the newest version as delta-rs has it."""
        opened = self.newest(table)
        if opened is None:
            return None
        delta = opened.delta
        if opened.changes:
            read = ReadTable(table_url(self.lake, table), delta)
            self._opened[table] = OpenTable(read), self.entry_of(table)
        return delta


def _updated(
    url: str, opened: OpenTable, newer: Identity | None
) -> tuple[OpenTable, Identity | None]:
    """Return the newest version and its entry, given the entry after the version."""
    changes, known, version = list(opened.changes), newer, opened.version
    while newer is not None and len(changes) < _MAX_CHANGES:
        try:
            found = FileChanges.of(LogEntry.read(url, version + 1))
        except (FileNotFoundError, ValueError):
            found = None  # delta-rs may be able to read it, or says what is wrong with it
        if found is None:
            break
        changes.append(found)
        version, known = version + 1, newer
        newer = identify_entry(url, version + 1)
    if newer is None:
        return OpenTable(opened.read, tuple(changes)), known
    delta = opened.read.delta
    delta.update_incremental()
    is_next = delta.version() == version + 1
    known = newer if is_next else identify_entry(url, delta.version())
    return OpenTable(ReadTable(url, delta)), known


@cache
def table_cache(lake: str) -> TableCache:
    """Return the cache of a lake, shared by all tasks that Spark runs in this process."""
    return TableCache(lake)
