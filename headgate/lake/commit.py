"""The port through which files become rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.lake.staged import StagedFile


@dataclass(frozen=True)
class Mark:
    """Who committed what last: kept in the table itself, in the same commit as the files."""

    app: str
    version: int


@dataclass(frozen=True)
class TableState:
    """A table as it stands."""

    version: int
    schema: pa.Schema
    marked: int | None
    """The newest batch of this pipeline that the table has."""


@dataclass(frozen=True)
class Commit:
    """Files to add to a table in one step, with the columns the table shall have then."""

    table: str
    schema: pa.Schema
    files: tuple[StagedFile, ...]
    mark: Mark
    partition_by: tuple[str, ...] = ()
    description: str | None = None
    rewrite: bool = False
    """Whether columns have other types than before: then all rows are written anew, in this
    commit too."""


class Committer(Protocol):
    """Commits files to the tables of a lake. Two adapters, one contract."""

    def state(self, table: str, app: str) -> TableState | None:
        """The table as it stands, or None where there is none."""
        ...

    def schema_at(self, table: str, version: int) -> pa.Schema:
        """The columns that the table had at a version."""
        ...

    def can_rewrite(self, table: str, up_to: int) -> bool:
        """Whether the table is small enough, and plain enough, to be written anew."""
        ...

    def commit(self, commit: Commit) -> int:
        """All of it or nothing; returns the table's new version. Does not look at marks."""
        ...
