"""Tombstones of deleted rows, so that a late change cannot bring a row back.

A tombstone holds a key and an order: changes of the key up to that order no longer count. Later
changes never invalidate it, so tombstones are only added; of several for a key the greatest counts.
If merged rows have no `_order` column, the orders of live rows are kept here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.fold import latest
from headgate.cdc.key import ROW_ID, TableKey
from headgate.lake.commit import Committer, commit_rows
from headgate.lake.snapshot import Snapshot

_MAX_FILES = 32
_FACTS = ("_order", "_source_timestamp")


class Tombstones:
    """The tombstones of one merged table."""

    def __init__(self, committer: Committer, name: str, key: TableKey) -> None:
        self._committer = committer
        self._name = name
        self._key = key
        self._table = Snapshot.newest(committer.lake, name)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys((*self._key.columns, ROW_ID, *_FACTS)))

    def drop_superseded(self, changes: pa.Table) -> pa.Table:
        """Return the changes whose key has no tombstone of a greater order."""
        tombstones = self._matching(changes, self._key.columns)
        if tombstones is None or not len(changes):
            return changes
        held = tombstones.group_by(list(self._key.columns)).aggregate([("_order", "max")])
        indexed = pa.table(
            {
                **{name: changes[name] for name in self._key.columns},
                "_headgate_index": pa.array(range(len(changes)), pa.int64()),
            }
        )
        joined = indexed.join(held, list(self._key.columns)).sort_by("_headgate_index")
        counts = pc.greater_equal(changes["_order"], joined["_order_max"])
        return changes.filter(counts.fill_null(True))

    def has_row_deletions_for(self, changes: pa.Table) -> bool:
        """Return whether any change belongs to a row that was deleted by row ID alone."""
        if self._key.by_row_id or ROW_ID not in changes.column_names:
            return False
        tombstones = self._matching(changes, (ROW_ID,))
        return tombstones is not None and tombstones[self._key.columns[0]].null_count > 0

    def add(self, *deleted: pa.Table, since: datetime | None = None) -> None:
        """Add the greatest order of each key, and of each row known by its row ID alone.

        A rewrite drops tombstones from before `since`: changes that old go to the quarantine.
        """
        parts = [self._as_tombstones(changes) for changes in deleted if len(changes)]
        if not parts:
            return
        rows = pa.concat_tables(parts)
        if self._table is not None and self._needs_rewrite(rows.schema):
            together = pa.concat_tables([self._read(), rows], promote_options="permissive")
            if since is not None:
                together = together.filter(pc.greater_equal(together["_source_timestamp"], since))
            self._write(latest(together, TableKey((*self._key.columns, ROW_ID))))
        else:
            self._append(rows)

    def _as_tombstones(self, changes: pa.Table) -> pa.Table:
        columns = {
            name: changes[name]
            if name in changes.column_names
            else pa.nulls(len(changes), pa.string())
            for name in self.columns
        }
        return pa.table(columns)

    def reset(self, changes: pa.Table) -> None:
        """Remove all tombstones, which may be of another key."""
        if self._table is not None:
            self._write(self._as_tombstones(changes.slice(0, 0)))

    def _matching(self, changes: pa.Table, by: Sequence[str]) -> pa.Table | None:
        if self._table is None:
            return None
        found = []
        values = changes[by[0]].unique()
        type_ = values.type
        for portion in self._table.portions(self.columns):
            rows = portion.filter(pc.is_in(portion[by[0]].cast(type_), value_set=values))
            if len(rows):
                found.append(rows)
        if not found:
            return None
        known = pa.Table.from_batches(found)
        for name in by:
            at = known.schema.get_field_index(name)
            known = known.set_column(at, name, known[name].cast(changes.schema.field(name).type))
        return known

    def _needs_rewrite(self, columns: pa.Schema) -> bool:
        """Return whether the table has too many files, or the type of the key has changed."""
        assert self._table is not None
        schema = self._table.schema
        same_types = all(field.type.equals(columns.field(field.name).type) for field in schema)
        return not same_types or len(self._table.sizes) >= _MAX_FILES

    def _read(self) -> pa.Table:
        assert self._table is not None
        return self._table.rows(self.columns)

    def _append(self, rows: pa.Table) -> None:
        commit_rows(self._committer, self._name, rows)

    def _write(self, rows: pa.Table) -> None:
        """Replace all tombstones."""
        commit_rows(self._committer, self._name, rows, mode="replace")
        self._table = Snapshot.newest(self._committer.lake, self._name)
