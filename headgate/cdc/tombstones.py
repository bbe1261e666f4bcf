"""Tombstones of deleted rows, so that a late change cannot bring a row back.

A tombstone holds a key and an order: changes of the key up to that order no longer count. Later
changes never invalidate it, so tombstones are only added; of several for a key the greatest counts.
If merged rows have no `_order` column, the orders of live rows are kept here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.fold import latest
from headgate.cdc.key import ROW_ID, TableKey
from headgate.lake.commit import Committer, MergeCommit, MergeRule, commit_rows
from headgate.lake.key_index import KeyIndex
from headgate.lake.merge import find_rows, replace_rows
from headgate.lake.snapshot import Snapshot

_MAX_FILES = 32
_FACTS = ("_order", "_source_timestamp")

# Working columns, beside those of the key, whose names have only letters, digits and `_`.
_INDEX = "#index"
_GREATEST = "#greatest"


class Tombstones:
    """The tombstones of one merged table."""

    def __init__(self, committer: Committer, name: str, key: TableKey) -> None:
        self._committer = committer
        self._name = name
        self._key = key
        self._table = Snapshot.newest(committer.lake, name)
        self.exist = self._table is not None
        """Whether there is a table of them."""

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys((*self._key.columns, ROW_ID, *_FACTS)))

    def drop_superseded(self, changes: pa.Table) -> pa.Table:
        """Return the changes whose key has no tombstone of a greater order."""
        if self._are_before(changes):
            return changes
        tombstones = self._matching(changes, self._key.columns)
        if tombstones is None or not len(tombstones):
            return changes
        key = list(self._key.columns)
        held = tombstones.group_by(key).aggregate([("_order", "max")])
        held = held.rename_columns([*key, _GREATEST])
        indexed = changes.select(key).append_column(_INDEX, pa.array(range(len(changes))))
        joined = indexed.join(held, key).sort_by(_INDEX)
        counts = pc.greater_equal(changes["_order"], joined[_GREATEST])
        return changes.filter(counts.fill_null(True))

    def has_row_deletions_for(self, changes: pa.Table) -> bool:
        """Return whether any change belongs to a row that was deleted by row ID alone."""
        if self._key.by_row_id or ROW_ID not in changes.column_names:
            return False
        tombstones = self._matching(changes, (ROW_ID,))
        return tombstones is not None and tombstones[self._key.columns[0]].null_count > 0

    def add(
        self, *deleted: pa.Table, newest: datetime | None = None, horizon: timedelta = timedelta()
    ) -> None:
        """Add the greatest order of each key, and of each row known by its row ID alone.

        Those that are older than the horizon are dropped now and then: changes that old go to the
        quarantine.
        """
        parts = [self._as_tombstones(changes) for changes in deleted if len(changes)]
        if not parts:
            return
        rows = pa.concat_tables(parts)
        since = _earlier(newest, horizon) if newest is not None and horizon else None
        table = self._table
        if table is None:
            commit_rows(self._committer, self._name, rows)
            self.exist = True
        elif not self._has_types_of(rows) or (
            since and self._begins_before(_earlier(since, horizon))
        ):
            known = table.rows(self.columns)
            together = pa.concat_tables([known, rows], promote_options="permissive")
            if since is not None:
                together = together.filter(pc.greater_equal(together["_source_timestamp"], since))
            self._write(latest(together, self._identity))
        elif len(table.sizes) >= _MAX_FILES:
            rule = MergeRule(self._identity.columns, newer="_order")
            self._committer.merge(MergeCommit(self._name, latest(rows, self._identity), rule))
        else:
            commit_rows(self._committer, self._name, rows)

    def _as_tombstones(self, changes: pa.Table) -> pa.Table:
        columns = {
            name: changes[name]
            if name in changes.column_names
            else pa.nulls(len(changes), pa.string())
            for name in self.columns
        }
        return pa.table(columns)

    def reset(self, changes: pa.Table, create: bool = False) -> None:
        """Remove all tombstones, which may be of another key, or create the table for them."""
        if self._table is not None or create:
            self._write(self._as_tombstones(changes.slice(0, 0)))

    def _matching(self, changes: pa.Table, by: Sequence[str]) -> pa.Table | None:
        """Return the tombstones that have values of the changes in some columns."""
        if self._table is None:
            return None
        if all(self._table.schema.field(name).type == changes[name].type for name in by):
            return find_rows(self._table, KeyIndex(changes, by), self.columns).rows
        known = self._table.rows(self.columns)
        for name in by:
            at = known.schema.get_field_index(name)
            known = known.set_column(at, name, known[name].cast(changes.schema.field(name).type))
        return known.filter(pa.array(KeyIndex(changes, by).find(known) >= 0))

    @property
    def _identity(self) -> TableKey:
        return TableKey((*self._key.columns, ROW_ID))

    def _has_types_of(self, rows: pa.Table) -> bool:
        """Return whether the types of the key are still the same."""
        assert self._table is not None
        return all(field.type == rows[field.name].type for field in self._table.schema)

    def _are_before(self, changes: pa.Table) -> bool:
        """Return whether all tombstones are older than all changes, as they are in order."""
        if self._table is None or not len(changes):
            return True
        known, name = self._table.statistics(), "max._order"
        if name not in known.column_names or known[name].null_count:
            return False
        newest = pc.max(known[name]).as_py()
        return newest is None or bool(newest < pc.min(changes["_order"]).as_py())

    def _begins_before(self, time: datetime) -> bool:
        """Return whether there are tombstones from before a time."""
        assert self._table is not None
        known, name = self._table.statistics(), "min._source_timestamp"
        oldest = pc.min(known[name]).as_py() if name in known.column_names else None
        return oldest is not None and bool(oldest < time)

    def _write(self, rows: pa.Table) -> None:
        """Replace all tombstones."""
        replace_rows(self._committer, self._name, rows, self._identity.columns)
        self._table, self.exist = Snapshot.newest(self._committer.lake, self._name), True


def _earlier(time: datetime, by: timedelta) -> datetime:
    """Return an earlier time, or the first one that there is."""
    first = datetime.min.replace(tzinfo=UTC)
    return time - by if time - first > by else first
