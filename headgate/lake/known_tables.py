"""Commits to tables whose newest version is known: an entry in the log, and nothing is read.

delta-rs reads the log to commit, and once more before the next commit. With hundreds of tables,
that is most of the time that commits take.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from urllib.parse import quote
from zlib import crc32

import pyarrow as pa
from deltalake import Schema

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
    files: Mapping[str, int] | None = None
    """Sizes by path of all files, as long as only replacements and merges have written them."""

    def changes_only_files(self, commit: Commit) -> bool:
        """Whether a commit adds and removes files that are known, and nothing else."""
        if commit.based_on not in (None, self.version) or commit.replaced_partitions:
            return False
        if commit.mode == "replace":
            has_columns = commit.schema.equals(self.schema, check_metadata=True)
            return self.files is not None and has_columns and not commit.partition_by
        return commit.mode == "append" and not has_new_columns(commit.schema, self.schema)

    def removed(self, commit: Commit) -> Mapping[str, int]:
        """Return the sizes by path of the files that a commit removes."""
        return (self.files or {}) if commit.mode == "replace" else commit.removed

    def allows(self, commit: Commit) -> bool:
        """Whether the table has the marks that a commit requires; raise if it has others."""
        for app, version in commit.required_marks.items():
            if app in self.marks and self.marks[app] != version:
                raise CommitConflict(f"table {commit.table} is not at {version} of {app}")
        return commit.required_marks.keys() <= self.marks.keys()

    def after(self, commit: Commit, entry: Identity | None) -> _KnownTable:
        marks = {**self.marks, **{mark.app: mark.version for mark in commit.marks}}
        files = _files_after(self.files, commit)
        return replace(self, version=self.version + 1, entry=entry, marks=marks, files=files)


def _files_after(files: Mapping[str, int] | None, commit: Commit) -> Mapping[str, int] | None:
    """Return all files after a commit; None if they are unknown, or may become ever more."""
    added = {file.path: file.size for file in commit.files}
    if commit.mode == "replace":
        return None if commit.partition_by else added
    if files is None or commit.based_on is None:
        return None
    return {path: size for path, size in files.items() if path not in commit.removed} | added


class KnownTables:
    """Tables of a lake that can be committed to without reading them."""

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

    def has(self, table: str, version: int) -> bool:
        """Whether a table is known as of a version."""
        known = self._known.get(table)
        return known is not None and known.version == version

    def remember(
        self,
        table: str,
        version: int,
        entry: Identity | None,
        schema: pa.Schema,
        marks: Mapping[str, int | None],
        checkpoints: int,
    ) -> None:
        """Know a table from now on, as it was just read, which any engine can append to."""
        before = self._known.get(table)
        if before is not None and (before.version, before.entry) == (version, entry):
            self._known[table] = replace(before, marks={**before.marks, **marks})
        else:
            self._known[table] = _KnownTable(version, entry, schema, marks, checkpoints)

    def create(self, commit: Commit, configuration: Mapping[str, str], checkpoints: int) -> bool:
        """Create a table; return False if that is left to delta-rs, or if the table exists."""
        columns = Schema.from_arrow(commit.schema).to_json()
        if commit.properties or '"timestamp_ntz"' in columns:
            return False  # these may take features of tables
        url = table_url(self._lake, commit.table)
        metadata = _metadata(commit, columns, configuration)
        entry = write_entry(url, 0, _actions(commit, {}, metadata))
        if entry is None:
            return False
        self._known[commit.table] = _newly_known(commit, 0, entry, checkpoints)
        return True

    def created(self, commit: Commit, checkpoints: int) -> None:
        """Know a table that delta-rs has created with a commit."""
        entry = identify_entry(table_url(self._lake, commit.table), 0)
        self._known[commit.table] = _newly_known(commit, 0, entry, checkpoints)

    def commit(self, commit: Commit) -> int | None:
        """Commit, and return the new version; None if the table has to be read for that."""
        is_newest = commit.table in self._just_checked
        self._just_checked.discard(commit.table)
        known = self._known.get(commit.table) if is_newest else self._newest(commit.table)
        if known is None or not known.changes_only_files(commit) or not known.allows(commit):
            return None
        url, version = table_url(self._lake, commit.table), known.version + 1
        entry = write_entry(url, version, _actions(commit, known.removed(commit)))
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

    def committed(self, commit: Commit, version: int, checkpoints: int) -> None:
        """Know what a commit by delta-rs has made of a table."""
        known = self._known.pop(commit.table, None)
        if known is not None and (
            known.version + 1 != version or not known.changes_only_files(commit)
        ):
            known = None
        if known is None and commit.based_on != version - 1:
            return
        entry = identify_entry(table_url(self._lake, commit.table), version)
        self._known[commit.table] = (
            known.after(commit, entry)
            if known is not None
            else _newly_known(commit, version, entry, checkpoints)
        )

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


def _newly_known(
    commit: Commit, version: int, entry: Identity | None, checkpoints: int
) -> _KnownTable:
    """Return a table of which only the last commit is known."""
    marks = {mark.app: mark.version for mark in commit.marks}
    files = _files_after(None, commit)
    return _KnownTable(version, entry, commit.schema, marks, checkpoints, files)


def _require_other_marks(url: str, first: int, commit: Commit) -> None:
    """Raise if a newer commit has a mark of this one: it may be the same, done twice."""
    apps = {mark.app for mark in commit.marks}
    with suppress(FileNotFoundError):
        for version in count(first):
            if apps & LogEntry.read(url, version).marks.keys():
                raise CommitConflict(f"another run has committed to table {commit.table}")


def _actions(
    commit: Commit, removed: Mapping[str, int], metadata: Iterable[Mapping[str, Any]] = ()
) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of a commit, as the Delta protocol has them."""
    now = int(time.time() * 1000)
    partitions = json.dumps(list(commit.partition_by))
    mode = "Overwrite" if removed else "Append"
    yield {
        "commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": mode, "partitionBy": partitions},
            "engineInfo": _ENGINE,
            "isBlindAppend": commit.mode == "append" and commit.based_on is None,
            "txnId": str(uuid.uuid4()),
        }
    }
    yield from metadata
    for mark in commit.marks:
        yield {"txn": {"appId": mark.app, "version": mark.version, "lastUpdated": now}}
    for path, size in removed.items():
        yield {
            "remove": {
                "path": quote(path, safe=_UNQUOTED),
                "deletionTimestamp": now,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": size,
            }
        }
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


def _metadata(
    commit: Commit, columns: str, configuration: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the actions that make a table of the first commit."""
    yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    yield {
        "metaData": {
            "id": str(uuid.uuid4()),
            "name": None,
            "description": commit.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": columns,
            "partitionColumns": list(commit.partition_by),
            "createdTime": int(time.time() * 1000),
            "configuration": dict(configuration),
        }
    }


def has_new_columns(wanted: pa.Schema, current: pa.Schema) -> bool:
    """Whether a table lacks columns, or nested fields of them."""
    if wanted is current:
        return False
    types = {field.name: field.type for field in current}
    return any(types.get(field.name) != field.type for field in wanted)
