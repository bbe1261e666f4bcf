"""A committer that fails on demand, and a run that ends in the middle of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.lake.commit import Commit, Committer, Engine, Merge, MergeCounts, TableState
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import Entry


class Crash(BaseException):
    """The end of the process, which no handler of `Exception` catches."""


@dataclass
class FailingCommitter:
    """Commits with another committer, except to tables that are set to fail."""

    inner: Committer
    unreadable: set[str] = field(default_factory=set)
    """Tables whose state cannot be read."""
    refusing: set[str] = field(default_factory=set)
    """Tables that cannot be committed to."""
    silent: set[str] = field(default_factory=set)
    """Tables that are committed to, although the commit raises."""
    crashing_before: set[str] = field(default_factory=set)
    crashing_after: set[str] = field(default_factory=set)
    commits: list[Commit] = field(default_factory=list)

    def heal(self) -> None:
        for failing in (
            self.unreadable,
            self.refusing,
            self.silent,
            self.crashing_before,
            self.crashing_after,
        ):
            failing.clear()

    @property
    def lake(self) -> str:
        return self.inner.lake

    def engine(self, table: str) -> Engine:
        return self.inner.engine(table)

    def state(self, table: str, app: str) -> TableState | None:
        if table in self.unreadable:
            raise OSError(f"{table} cannot be read")
        return self.inner.state(table, app)

    def schema_at(self, table: str, version: int) -> pa.Schema:
        return self.inner.schema_at(table, version)

    def can_rewrite(self, table: str, up_to: int) -> bool:
        return self.inner.can_rewrite(table, up_to)

    def commit(self, commit: Commit) -> int:
        with self._failing(commit.table):
            version = self.inner.commit(commit)
            self.commits.append(commit)
        return version

    def merge(self, merge: Merge) -> MergeCounts:
        with self._failing(merge.table):
            return self.inner.merge(merge)

    @contextmanager
    def _failing(self, table: str) -> Iterator[None]:
        if table in self.crashing_before:
            raise Crash(table)
        if table in self.refusing:
            raise OSError(f"{table} cannot be written")
        yield
        if table in self.crashing_after:
            raise Crash(table)
        if table in self.silent:
            raise OSError(f"{table} was written, but the response was lost")


class CrashingLedger(Ledger):
    """A ledger that crashes before it records a batch."""

    crashing = False

    def complete(self, version: int, batch: int, entries: Sequence[Entry]) -> None:
        if self.crashing:
            raise Crash("ledger")
        super().complete(version, batch, entries)
