"""The commit port: adds staged files to tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.lake.staged import StagedFile


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


@dataclass(frozen=True)
class Commit:
    """Files to add to a table in one transaction, and the table's columns after it."""

    table: str
    schema: pa.Schema
    files: tuple[StagedFile, ...]
    mark: Mark
    partition_by: tuple[str, ...] = ()
    description: str | None = None
    rewrite: bool = False
    """Whether types of columns change, so that the same commit rewrites all rows."""


class Committer(Protocol):
    """Commits files to the tables of a lake; implemented by delta-rs and by Spark."""

    def state(self, table: str, app: str) -> TableState | None:
        """Return the newest version of a table; None if it does not exist."""
        ...

    def schema_at(self, table: str, version: int) -> pa.Schema:
        """Return the columns of a table at a version."""
        ...

    def can_rewrite(self, table: str, up_to: int) -> bool:
        """Whether a table is small enough, and plain enough, to be rewritten."""
        ...

    def commit(self, commit: Commit) -> int:
        """Commit atomically, without checking marks, and return the table's new version."""
        ...
