"""Commits of tables, read once for all queries of this process.

Recent commits are kept in memory up to a limit. A query that is further behind reads its commits
itself: a slow reader costs time, not memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from headgate.lake.changes import ChangeReader, Changes, table_gone, version_gone
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError

_MAX_BYTES = 64 << 20
"""The size of the recent commits of one table that are kept."""


class Feed:
    """The commits of one table."""

    def __init__(self, snapshot: Snapshot, key: Sequence[str] = ()) -> None:
        self.lake, self.table, self.key = snapshot.lake, snapshot.table, key
        self.table_id = snapshot.table_id
        self.commits_read = 0
        self._newest: ChangeReader | None = None
        self._recent: OrderedDict[int, Changes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def after(self, version: int) -> FeedPosition:
        """Return a position after a version."""
        return FeedPosition(self, version)

    def read(self, version: int) -> Changes | None:
        """Return the changes of a version, if it is among the recent ones or the next to come.

        Raises `KeyError` for an older version.
        """
        with self._lock:
            if (kept := self._recent.get(version)) is not None:
                return kept
            if self._newest is None or self._newest.version < version - 1:
                self._newest = self.open(version - 1)
            if self._newest.version != version - 1:
                raise KeyError(version)
            changes = self._newest.next()
            if changes is not None:
                self.commits_read += 1
                self._keep(changes)
            return changes

    def open(self, version: int) -> ChangeReader:
        """Return a reader of the commits after a version."""
        try:
            snapshot = Snapshot.open(self.lake, self.table, version)
        except TableError:
            if self._is_same(_newest(self.lake, self.table)):
                raise version_gone(self.table, version, "its log has been cleaned up") from None
            raise table_gone(self.table) from None
        if snapshot is None or not self._is_same(snapshot):
            raise table_gone(self.table)
        return ChangeReader(snapshot, self.key)

    def _is_same(self, snapshot: Snapshot | None) -> bool:
        return snapshot is not None and snapshot.table_id == self.table_id

    def _keep(self, changes: Changes) -> None:
        self._recent[changes.version] = changes
        self._bytes += changes.rows.bytes
        while self._bytes > _MAX_BYTES and self._recent:
            _, dropped = self._recent.popitem(last=False)
            self._bytes -= dropped.rows.bytes


def _newest(lake: str, table: str) -> Snapshot | None:
    """Return the newest version of a table that may be about to disappear."""
    try:
        return Snapshot.open(lake, table)
    except TableError:
        return None


class FeedPosition:
    """How far one query has read a feed."""

    def __init__(self, feed: Feed, version: int) -> None:
        self.feed, self.version = feed, version
        self._own: ChangeReader | None = None
        self._ahead: Changes | None = None

    def peek(self) -> Changes | None:
        """Return the changes of the next commit; None if there is none yet."""
        if self._ahead is None:
            self._ahead = self._read(self.version + 1)
        return self._ahead

    def advance(self) -> None:
        """Go on to the commit after the one that was returned last."""
        assert self._ahead is not None
        self.version, self._ahead = self._ahead.version, None

    def _read(self, version: int) -> Changes | None:
        try:
            changes = self.feed.read(version)
        except KeyError:
            if self._own is None or self._own.version != version - 1:
                self._own = self.feed.open(version - 1)
            return self._own.next()
        self._own = None
        return changes


class Feeds:
    """The feeds of a lake, one for each table that is read."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}
        self._lock = threading.Lock()

    def of(self, snapshot: Snapshot, key: Sequence[str] = ()) -> Feed:
        """Return the feed of a table; a new one if the table has been replaced."""
        with self._lock:
            kept = self._feeds.get(snapshot.table)
            if kept is None or kept.table_id != snapshot.table_id:
                kept = self._feeds[snapshot.table] = Feed(snapshot, key)
            return kept
