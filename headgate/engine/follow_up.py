"""Follow-ups of batches: updates of merged and derived tables, behind the batches that land."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from time import monotonic
from types import TracebackType
from typing import ClassVar, Protocol, Self

import pyarrow as pa

from headgate.lake.definition import TableDefinition
from headgate.lake.ledger_entries import Entry, GoldEntry, MergeEntry, PredictionEntry
from headgate.lake.staged import StagedFile

_MAX_REST = 0.8
"""Seconds for which follow-ups rest, at most."""


@dataclass(frozen=True)
class TableChanged:
    """A table that got new rows."""

    table: str
    route: str | None = None
    files: tuple[StagedFile, ...] = ()
    """The committed files, if a batch landed them."""
    version: int | None = None
    """Version of the table."""
    schema: pa.Schema | None = None
    """Columns of the table at that version."""
    definition: TableDefinition | None = None
    """Protocol and metadata of the table at that version, if the commit knew them."""
    is_own: bool = False
    """Whether it is a table of the pipeline itself, such as the quarantine."""
    source: object | None = None
    """What the plan of the batch knows of the table's source."""

    def without_files(self) -> Self:
        """Return the same without what only the plan of the next batch needs."""
        return replace(self, files=())


@dataclass(frozen=True)
class Followed:
    """The result of a follow-up: entries for the ledger, and the tables that it changed."""

    entries: Sequence[Entry] = ()
    tables: Sequence[TableChanged] = ()


class FollowUp(Protocol):
    """Brings tables up to date with those that they are derived from.

    A follow-up is idempotent: after a crash, the next run repeats it.
    """

    while_idle: ClassVar[bool]
    """Whether to call it also while the source is idle, a few times per second."""
    of_all_tables: ClassVar[bool]
    """Whether it gets all tables that have changed, rather than those of the follow-up before."""

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        """Update the tables that depend on changed ones.

        The first call also covers what an earlier run has left undone. Without a batch, nothing is
        postponed.
        """
        ...


@dataclass(frozen=True)
class FollowedUpTo:
    """What follow-ups have done since it was last recorded."""

    entries: Sequence[Entry] = ()
    version: int | None = None
    """The newest batch that they have followed; None if there is nothing to record."""


class Follower:
    """Runs follow-ups in a thread of its own, so that the next batch does not wait for them.

    Batches that land in the meantime are followed afterwards, all at once. In between,
    follow-ups rest as long as they took: they cost less if they are fewer, and batches that land
    meanwhile have all cores.
    """

    def __init__(
        self, follow_ups: Sequence[FollowUp], prepare_thread: Callable[[], None] = lambda: None
    ) -> None:
        self.follow_ups = follow_ups
        self._pool = ThreadPoolExecutor(1, "follow-up", prepare_thread)
        self._under_way: deque[Future[FollowedUpTo]] = deque()
        self._lock = Lock()
        self._waiting: _Waiting | None = None
        self._rested_at = 0.0
        self._in_a_hurry = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        self._in_a_hurry.set()
        self._pool.shutdown(cancel_futures=kind is not None)

    @property
    def is_busy(self) -> bool:
        return any(not one.done() for one in self._under_way)

    def follow(
        self, changed: Sequence[TableChanged], version: int, batch: int | None = None
    ) -> None:
        """Follow a batch as soon as possible; see `FollowUp.follow`."""
        if not self.follow_ups:
            return
        with self._lock:
            earlier = self._waiting
            tables = dict(earlier.tables) if earlier else {}
            tables |= {table.table: table.without_files() for table in changed}
            self._waiting = _Waiting(tables, version, batch)
        if earlier is None:
            self._under_way.append(self._pool.submit(self._follow_waiting))

    def follow_while_idle(self) -> None:
        """Call the follow-ups that have something to do without any change."""
        idle = [one for one in self.follow_ups if one.while_idle]
        if idle and not self.is_busy:
            self._under_way.append(self._pool.submit(_follow_all, idle, _Waiting()))

    def finished(self) -> FollowedUpTo:
        """Return what is done since the last call; raise its error, if any."""
        return self._result(lambda one: one.done())

    def wait(self) -> FollowedUpTo:
        """Wait until every batch is followed."""
        self._in_a_hurry.set()
        try:
            return self._result(lambda _: True)
        finally:
            self._in_a_hurry.clear()

    def _result(self, is_wanted: Callable[[Future[FollowedUpTo]], bool]) -> FollowedUpTo:
        entries: list[Entry] = []
        version = None
        while self._under_way and is_wanted(self._under_way[0]):
            done = self._under_way.popleft().result()
            entries += done.entries
            version = version if done.version is None else done.version
        return FollowedUpTo(entries, version)

    def _follow_waiting(self) -> FollowedUpTo:
        self._in_a_hurry.wait(self._rested_at - monotonic())
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is None:
            return FollowedUpTo()  # followed together with an earlier batch
        began = monotonic()
        followed = _follow_all(self.follow_ups, waiting)
        ended = monotonic()
        self._rested_at = ended + min(ended - began, _MAX_REST)
        return followed


@dataclass(frozen=True)
class _Waiting:
    """Changes that are not followed yet."""

    tables: Mapping[str, TableChanged] = field(default_factory=dict)
    """By name, each as it was changed last: however long follow-ups take, there is one of each."""
    version: int | None = None
    batch: int | None = None


def _follow_all(follow_ups: Sequence[FollowUp], waiting: _Waiting) -> FollowedUpTo:
    """Run follow-ups in order; each gets the tables that the one before has changed."""
    entries: list[Entry] = []
    every = [*waiting.tables.values()]
    changed: Sequence[TableChanged] = [one for one in every if not one.is_own]
    for follow_up in follow_ups:
        if follow_up.of_all_tables:
            entries += follow_up.follow(every, waiting.batch).entries
            continue
        followed = follow_up.follow(changed, waiting.batch)
        entries += followed.entries
        changed = followed.tables
        every += [
            TableChanged(one.table, version=one.table_version)
            for one in followed.entries
            if isinstance(one, MergeEntry | GoldEntry | PredictionEntry)
        ]
    return FollowedUpTo(entries, waiting.version)
