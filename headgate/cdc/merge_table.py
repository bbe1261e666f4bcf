"""Bring one merged table up to date with its log: in a task of a Spark job, or on the driver.

Merging is idempotent, because a row is replaced only by a change of a greater order and the order
is total. So an interrupted merge is simply run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from headgate.lake.commit import (
    Commit,
    CommitMode,
    Committer,
    Engine,
    Mark,
    MergeCommit,
    MergeCounts,
    MergeRule,
    commit_rows,
)
from headgate.lake.ledger_entries import MergeEntry
from headgate.lake.merge import replace_rows
from headgate.lake.open_tables import KnownVersion
from headgate.lake.parquet import stage_merge
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
    """Transaction app ID; its version in a table is the last merged version of the log."""
    metadata: bool = True
    key: Sequence[str] | None = None
    """Declared by the pipeline, for changes that do not name one."""
    horizon_seconds: float = 0
    spark_above: int = 2 << 30
    committed: KnownVersion | None = None
    """A version of the log: for tables that have all changes before it, the log is not opened."""

    @property
    def tables(self) -> list[str]:
        """Return all tables that a merge writes to."""
        return [one for one in (self.merged, self.history, self.tombstones) if one is not None]

    def mark(self, log_version: int) -> Mark:
        """Return the mark of a table that has all changes up to a version of the log."""
        return Mark(self.app, log_version)

    def open_log(self, marked: int | None) -> ChangeLog | None:
        """Return the log, given the version that a table has; None if there is no log."""
        if self.committed is not None and marked == self.committed.version - 1:
            return ChangeLog.of(self.lake, self.log, self.committed)
        return ChangeLog.newest(self.lake, self.log)


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

    @classmethod
    def up_to_date(cls, plan: MergePlan, table: Snapshot, marked: int, engine: Engine) -> Self:
        return cls(table.table, plan.log, marked, table.version, engine, was_up_to_date=True)

    @classmethod
    def of(
        cls,
        plan: MergePlan,
        table: str,
        log_version: int,
        committer: Committer,
        changes: int,
        counts: MergeCounts,
    ) -> Self:
        return cls(
            table,
            plan.log,
            log_version,
            counts.version,
            committer.engine(table),
            changes,
            counts.inserted,
            counts.updated,
            counts.deleted,
        )

    def is_recorded(self, versions: Mapping[str, int]) -> bool:
        """Whether an earlier merge did it that is among the given versions of logs, by table."""
        return self.was_up_to_date and versions.get(self.table, -1) >= self.log_version

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
    folded: str | None
    """Path of that file; None if the whole log has to be folded."""
    is_history: bool = False


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
    marked = table.mark(plan.app) if table else None
    log = plan.open_log(marked)
    if log is None:
        return None
    new = log.since(marked)
    if table is not None and marked is not None and new is not log and not new.sizes:
        return TableMerged.up_to_date(plan, table, marked, committer.engine(plan.merged))
    if new.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge(plan, plan.merged, log.version, None)
    changes = new.rows(columns_to_merge(log.schema))
    kept = TableKey.from_schema(table.schema) if table else None
    key = current_key(kept, newest_key(changes, plan.key))
    if table is None:
        return _create(plan, committer, log, changes, key, rebuild=False)
    if _is_outdated(plan, table, changes, key) or (new is log and not kept):
        return _rebuild(plan, committer, log)
    key = kept or TableKey()
    schema = merged_columns(log.schema, key, plan.metadata)
    table = evolve_columns(plan, committer, plan.merged, table, schema)
    if not key:
        return _append(plan, committer, log, changes, schema)
    tombstones = Tombstones(committer, plan.tombstones, key)
    if tombstones.has_row_deletions_for(changes):
        # These changes name the key of a row that was deleted by row ID earlier.
        return _rebuild(plan, committer, log)
    folded = fold_changes(changes, key, log, tombstones, keep_live=not plan.metadata)
    newest = newest_plausible(changes["_source_timestamp"])
    tombstones.add(*folded.deleted, newest=newest, horizon=timedelta(seconds=plan.horizon_seconds))
    if table.bytes > plan.spark_above:
        path = stage_merge(plan.lake, plan.merged, merge_source(folded.changes, schema))
        return NeedsSparkMerge(plan, plan.merged, log.version, path)
    source = merge_source(folded.changes, schema)
    rule = merge_rule(key, plan.metadata)
    counts = committer.merge(MergeCommit(plan.merged, source, rule, (plan.mark(log.version),)))
    return _merged(plan, committer, log, len(folded.changes), counts)


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
    plan: MergePlan, committer: Committer, log: ChangeLog
) -> TableMerged | NeedsSparkMerge:
    """Rebuild the table from the whole log, by the key that the newest change names."""
    assert plan.merged is not None
    if log.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge(plan, plan.merged, log.version, None)
    changes = log.rows(columns_to_merge(log.schema))
    key = newest_key(changes, plan.key) or TableKey()
    return _create(plan, committer, log, changes, key, rebuild=True)


def _create(
    plan: MergePlan,
    committer: Committer,
    log: ChangeLog,
    changes: pa.Table,
    key: TableKey,
    rebuild: bool,
) -> TableMerged:
    """Write all rows of a table, for the first time or to rebuild it."""
    assert plan.merged is not None
    schema = merged_columns(log.schema, key, plan.metadata)
    if key:
        tombstones = Tombstones(committer, plan.tombstones, key)
        if rebuild:
            tombstones.reset(changes)
        folded = fold_changes(changes, key, log, tombstones, keep_live=not plan.metadata)
        tombstones.add(*folded.deleted)
        rows = live(folded.changes)
    else:
        rows = changes
    rows = rows.select(schema.names).cast(schema)
    version = replace_rows(committer, plan.merged, rows, key.columns, plan.mark(log.version))
    counts = MergeCounts(version, inserted=len(rows))
    merged = _merged(plan, committer, log, len(changes), counts)
    return replace(merged, created=not rebuild, append_only=not key)


def _append(
    plan: MergePlan, committer: Committer, log: ChangeLog, changes: pa.Table, schema: pa.Schema
) -> TableMerged:
    """Append every change to a table without a key."""
    assert plan.merged is not None
    rows = changes.select(schema.names).cast(schema)
    version = commit_rows(committer, plan.merged, rows, plan.mark(log.version))
    counts = MergeCounts(version, inserted=len(changes))
    return replace(_merged(plan, committer, log, len(changes), counts), append_only=True)


def _merged(
    plan: MergePlan, committer: Committer, log: ChangeLog, changes: int, counts: MergeCounts
) -> TableMerged:
    assert plan.merged is not None
    return TableMerged.of(plan, plan.merged, log.version, committer, changes, counts)


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
    plan: MergePlan,
    committer: Committer,
    name: str,
    table: Snapshot,
    schema: pa.Schema,
) -> Snapshot:
    """Add or widen columns of the table to match the log."""
    current = table.schema
    types = {field.name: field.type for field in current}
    if all(types.get(field.name) == field.type for field in schema):
        return table
    dropped = [field for field in current if field.name not in schema.names]
    wanted = pa.schema([*schema, *dropped])
    widened = any(
        field.name in current.names and not current.field(field.name).type.equals(field.type)
        for field in wanted
    )
    mode: CommitMode = "rewrite" if widened else "append"
    committer.commit(Commit(name, wanted, (), mode=mode))
    evolved = Snapshot.newest(plan.lake, name)
    assert evolved is not None
    return evolved


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
