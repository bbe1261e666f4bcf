"""A committer that fails on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.lake.commit import (
    Commit,
    Committer,
    Engine,
    MergeCommit,
    MergeCounts,
    TableState,
    Work,
)
from headgate.lake.compact import Compacted
from headgate.lake.definition import TableDefinition
from headgate.lake.snapshot import Snapshot


class Crash(BaseException):
    """The end of the process, which no handler of `Exception` catches."""


@dataclass
class FailingCommitter:
    """Commits with another committer, except to tables that are set to fail.

        lake.committer = FailingCommitter(lake.committer, refusing={"silver_chess"})

    Sets can be changed at any time; `heal` empties them all.
    """

    inner: Committer
    unreadable: set[str] = field(default_factory=set)
    """Tables whose state cannot be read."""
    refusing: set[str] = field(default_factory=set)
    """Tables that cannot be committed to."""
    losing_response: set[str] = field(default_factory=set)
    """Tables that are committed to, although the commit raises."""
    crashing_before: set[str] = field(default_factory=set)
    """Tables at which the process ends before the commit."""
    crashing_after: set[str] = field(default_factory=set)
    """Tables at which the process ends after the commit."""
    commits: list[Commit] = field(default_factory=list)
    """Everything that was committed."""

    def heal(self) -> None:
        """Let all tables succeed from now on."""
        self.unreadable.clear()
        self.refusing.clear()
        self.losing_response.clear()
        self.crashing_before.clear()
        self.crashing_after.clear()

    @property
    def lake(self) -> str:
        return self.inner.lake

    def engine(self, table: str | Snapshot, work: Work = "merge") -> Engine:
        return self.inner.engine(table, work)

    def state(self, table: str, app: str) -> TableState | None:
        if table in self.unreadable:
            raise OSError(f"{table} cannot be read")
        return self.inner.state(table, app)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return self.inner.schema_at(table, version)

    def definition(self, table: str, version: int) -> TableDefinition | None:
        return self.inner.definition(table, version)

    def can_rewrite(self, table: str, up_to: int) -> bool:
        return self.inner.can_rewrite(table, up_to)

    def commit(self, commit: Commit) -> int:
        with self._failures(commit.table):
            version = self.inner.commit(commit)
            self.commits.append(commit)
        return version

    def merge(self, merge: MergeCommit) -> MergeCounts:
        with self._failures(merge.table):
            return self.inner.merge(merge)

    def compact(self, table: str, size: int, fewest: int = 2) -> Compacted:
        with self._failures(table):
            return self.inner.compact(table, size, fewest)

    @contextmanager
    def _failures(self, table: str) -> Iterator[None]:
        """Fail before or after a write to a table."""
        if table in self.crashing_before:
            raise Crash(table)
        if table in self.refusing:
            raise OSError(f"{table} cannot be written")
        yield
        if table in self.crashing_after:
            raise Crash(table)
        if table in self.losing_response:
            raise OSError(f"{table} was written, but the response was lost")
