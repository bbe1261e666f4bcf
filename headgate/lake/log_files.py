"""What the log of a table says about files: which of them any version needs that can be read.

A file may be deleted only if that is known for sure. A log that does not say all, or that says it
in a way that is not known here, is an obstacle: then nothing of the table is deleted.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, Self

import numpy as np
import pyarrow.parquet as pq

from headgate.lake.files import FoundFile
from headgate.lake.log import LOG, read_entries, vector_path, versions_of_entries
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import find_files, open_input, read_file
from headgate.lake.tables import TableError

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_OTHER_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.(?!parquet$).+\.(?:parquet|json)")
_KNOWN_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "changeDataFeed"),
    *("columnMapping", "identityColumns", "deletionVectors", "rowTracking", "domainMetadata"),
    *("timestampNtz", "typeWidening", "typeWidening-preview", "allowColumnDefaults"),
    *("variantType", "variantType-preview", "variantShredding-preview", "vacuumProtocolCheck"),
    *("inCommitTimestamp", "v2Checkpoint", "clustering"),
}
"""Table features with which the log still names every file that a version needs."""


class UnknownFiles(TableError):
    """Raised if it cannot be known which files the versions of a table need."""


@dataclass(frozen=True)
class TableLog:
    """The folder of a table's log, as it was listed."""

    table: Snapshot = field(repr=False)
    files: Mapping[str, FoundFile]
    """By name, without those in folders of the log."""

    @classmethod
    def of(cls, table: Snapshot) -> Self:
        found = find_files(f"{table.url}/{LOG}", below=False)
        return cls(table, {file.path: file for file in found})

    @cached_property
    def versions(self) -> list[int]:
        """Versions of all entries, in order."""
        return versions_of_entries(self.files)

    @cached_property
    def checkpoints(self) -> list[int]:
        """Versions of all checkpoints of one file, in order."""
        return sorted(
            int(match[1]) for name in self.files if (match := _CHECKPOINT.fullmatch(name))
        )

    @cached_property
    def obstacle(self) -> str | None:
        """Why it cannot be known which files the versions of the table need."""
        features = self.table.definition.protocol.features
        if unknown := sorted(features - _KNOWN_FEATURES):
            return f"the table has the feature {unknown[0]}"
        if any(map(_OTHER_CHECKPOINT.fullmatch, self.files)):
            return "checkpoints of the table have several files"
        return None

    def require_whole(self, since: int) -> None:
        """Require that the log has all entries from a version on, which can be read."""
        has_first = since == 0 or since in self.checkpoints
        wanted = range(since if since == 0 else since + 1, self.versions[-1] + 1)
        missing = set(wanted) - set(self.versions)
        if not has_first or missing or self.table.version < since:
            raise UnknownFiles("entries are missing in the log of the table")

    @property
    def first(self) -> int:
        """The oldest version that can be read."""
        first = self.versions[0] if self.versions else -1
        if first == 0:
            return 0
        if not self.checkpoints:
            raise UnknownFiles("the log of the table has no checkpoint to begin with")
        return self.checkpoints[0]

    def named(self, paths: Collection[str], since: int) -> set[str]:
        """Return which of some paths any version needs from `since` on, which has all its files.

        A file that a version has is live now, or a later entry removes it.
        """
        self.require_whole(since)
        first = 0 if since == 0 else since + 1
        seen = _seen_files(self.table.url, self.table.table_id)
        named = seen.among(self, range(first, self.versions[-1] + 1), paths)
        named.update(path for path in paths if path in self.table.sizes)
        if any(map(is_vector, paths)):
            named.update(self._vectors(since).intersection(paths))
        return named

    def _vectors(self, version: int) -> set[str]:
        """Return the files with the deletion vectors of a version that has a checkpoint."""
        if version not in self.checkpoints:
            return set()  # of version 0, whose entry is read
        url = f"{self.table.url}/{LOG}/{version:020d}.checkpoint.parquet"
        found = (vector_path(add.get("deletionVector")) for add in read_actions(url, "add"))
        return {path for path in found if path is not None}


def is_needed(table: Snapshot, path: str) -> bool:
    """Whether any version of a table needs a file; also if that cannot be known."""
    log = TableLog.of(table)
    if log.obstacle is not None:
        return True
    try:
        return bool(log.named({path}, log.first))
    except UnknownFiles:
        return True


_VECTOR = re.compile(r"(?:.+/)?deletion_vector_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin")


def is_vector(path: str) -> bool:
    """Whether a file has the name of one with deletion vectors."""
    return bool(_VECTOR.fullmatch(path))


_COLUMNS = {"add": ("add.path", "add.deletionVector"), "txn": ("txn",)}


def read_actions(url: str, kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of one kind in a file of a checkpoint, with the columns known here."""
    if url.endswith(".json"):
        actions = (json.loads(line) for line in read_file(url).splitlines() if line)
        yield from (action[kind] for action in actions if kind in action)
        return
    file = pq.ParquetFile(open_input(url))
    for rows in file.iter_batches(columns=_columns(file, kind)):
        if kind in rows.schema.names:
            yield from (action for action in rows.column(kind).to_pylist() if action is not None)


def _columns(file: pq.ParquetFile, kind: str) -> list[str]:
    """Return the columns to read: pyarrow refuses none, but takes those below a prefix."""
    wanted = _COLUMNS[kind]
    leaves = [file.schema.column(number).path for number in range(len(file.schema.names))]
    return [
        leaf for leaf in leaves if any(leaf == one or leaf.startswith(f"{one}.") for one in wanted)
    ]


class _SeenFiles:
    """Which paths the entries of a table name, as hashes: a process reads each entry once.

    Two paths with one hash are taken for the same, which only spares a file.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self._range = range(0)
        self._last: FoundFile | None = None
        """The newest entry that was read: another one means that the log was replaced."""
        self._versions, self._hashes = array("q"), array("q")

    def among(self, log: TableLog, versions: range, paths: Collection[str]) -> set[str]:
        """Return those of some paths that the entries of a range of versions name."""
        with self._lock:
            if self._range and log.files.get(_entry(self._range[-1])) != self._last:
                self._clear()
            try:
                self._read(log, versions)
            except BaseException:
                self._clear()
                raise
            known = np.array(self._hashes, np.int64)
        ordered = list(paths)
        hashes = np.fromiter(map(hash, ordered), np.int64, len(ordered))
        return {ordered[number] for number in np.flatnonzero(np.isin(hashes, known))}

    def _read(self, log: TableLog, versions: range) -> None:
        """Have read the entries of these versions and of no earlier ones."""
        if not versions:
            return self._clear()
        before = self._range
        if not before or versions.start > before.stop:
            self._clear()
            unread = [versions]
        else:
            unread = [range(versions.start, before.start), range(before.stop, versions.stop)]
            kept = np.array(self._versions, np.int64) >= versions.start
            self._versions = array("q", np.array(self._versions, np.int64)[kept].tobytes())
            self._hashes = array("q", np.array(self._hashes, np.int64)[kept].tobytes())
        for some in unread:
            count = 0
            for entry in read_entries(log.table.url, some):
                count += 1
                for path in entry.paths:
                    self._versions.append(entry.version)
                    self._hashes.append(hash(path))
            if count < len(some):
                raise UnknownFiles("entries of the log were deleted meanwhile")
        self._range = versions
        self._last = log.files[_entry(versions[-1])]


def _entry(version: int) -> str:
    return f"{version:020d}.json"


@lru_cache(maxsize=2_000)
def _seen_files(url: str, table_id: str) -> _SeenFiles:
    """Return what is known of a table; one that is created again has another id."""
    return _SeenFiles()
