"""What a merged or history table lacks of its change log, and why it may have to be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from headgate.cdc.change_log import ChangeLog
from headgate.cdc.tombstones import Tombstones
from headgate.lake.commit import Mark
from headgate.lake.open_tables import KnownVersion
from headgate.lake.other_writers import changed_by_others
from headgate.lake.snapshot import Snapshot


@dataclass(frozen=True)
class MergePlan:
    """The log of one source table, and the tables to merge it into."""

    lake: str
    log: str
    merged: str | None
    history: str | None
    tombstones: str
    app: str
    """Transaction app ID; with the ID of a log, its version in a table is the last merged version
    of that log."""
    metadata: bool = True
    key: Sequence[str] | None = None
    """Declared by the pipeline, for changes that do not name one."""
    horizon_seconds: float = 0
    spark_above: int = 2 << 30
    committed: KnownVersion | None = None
    """A version of the log: for tables that have all changes before it, the log is not opened."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Newest versions, by table, that merges are known to have written."""

    @property
    def tables(self) -> list[str]:
        """Return all tables that a merge writes to."""
        return [one for one in (self.merged, self.history, self.tombstones) if one is not None]

    def app_for(self, log_id: str) -> str:
        """Return the app of the mark for a log: one that is created again has other versions."""
        return f"{self.app}@{log_id}"

    def unmerged(self, table: Snapshot | None) -> Unmerged | None:
        """Return what a table lacks of its log; None if there is no log."""
        if self.committed is not None and table is not None:
            log = ChangeLog.of(self.lake, self.log, self.committed)
            if table.mark(self.app_for(log.table_id)) == log.version - 1:
                return Unmerged.of(self, table, log)
        newest = ChangeLog.newest(self.lake, self.log)
        return None if newest is None else Unmerged.of(self, table, newest)


_CHANGED_ROWS = "another writer has changed its rows"


@dataclass(frozen=True)
class Unmerged:
    """What a table lacks of its change log."""

    log: ChangeLog
    app: str
    """Of the mark of the table."""
    marked: int | None
    """The version of the log that the table has."""
    new: ChangeLog
    """The log with the files since that version; with all files if the table is rebuilt."""
    rebuild: str | None = None
    """Why the table is rebuilt from the whole log."""

    @classmethod
    def of(cls, plan: MergePlan, table: Snapshot | None, log: ChangeLog) -> Self:
        app = plan.app_for(log.table_id)
        marked = table.mark(app) if table is not None else None
        if table is None:
            return cls(log, app, None, log)
        if marked is None:
            why = "it has not been merged from this change log"
        elif marked > log.version:
            why = f"its change log has no version {marked} any more"
        elif changed_by_others(table, plan.app, plan.written.get(table.table)):
            why = _CHANGED_ROWS
        else:
            new = log.since(marked)
            if new is not log:
                return cls(log, app, marked, new)
            why = "rows of its change log were rewritten"
        return cls(log, app, marked, log, why)

    @property
    def mark(self) -> Mark:
        """The mark of a table that has all changes of the log."""
        return Mark(self.app, self.log.version)

    @property
    def tombstones_app(self) -> str:
        """The app of the mark of a table that has tombstones: without them it is rebuilt."""
        return f"{self.app}:tombstones"

    def marks(self, tombstones: Tombstones, table: Snapshot | None) -> tuple[Mark, ...]:
        """Return the marks of a merged table after a merge."""
        is_marked = table is not None and table.mark(self.tombstones_app) is not None
        if is_marked or not tombstones.exist:
            return (self.mark,)
        return self.mark, Mark(self.tombstones_app, 0)

    @property
    def required_marks(self) -> Mapping[str, int | None]:
        """The mark that the table must still have: another process may merge it too."""
        return {self.app: self.marked}

    @property
    def is_empty(self) -> bool:
        return self.marked is not None and self.rebuild is None and not self.new.sizes

    def rebuilt(self, why: str) -> Unmerged:
        """Return the same for a table that is rebuilt."""
        return replace(self, new=self.log, rebuild=why)

    def after_others(self, plan: MergePlan, table: Snapshot, version: int) -> Unmerged | None:
        """Return how to rebuild a table if others changed rows just before a merge wrote a version.

        `table` is what the merge began with.
        """
        current = Snapshot.newest(table.lake, table.table) if version > table.version + 1 else None
        if current is None or not changed_by_others(current, plan.app, table.version):
            return None
        return replace(self, marked=current.mark(self.app)).rebuilt(_CHANGED_ROWS)
