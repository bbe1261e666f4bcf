"""The commit port: everything that is ever written to a table of the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from headgate.lake.compact import Compacted
from headgate.lake.definition import TableDefinition
from headgate.lake.kept_rows import KeptRows
from headgate.lake.open_tables import OpenTable
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile

Engine = Literal["delta-rs", "spark"]
Work = Literal["merge", "compact"]


@dataclass(frozen=True)
class Mark:
    """A transaction mark: an app and its version, written in the same commit as the files."""

    app: str
    version: int


@dataclass(frozen=True)
class TableState:
    """The newest version of a table."""

    version: int
    schema: pa.Schema
    marked: int | None
    """The newest version that the app has marked."""
    obstacle: str | None = None
    """What prevents this committer from writing to the table."""


CommitMode = Literal["append", "rewrite", "replace", "create"]
"""Keep the rows of the table, rewrite them in other types, replace them; or expect no table."""


@dataclass(frozen=True)
class Commit:
    """Files to add to a table in one transaction."""

    table: str
    schema: pa.Schema
    """All columns of the table after the commit."""
    files: tuple[StagedFile, ...]
    marks: tuple[Mark, ...] = ()
    mode: CommitMode = "append"
    partition_by: tuple[str, ...] = ()
    replaced_partitions: tuple[str, ...] = ()
    """Values of the partition column whose rows are replaced, while those of others are kept."""
    based_on: int | None = None
    """Version of the table that the rows were read from; the commit fails if there is a newer."""
    required_marks: Mapping[str, int | None] = field(default_factory=dict)
    """Newest marks of apps that the table must have; otherwise the commit fails as a conflict."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Sizes by path of files that the new ones replace. Only for delta-rs, and with `based_on`."""
    description: str | None = None
    """Of a table that the commit creates, like the properties."""
    properties: Mapping[str, str] = field(default_factory=dict)

    def unmet(self, table: OpenTable) -> str | None:
        """Return what this requires of a version of its table, and the version does not fulfil."""
        for app, required in self.required_marks.items():
            if table.mark(app) != required:
                return f"is not at {required} of {app}"
        for mark in self.marks:
            found = table.mark(mark.app)
            # Who rebuilds a table has read the mark, and requires it.
            is_read = mark.app in self.required_marks
            if found is not None and found > mark.version and not is_read:
                return f"is at {found} of {mark.app} already"
        if self.based_on is not None and table.version != self.based_on:
            return f"has version {table.version}, not {self.based_on}"
        return None


@dataclass(frozen=True)
class MergeRule:
    """How changes are merged into the rows of a table. Each change has a key of its own."""

    key: tuple[str, ...]
    """Null is equal to null."""
    newer: str | None = None
    """Column in which a change must be greater than the row that it meets."""
    only: tuple[str, str] | None = None
    """Column, and the value that a row must have in it to be changed."""
    set: tuple[str, ...] | None = None
    """Columns that a row takes from its change; all by default."""
    deleted: str | None = None
    """Column of the changes, and not of the table: whether to delete the row."""
    inserts: bool = True
    """Whether to insert changes that meet no row, but for deletions."""
    insert: str | None = None
    """Column of the changes, and not of the table: which of them to insert; all by default."""


@dataclass(frozen=True)
class FoundRows:
    """Rows of a table that have any of some keys, and where they are."""

    table: Snapshot = field(repr=False)
    rows: pa.Table
    places: Mapping[str, np.ndarray]
    """By path of the file, in the order of the rows."""
    kept: KeptRows = field(default_factory=KeptRows, repr=False)
    """All rows of some of these files, so that they are not read again."""

    def by_file(self) -> dict[str, tuple[np.ndarray, pa.Table]]:
        """Return the places and the rows of each file."""
        starts = accumulate(map(len, self.places.values()), initial=0)
        return {
            path: (places, self.rows.slice(start, len(places)))
            for (path, places), start in zip(self.places.items(), starts, strict=False)
        }


@dataclass(frozen=True)
class MergeCommit:
    """Changes to merge into a table in one transaction."""

    table: str
    changes: pa.Table | str
    """Rows, or the URL of a Parquet file with them."""
    rule: MergeRule
    marks: tuple[Mark, ...] = ()
    """Written even if no row changes."""
    required_marks: Mapping[str, int | None] = field(default_factory=dict)
    """Newest marks of apps that the table must have; otherwise the merge fails as a conflict."""
    based_on: FoundRows | None = None
    """All rows with keys of the changes, which were computed from them. If the table has a newer
    version, that is a conflict."""


@dataclass(frozen=True)
class MergeCounts:
    """Number of rows that a merge has changed, and the table's version after it."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class Committer(Protocol):
    """Writes to the tables of a lake; implemented by delta-rs and by Spark."""

    @property
    def lake(self) -> str: ...

    def engine(self, table: str | Snapshot, work: Work = "merge") -> Engine:
        """Return what rewrites files of a table, given by name or as it was read."""
        ...

    def state(self, table: str, app: str) -> TableState | None:
        """Return the newest version of a table; None if it does not exist."""
        ...

    def schema_at(self, table: str, version: int) -> pa.Schema:
        """Return the columns of a table at a version."""
        ...

    def definition(self, table: str, version: int) -> TableDefinition | None:
        """Return what a version was that this committer has just committed, if it knows."""
        ...

    def can_rewrite(self, table: str, up_to: int) -> bool:
        """Whether a table is small enough, and plain enough, to be rewritten."""
        ...

    def commit(self, commit: Commit) -> int:
        """Commit atomically, without checking marks, and return the table's new version."""
        ...

    def merge(self, merge: MergeCommit) -> MergeCounts:
        """Merge atomically, without checking marks."""
        ...

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        """Combine files into files of up to a number of bytes; rows stay as they are.

        Nothing is done unless there are at least `fewest` files of a similar size. Appends of
        others meanwhile are kept; if others rewrite the same files, that is a conflict.
        """
        ...


def commit_rows(
    committer: Committer,
    table: str,
    rows: pa.Table,
    *marks: Mark,
    mode: CommitMode = "append",
    based_on: int | None = None,
    description: str | None = None,
) -> int:
    """Write rows to a file, commit it, and return the table's new version."""
    file = stage_rows(committer.lake, table, rows)
    return committer.commit(
        Commit(table, rows.schema, (file,), marks, mode, based_on=based_on, description=description)
    )
