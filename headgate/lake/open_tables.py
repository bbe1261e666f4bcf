"""Tables that stay open: what was read of them once, and what commits have changed since.

An entry of the log takes a tenth of the time that delta-rs takes to bring a table up to date, and
a commit of this process does not even have to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from threading import Lock
from time import monotonic
from typing import Self
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from headgate.lake.definition import TableDefinition, TableMetadata, TableProtocol
from headgate.lake.files import Identity
from headgate.lake.log import (
    LogEntry,
    identify_entry,
    identify_entry_and_next,
    identify_origin,
)
from headgate.lake.tables import added_files, open_table, open_version, table_url

_MAX_OPEN = 2_000
"""Beyond this number, the least recently used table is evicted."""
_MAX_ENTRIES = 10
"""Entries that are read at a time; delta-rs reads more of them faster."""
_MAX_OPENINGS = 3
"""How often a table is opened while others drop it and create it again."""
_MAX_FILES = 200
"""Added and removed files that are remembered beside those that were read."""
_FRESH = 1.0
"""Seconds for which a version counts as the newest. The log shows whether it was; what it does not
show is that the table was dropped and created again, with fewer versions."""


@dataclass(frozen=True)
class KnownVersion:
    """A version that was committed here: enough to read files of it that are known."""

    version: int
    definition: TableDefinition

    @property
    def schema(self) -> pa.Schema:
        return self.definition.schema


class ReadTable:
    """A version of a table that was read or created here, and what was looked up in it."""

    def __init__(
        self,
        url: str,
        version: int,
        read: DeltaTable | TableDefinition,
        marks: Mapping[str, int | None] | None = None,
    ) -> None:
        self._url = url
        self.version = version
        self._sizes: Mapping[str, int] | None = None
        self._marks = dict(marks or {})
        if isinstance(read, DeltaTable):
            self.delta = read
        else:
            self.definition = read

    @classmethod
    def before_creation(cls, url: str, definition: TableDefinition) -> Self:
        """Return what a table was before its first version: without files and marks."""
        table = cls(url, -1, definition)
        table._sizes = {}
        return table

    @cached_property
    def delta(self) -> DeltaTable:
        """The table at this version, or at a later one if others have updated it."""
        return open_version(self._url, max(0, self.version))

    @cached_property
    def definition(self) -> TableDefinition:
        return TableDefinition.of(self.at(self.version))

    @property
    def is_read(self) -> bool:
        """Whether delta-rs has read the table, so that it can be brought up to date."""
        return "delta" in vars(self)

    def at(self, version: int) -> DeltaTable:
        """Return the table at this version or a later one."""
        if self.delta.version() < version:
            self.delta.update_incremental()
        return self.delta if self.delta.version() == version else open_version(self._url, version)

    def sizes(self, changes: FileChanges) -> Mapping[str, int]:
        """Return the sizes by path of all files after some changes."""
        if self._sizes is None and changes.versions:
            return _sizes_of(self.at(self.version + changes.versions))
        if self._sizes is None:
            self._sizes = _sizes_of(self.at(self.version))
        sizes = dict(self._sizes)
        for path in changes.removed:
            sizes.pop(path, None)
        return {**sizes, **changes.added}

    def mark(self, app: str) -> int | None:
        """Return the newest version that an app has marked in the table, if any."""
        if self.version < 0:
            return None
        if app not in self._marks:
            self._marks[app] = self.at(self.version).transaction_version(app)
        return self._marks[app]

    def marks_after(self, changes: FileChanges) -> dict[str, int | None]:
        """Return the marks that are known after some changes."""
        return {**self._marks, **changes.marks}


def _sizes_of(table: DeltaTable) -> dict[str, int]:
    added = added_files(table)
    names = map(unquote, added["path"].to_pylist())
    return dict(zip(names, map(int, added["size_bytes"].to_pylist()), strict=True))


@dataclass(frozen=True)
class FileChanges:
    """What a number of successive versions have changed."""

    versions: int = 0
    added: Mapping[str, int] = field(default_factory=dict)
    """Sizes by path of files that are left."""
    removed: frozenset[str] = frozenset()
    marks: Mapping[str, int] = field(default_factory=dict)

    def followed_by(self, entry: LogEntry) -> FileChanges:
        added = {unquote(file["path"]): int(file["size"]) for file in entry.added_files}
        removed = frozenset(unquote(file["path"]) for file in entry.removed_files)
        left = self.added
        if removed:
            left = {path: size for path, size in left.items() if path not in removed}
        return FileChanges(
            self.versions + 1,
            {**left, **added},
            self.removed | removed,
            {**self.marks, **entry.marks},
        )

    @property
    def files(self) -> int:
        return len(self.added) + len(self.removed)


_UNDERSTOOD = {"add", "remove", "cdc", "txn", "commitInfo", "metaData", "protocol"}


@dataclass(frozen=True)
class OpenTable:
    """A version of a table: an earlier one that was read, and all changes since.

    It is what commits are based on: its identity, features and columns say whether an entry of
    the log may follow, and `entry` whether the table is still the same.
    """

    read: ReadTable
    definition: TableDefinition
    changes: FileChanges = field(default_factory=FileChanges)
    entry: Identity | None = None
    """Of the version in the log."""
    seen: float = field(default=0.0, compare=False)
    """When it was the newest version, on the clock of this process."""

    @classmethod
    def of(cls, read: ReadTable, entry: Identity | None = None) -> Self:
        return cls(read, read.definition, entry=entry, seen=monotonic())

    @property
    def version(self) -> int:
        return self.read.version + self.changes.versions

    @property
    def table_id(self) -> str:
        return self.definition.metadata.id

    @property
    def delta(self) -> DeltaTable:
        """The version itself, which delta-rs may have to read."""
        return self.read.at(self.version)

    @property
    def schema(self) -> pa.Schema:
        return self.definition.schema

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of all files by path."""
        return self.read.sizes(self.changes)

    @property
    def is_fresh(self) -> bool:
        """Whether the table was the same within the last second."""
        return monotonic() - self.seen < _FRESH

    def mark(self, app: str) -> int | None:
        """Return the newest version that an app has marked in the table, if any."""
        if app in self.changes.marks:
            return self.changes.marks[app]
        return self.read.mark(app)

    def followed_by(self, entry: LogEntry, identity: Identity | None) -> OpenTable | None:
        """Return the next version; None if only delta-rs can say what the entry changes."""
        if entry.kinds - _UNDERSTOOD:
            return None
        definition = self.definition
        if entry.protocol is not None:
            protocol = TableProtocol.from_action(entry.protocol)
            definition = replace(definition, protocol=protocol)
        if entry.metadata is not None:
            metadata = TableMetadata.from_action(entry.metadata)
            definition = replace(definition, metadata=metadata)
        changes = self.changes.followed_by(entry)
        return OpenTable(self.read, definition, changes, identity, monotonic())

    def without_files(self, url: str) -> OpenTable:
        """Return the same version with its files to be read again when they are needed."""
        marks = self.read.marks_after(self.changes)
        read = ReadTable(url, self.version, self.definition, marks)
        if self.read.is_read:
            read.delta = self.read.delta  # which is faster to bring up to date than to open
        return replace(self, read=read, changes=FileChanges())


class TableCache:
    """The newest versions of the tables of a lake, as far as they are known.

    All that this process reads of a table, and all that it commits, goes through one of these.
    """

    def __init__(self, lake: str) -> None:
        self.lake = lake
        self._opened: dict[str, OpenTable] = {}
        self._lock = Lock()

    def newest(self, table: str) -> OpenTable | None:
        """Return the newest version of a table; None if it does not exist."""
        url = table_url(self.lake, table)
        opened = self._opened.get(table)
        if opened is not None:
            opened = _updated(url, opened)
        if opened is None:
            opened = _opened(url)
        if opened is None:
            with self._lock:
                self._opened.pop(table, None)
            return None
        self.put(table, opened)
        return opened

    def last(self, table: str) -> OpenTable | None:
        """Return the version that was read or committed last, which may not be the newest."""
        return self._opened.get(table)

    def put(self, table: str, opened: OpenTable) -> None:
        """Keep a version that was just read or committed."""
        if opened.changes.files > _MAX_FILES:
            opened = opened.without_files(table_url(self.lake, table))
        with self._lock:
            self._opened.pop(table, None)
            self._opened[table] = opened
            if len(self._opened) > _MAX_OPEN:
                self._opened.pop(next(iter(self._opened)))


def _opened(url: str) -> OpenTable | None:
    """Open a table with its newest entry; None if it does not exist."""
    origin = identify_origin(url)
    for _ in range(_MAX_OPENINGS):
        read = open_table(url)
        if read is None:
            return None
        opened = OpenTable.of(
            ReadTable(url, read.version(), read), identify_entry(url, read.version())
        )
        before, origin = origin, identify_origin(url)
        if origin == before:
            break  # otherwise the entry may be that of a table which was created in between
    return opened


def _updated(url: str, opened: OpenTable) -> OpenTable | None:
    """Return the newest version; None if the table has been replaced, or is not known so far."""
    current, newer = identify_entry_and_next(url, opened.version)
    if current is None or current != opened.entry:
        return None
    read = 0
    while newer is not None and read < _MAX_ENTRIES:
        try:
            following = opened.followed_by(LogEntry.read(url, opened.version + 1), newer)
        except (FileNotFoundError, ValueError, KeyError):
            following = None  # delta-rs may be able to read it, or says what is wrong with it
        if following is None:
            break
        opened, read = following, read + 1
        newer = identify_entry(url, opened.version + 1)
    if newer is None:
        return replace(opened, seen=monotonic())
    if not opened.read.is_read:
        return None
    delta = opened.read.delta
    delta.update_incremental()
    version = delta.version()
    entry = identify_entry(url, version)
    if identify_entry(url, opened.version) != opened.entry:
        return None
    return OpenTable.of(ReadTable(url, version, delta), entry)


@cache
def table_cache(lake: str) -> TableCache:
    """Return the cache of a lake, shared by all tasks that Spark runs in this process."""
    return TableCache(lake)
