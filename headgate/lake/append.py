"""Appends to tables whose newest version is known: an entry in the log, and nothing is read.

delta-rs reads the log to commit, and once more before the next commit. With hundreds of tables,
that is most of the time that commits take.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from urllib.parse import quote
from zlib import crc32

import pyarrow as pa

from headgate.lake.commit import Commit, TableState
from headgate.lake.files import Identity
from headgate.lake.log import LogEntry, identify_entry, identify_entry_and_next, write_entry
from headgate.lake.tables import (
    CommitConflict,
    TableError,
    is_clean_up_due,
    table_url,
    write_checkpoint,
)

_ENGINE = "headgate"
_UNQUOTED = "/=!$&'()*+,;:@"


@dataclass(frozen=True)
class _KnownTable:
    """A table as of a version that was read or written here."""

    version: int
    entry: Identity | None
    """Of the version in the log."""
    schema: pa.Schema
    marks: Mapping[str, int | None]
    checkpoints: int
    """Number of versions from one checkpoint of the log to the next."""

    def is_append(self, commit: Commit) -> bool:
        """Whether a commit adds rows, and nothing else."""
        return (
            commit.mode == "append"
            and commit.based_on in (None, self.version)
            and not commit.replaced_partitions
            and not commit.removed
            and not has_new_columns(commit.schema, self.schema)
        )

    def allows(self, commit: Commit) -> bool:
        """Whether the table has the marks that a commit requires; raise if it has others."""
        for app, version in commit.required_marks.items():
            if app in self.marks and self.marks[app] != version:
                raise CommitConflict(f"table {commit.table} is not at {version} of {app}")
        return commit.required_marks.keys() <= self.marks.keys()

    def after(self, commit: Commit, entry: Identity | None) -> _KnownTable:
        marks = {**self.marks, **{mark.app: mark.version for mark in commit.marks}}
        return replace(self, version=self.version + 1, entry=entry, marks=marks)


class KnownTables:
    """Tables of a lake that can be appended to without reading them."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        self._known: dict[str, _KnownTable] = {}
        self._just_checked: set[str] = set()
        """Tables of which `state` has seen that they have no newer version."""

    def state(self, table: str, app: str) -> TableState | None:
        """Return the newest version of a table; None if it is not known."""
        known = self._newest(table)
        if known is None or app not in known.marks:
            return None
        self._just_checked.add(table)
        return TableState(known.version, known.schema, known.marks[app])

    def remember(
        self, table: str, state: TableState, app: str, entry: Identity | None, checkpoints: int
    ) -> None:
        """Know a table from now on, as it was just read, which any engine can append to."""
        before = self._known.get(table)
        is_same = before is not None and (before.version, before.entry) == (state.version, entry)
        marks = {**(before.marks if before and is_same else {}), app: state.marked}
        self._known[table] = _KnownTable(state.version, entry, state.schema, marks, checkpoints)

    def created(self, commit: Commit, checkpoints: int) -> None:
        """Know a table that a commit has created."""
        entry = identify_entry(table_url(self._lake, commit.table), 0)
        marks = {mark.app: mark.version for mark in commit.marks}
        self._known[commit.table] = _KnownTable(0, entry, commit.schema, marks, checkpoints)

    def append(self, commit: Commit) -> int | None:
        """Commit, and return the new version; None if the table has to be read for that."""
        is_newest = commit.table in self._just_checked
        self._just_checked.discard(commit.table)
        known = self._known.get(commit.table) if is_newest else self._newest(commit.table)
        if known is None or not known.is_append(commit) or not known.allows(commit):
            return None
        url, version = table_url(self._lake, commit.table), known.version + 1
        entry = write_entry(url, version, _actions(commit))
        if entry is None:
            _require_other_marks(url, version, commit)
            return None
        self._known[commit.table] = known.after(commit, entry)
        # Tables that are committed to together have their checkpoints at different times.
        turn = version + 1 + crc32(commit.table.encode())
        if turn % known.checkpoints == 0:
            # The commit is made, whatever happens here: the next checkpoint makes up for this one.
            with suppress(TableError, OSError):
                write_checkpoint(url, clean_up=is_clean_up_due(turn, known.checkpoints))
        return version

    def committed(self, commit: Commit, version: int) -> None:
        """Know what a commit by delta-rs has made of a table."""
        known = self._known.pop(commit.table, None)
        if known is not None and known.version + 1 == version and known.is_append(commit):
            entry = identify_entry(table_url(self._lake, commit.table), version)
            self._known[commit.table] = known.after(commit, entry)

    def _newest(self, table: str) -> _KnownTable | None:
        """Return what is known of a table, if it has no newer version since."""
        known = self._known.get(table)
        if known is None:
            return None
        entries = identify_entry_and_next(table_url(self._lake, table), known.version)
        if entries == (known.entry, None):
            return known
        del self._known[table]
        return None


def _require_other_marks(url: str, first: int, commit: Commit) -> None:
    """Raise if a newer commit has a mark of this one: it may be the same, done twice."""
    apps = {mark.app for mark in commit.marks}
    with suppress(FileNotFoundError):
        for version in count(first):
            if apps & LogEntry.read(url, version).marks.keys():
                raise CommitConflict(f"another run has committed to table {commit.table}")


def _actions(commit: Commit) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of a commit that adds files, as the Delta protocol has them."""
    now = int(time.time() * 1000)
    partitions = json.dumps(list(commit.partition_by))
    yield {
        "commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": partitions},
            "engineInfo": _ENGINE,
            "isBlindAppend": True,
        }
    }
    for mark in commit.marks:
        yield {"txn": {"appId": mark.app, "version": mark.version, "lastUpdated": now}}
    for file in commit.files:
        yield {
            "add": {
                "path": quote(file.path, safe=_UNQUOTED),
                "partitionValues": dict(file.partition or {}),
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": file.statistics,
            }
        }


def has_new_columns(wanted: pa.Schema, current: pa.Schema) -> bool:
    """Whether a table lacks columns, or nested fields of them."""
    if wanted is current:
        return False
    types = {field.name: field.type for field in current}
    return any(types.get(field.name) != field.type for field in wanted)
