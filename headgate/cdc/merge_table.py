"""Bring one merged table up to date with its log: in a task of a Spark job, or on the driver.

Merging is idempotent, because a row is replaced only by a change of a greater order and the order
is total. So an interrupted merge is simply run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import by_row_id_alone, deletions, keyed_changes, latest, live
from headgate.cdc.key import (
    ORDER,
    ROW_ID,
    TableKey,
    columns_to_merge,
    current_key,
    merged_columns,
    newest_key,
)
from headgate.cdc.source_tables import newest_plausible
from headgate.cdc.tombstones import Tombstones
from headgate.cdc.unmerged import MergePlan, Unmerged
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.lake.commit import (
    Commit,
    CommitMode,
    Committer,
    Engine,
    Mark,
    MergeCommit,
    MergeCounts,
    MergeRule,
)
from headgate.lake.ledger_entries import MergeEntry
from headgate.lake.merge import replace_rows
from headgate.lake.parquet import stage_merge, stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError
from headgate.schema.changes import AddNestedField
from headgate.schema.conform import conform_chunked
from headgate.schema.fit import fit


@dataclass(frozen=True)
class TableMerged:
    """Result of a merge: the table is up to date with a version of its log."""

    table: str
    log: str
    log_version: int
    version: int
    engine: Engine
    changes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    created: bool = False
    append_only: bool = False
    was_up_to_date: bool = False
    """Whether an earlier merge, which the ledger may not have, did it."""
    rebuilt: str | None = None
    """Why the table was rebuilt."""

    @classmethod
    def up_to_date(cls, unmerged: Unmerged, table: Snapshot, engine: Engine) -> Self:
        assert unmerged.marked is not None
        log, version = unmerged.log.table, table.version
        return cls(
            table.table,
            log,
            unmerged.marked,
            version,
            engine,
            was_up_to_date=True,
        )

    @classmethod
    def of(
        cls,
        unmerged: Unmerged,
        table: str,
        committer: Committer,
        changes: int,
        counts: MergeCounts,
    ) -> Self:
        return cls(
            table,
            unmerged.log.table,
            unmerged.log.version,
            counts.version,
            committer.engine(table),
            changes,
            counts.inserted,
            counts.updated,
            counts.deleted,
            rebuilt=unmerged.rebuild,
        )

    def is_recorded(self, merges: Mapping[str, MergeEntry]) -> bool:
        """Whether an earlier merge did it that is among the given ones, by table."""
        recorded = merges.get(self.table)
        return (
            self.was_up_to_date
            and recorded is not None
            and recorded.log_version is not None
            and recorded.log_version >= self.log_version
        )

    @property
    def entry(self) -> MergeEntry:
        """Return the ledger entry."""
        return MergeEntry(
            self.table,
            rows=self.changes,
            table_version=self.version,
            log=self.log,
            log_version=self.log_version,
            engine=self.engine,
            inserted=self.inserted,
            updated=self.updated,
            deleted=self.deleted,
        )


@dataclass(frozen=True)
class NeedsSparkMerge:
    """Result for a table that is too large for one task; the folded changes are in a file."""

    plan: MergePlan
    table: str
    log_version: int
    marked: int | None
    """The version of the log that the table has."""
    rebuild: str | None
    folded: str | None
    """Path of that file; None if the whole log has to be folded."""
    is_history: bool = False

    @classmethod
    def of(
        cls,
        plan: MergePlan,
        table: str,
        unmerged: Unmerged,
        folded: str | None = None,
        is_history: bool = False,
    ) -> Self:
        facts = unmerged.log.version, unmerged.marked, unmerged.rebuild
        return cls(plan, table, *facts, folded, is_history)

    def open(self) -> Unmerged:
        """Return what the table lacks of its log, in another process."""
        log = ChangeLog.open(self.plan.lake, self.plan.log, self.log_version)
        assert log is not None
        app = self.plan.app_for(log.table_id)
        return Unmerged(log, app, self.marked, log, self.rebuild)


IS_DELETED = "_is_deleted"
MAX_FOLD_BYTES = 64 << 20
"""Bytes of change files that one task folds; in memory they take many times as much."""


@dataclass(frozen=True)
class Folded:
    """The last change of each key, and the deletions to keep as tombstones."""

    changes: pa.Table
    deleted: tuple[pa.Table, ...]


def merge_table(plan: MergePlan, committer: Committer) -> TableMerged | NeedsSparkMerge | None:
    """Bring a merged table up to date with its log; return None if there is no log."""
    assert plan.merged is not None
    table = Snapshot.newest(plan.lake, plan.merged)
    unmerged = plan.unmerged(table)
    if unmerged is None:
        return None
    if table is not None and unmerged.is_empty:
        return TableMerged.up_to_date(unmerged, table, committer.engine(plan.merged))
    log, new = unmerged.log, unmerged.new
    if new.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge.of(plan, plan.merged, unmerged)
    changes = new.rows(columns_to_merge(log.schema))
    kept = TableKey.from_schema(table.schema) if table else None
    key = current_key(kept, newest_key(changes, plan.key))
    if table is None:
        return _create(plan, committer, unmerged, changes, key)
    if unmerged.rebuild is not None:
        return _rebuild(plan, committer, unmerged)
    if _is_outdated(plan, table, changes, key):
        return _rebuild(plan, committer, unmerged)
    key = kept or TableKey()
    schema = merged_columns(log.schema, key, plan.metadata)
    evolved = evolve_columns(committer, unmerged, table, schema)
    if evolved is None:
        return _rebuild(plan, committer, unmerged.rebuilt("another writer has changed its columns"))
    if not key:
        merged = _append(committer, unmerged, evolved, changes, schema)
        return _checked(plan, committer, unmerged, table, merged)
    tombstones = Tombstones(committer, plan.tombstones, key)
    if not tombstones.exist and table.mark(unmerged.tombstones_app) is not None:
        # A late change would bring a deleted row back.
        return _rebuild(plan, committer, unmerged.rebuilt(f"{plan.tombstones} is gone"))
    if tombstones.has_row_deletions_for(changes):
        # These changes name the key of a row that was deleted by row ID earlier.
        return _rebuild(plan, committer, unmerged)
    folded = fold_changes(changes, key, log, tombstones, keep_live=not plan.metadata)
    newest = newest_plausible(changes["_source_timestamp"])
    tombstones.add(*folded.deleted, newest=newest, horizon=timedelta(seconds=plan.horizon_seconds))
    source = merge_source(folded.changes, schema)
    if evolved.bytes > plan.spark_above:
        path = stage_merge(plan.lake, plan.merged, source)
        return NeedsSparkMerge.of(plan, plan.merged, unmerged, path)
    merge = MergeCommit(
        plan.merged,
        source,
        merge_rule(key, plan.metadata),
        unmerged.marks(tombstones, table),
        required_marks=unmerged.required_marks,
    )
    counts = committer.merge(merge)
    merged = TableMerged.of(unmerged, plan.merged, committer, len(folded.changes), counts)
    return _checked(plan, committer, unmerged, table, merged)


def _checked(
    plan: MergePlan,
    committer: Committer,
    unmerged: Unmerged,
    table: Snapshot,
    merged: TableMerged,
) -> TableMerged | NeedsSparkMerge:
    """Return the result of a merge; rebuild the table if others were faster."""
    again = unmerged.after_others(plan, table, merged.version)
    return merged if again is None else _rebuild(plan, committer, again)


def fold_changes(
    changes: pa.Table, key: TableKey, log: ChangeLog, tombstones: Tombstones, keep_live: bool
) -> Folded:
    """Return the last change of each key, without those that tombstones supersede."""
    last = latest(keyed_changes(changes, key, log.rows_by_id(key)), key)
    kept = last if keep_live else deletions(last)
    if ROW_ID in kept.column_names and not key.by_row_id:
        # A tombstone of a key does not apply to the row ID.
        kept = kept.drop_columns([ROW_ID])
    by_row = changes.filter(pa.array(by_row_id_alone(changes, key)))
    return Folded(tombstones.drop_superseded(last), (kept, by_row))


def _rebuild(
    plan: MergePlan, committer: Committer, unmerged: Unmerged
) -> TableMerged | NeedsSparkMerge:
    """Rebuild the table from the whole log, by the key that the newest change names."""
    assert plan.merged is not None
    log = unmerged.log
    if log.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge.of(plan, plan.merged, unmerged)
    changes = log.rows(columns_to_merge(log.schema))
    key = newest_key(changes, plan.key) or TableKey()
    return _create(plan, committer, unmerged, changes, key, rebuild=True)


def _create(
    plan: MergePlan,
    committer: Committer,
    unmerged: Unmerged,
    changes: pa.Table,
    key: TableKey,
    rebuild: bool = False,
) -> TableMerged:
    """Write all rows of a table, for the first time or to rebuild it."""
    assert plan.merged is not None
    log = unmerged.log
    schema = merged_columns(log.schema, key, plan.metadata)
    marks: tuple[Mark, ...] = (unmerged.mark,)
    if key:
        tombstones = Tombstones(committer, plan.tombstones, key)
        # There may be some of a table that was deleted.
        tombstones.reset(changes, create=rebuild)
        folded = fold_changes(changes, key, log, tombstones, keep_live=not plan.metadata)
        tombstones.add(*folded.deleted)
        marks = unmerged.marks(tombstones, None)
        rows = live(folded.changes)
    else:
        rows = changes
    rows = rows.select(schema.names).cast(schema)
    required = unmerged.required_marks
    version = replace_rows(
        committer, plan.merged, rows, key.columns, *marks, required_marks=required
    )
    counts = MergeCounts(version, inserted=len(rows))
    merged = TableMerged.of(unmerged, plan.merged, committer, len(changes), counts)
    return replace(merged, created=not rebuild, append_only=not key)


def _append(
    committer: Committer, unmerged: Unmerged, table: Snapshot, changes: pa.Table, schema: pa.Schema
) -> TableMerged:
    """Append every change to a table without a key."""
    fields = [table.schema.field(name) for name in schema.names]
    columns = [conform_chunked(changes[field.name], field.type) for field in fields]
    file = stage_rows(table.lake, table.table, pa.table(columns, schema=pa.schema(fields)))
    commit = Commit(
        table.table,
        table.schema,
        (file,),
        (unmerged.mark,),
        required_marks=unmerged.required_marks,
    )
    counts = MergeCounts(committer.commit(commit), inserted=len(changes))
    merged = TableMerged.of(unmerged, table.table, committer, len(changes), counts)
    return replace(merged, append_only=True)


def merge_rule(key: TableKey, metadata: bool) -> MergeRule:
    """Return how folded changes are merged.

    Without an order column, tombstones have already filtered the changes.
    """
    return MergeRule(key.columns, newer=ORDER if metadata else None, deleted=IS_DELETED)


def merge_source(folded: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the changes in the columns of the table, with a column that marks deletions."""
    columns = (
        pa.schema([*schema, pa.field(IS_DELETED, pa.bool_())])
        if IS_DELETED not in schema.names
        else schema
    )
    return folded.select(columns.names).cast(columns)


def evolve_columns(
    committer: Committer, unmerged: Unmerged, table: Snapshot, schema: pa.Schema
) -> Snapshot | None:
    """Add or widen columns of the table to match the log; columns that only it has stay.

    Return None if that is not enough, because others have dropped or retyped columns.
    """
    current = table.schema
    types = {field.name: field.type for field in current}
    if all(types.get(field.name) == field.type for field in schema):
        return table
    wanted = _with_columns_of(current, schema)
    if wanted is None or _has_lost_columns(unmerged, current):
        return None
    widened = any(types.get(field.name, field.type) != field.type for field in wanted)
    if not widened and len(wanted) == len(current):
        return table  # others have widened its columns
    mode: CommitMode = "rewrite" if widened else "append"
    assert unmerged.marked is not None
    # With its mark, so that the commit is known as ours.
    mark, required = Mark(unmerged.app, unmerged.marked), unmerged.required_marks
    committer.commit(Commit(table.table, wanted, (), (mark,), mode=mode, required_marks=required))
    evolved = Snapshot.newest(table.lake, table.table)
    assert evolved is not None
    return evolved


def _with_columns_of(table: pa.Schema, log: pa.Schema) -> pa.Schema | None:
    """Return the columns of a log, then others of its table; None if their types do not fit."""
    others = [field for field in table if field.name not in log.names]
    if {field.name.lower() for field in others} & {name.lower() for name in log.names}:
        return None
    columns = []
    for column in log:
        if column.name in table.names:
            fitted = fit(pa.schema([column]), pa.schema([table.field(column.name)])).schema
            if len(fitted) > 1:
                return None
            column = column.with_type(fitted.field(0).type)
        columns.append(column)
    return pa.schema([*columns, *others])


def _has_lost_columns(unmerged: Unmerged, table: pa.Schema) -> bool:
    """Whether a table lacks columns that its log had when it was merged the last time."""
    try:
        merged = ChangeLog.open(unmerged.log.lake, unmerged.log.table, unmerged.marked)
    except TableError:
        return False  # that version is gone
    own = [field for field in merged.schema if field.name not in LOG_COLUMN_NAMES] if merged else []
    if any(field.name not in table.names for field in own):
        return True
    fits = (fit(pa.schema([field]), pa.schema([table.field(field.name)])) for field in own)
    return any(isinstance(one, AddNestedField) for fitted in fits for one in fitted.changes)


def _is_outdated(plan: MergePlan, table: Snapshot, changes: pa.Table, key: TableKey) -> bool:
    """Return whether the table must be rebuilt: its key or its metadata setting has changed."""
    kept = TableKey.from_schema(table.schema)
    if kept and plan.metadata != (ORDER in table.schema.names):
        return True
    if key == kept or not key:
        return False
    if ORDER not in table.schema.names:
        return True
    newest = pc.max(table.read([ORDER])[ORDER]).as_py()
    return newest is None or bool(pc.max(changes[ORDER]).as_py() > newest)
