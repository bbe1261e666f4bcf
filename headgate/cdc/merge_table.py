"""Bring one merged table up to date with its log: in a task of a Spark job, with delta-rs.

Merging is idempotent, because a row is replaced only by a change of a greater order and the order
is total. So an interrupted merge is simply run again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import apply_changes, by_row_id_alone, deletions, keyed_changes, latest, live
from headgate.cdc.key import (
    ORDER,
    ROW_ID,
    TableKey,
    columns_to_merge,
    current_key,
    merged_columns,
    newest_key,
)
from headgate.cdc.tombstones import Tombstones
from headgate.lake.commit import Commit, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger_entries import MergeEntry
from headgate.lake.parquet import stage_merge
from headgate.lake.snapshot import Snapshot
from headgate.lake.write import (
    MergeClauses,
    MergeCounts,
    commit_files,
    merge_rows,
    new_file,
    replace_rows,
)

Engine = Literal["delta-rs", "spark"]


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
    in_memory_up_to: int = 16 << 20
    """Largest table in bytes that is merged in memory."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MergePlan:
        return cls(**json.loads(text))


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


def merge_table(plan: MergePlan) -> TableMerged | NeedsSparkMerge | None:
    """Bring a merged table up to date with its log; return None if there is nothing new."""
    assert plan.merged is not None
    log = ChangeLog.newest(plan.lake, plan.log)
    if log is None:
        return None
    table = Snapshot.newest(plan.lake, plan.merged)
    marked = table.mark(plan.app) if table else None
    if marked is not None and marked >= log.version:
        return None
    new = log.since(marked)
    if new.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge(plan, plan.merged, log.version, None)
    changes = new.rows(columns_to_merge(log.schema))
    kept = TableKey.from_schema(table.schema) if table else None
    key = current_key(kept, newest_key(changes, plan.key))
    if table is None:
        return _create(plan, log, changes, key, rebuild=False)
    if _is_outdated(plan, table, changes, key) or (new is log and not kept):
        return _rebuild(plan, log)
    key = kept or TableKey()
    schema = merged_columns(log.schema, key, plan.metadata)
    table = evolve_columns(plan, plan.merged, table, schema, marked)
    if not key:
        return _append(plan, log, table, changes, schema)
    tombstones = Tombstones(plan.lake, plan.tombstones, key)
    if tombstones.has_row_deletions_for(changes):
        # These changes name the key of a row that was deleted by row ID earlier.
        return _rebuild(plan, log)
    folded = fold_changes(changes, key, log, tombstones, keep_live=not plan.metadata)
    tombstones.add(*folded.deleted, since=_horizon(plan, changes))
    if table.bytes > plan.spark_above:
        path = stage_merge(plan.lake, plan.merged, merge_source(folded.changes, schema))
        return NeedsSparkMerge(plan, plan.merged, log.version, path)
    if table.bytes <= plan.in_memory_up_to and plan.metadata:
        return _merge_in_memory(plan, log, table, folded.changes, key)
    return _merge(plan, log, table, folded.changes, schema, key)


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


def _rebuild(plan: MergePlan, log: ChangeLog) -> TableMerged | NeedsSparkMerge:
    """Rebuild the table from the whole log, by the key that the newest change names."""
    assert plan.merged is not None
    if log.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge(plan, plan.merged, log.version, None)
    changes = log.rows(columns_to_merge(log.schema))
    return _create(plan, log, changes, newest_key(changes, plan.key) or TableKey(), rebuild=True)


def _create(
    plan: MergePlan, log: ChangeLog, changes: pa.Table, key: TableKey, rebuild: bool
) -> TableMerged:
    """Write all rows of a table, for the first time or to rebuild it."""
    assert plan.merged is not None
    schema = merged_columns(log.schema, key, plan.metadata)
    if key:
        tombstones = Tombstones(plan.lake, plan.tombstones, key)
        if rebuild:
            tombstones.reset(changes)
        folded = fold_changes(changes, key, log, tombstones, keep_live=not plan.metadata)
        tombstones.add(*folded.deleted)
        rows = live(folded.changes)
    else:
        rows = changes
    rows = rows.select(schema.names).cast(schema)
    version = replace_rows(plan.lake, plan.merged, rows, _mark(plan, log))
    return TableMerged(
        plan.merged,
        plan.log,
        log.version,
        version,
        "delta-rs",
        changes=len(changes),
        inserted=len(rows),
        created=not rebuild,
        append_only=not key,
    )


def _append(
    plan: MergePlan, log: ChangeLog, table: Snapshot, changes: pa.Table, schema: pa.Schema
) -> TableMerged:
    """Append every change to a table without a key."""
    assert plan.merged is not None
    rows = changes.select(schema.names).cast(schema)
    file = new_file(plan.lake, plan.merged, rows)
    version = commit_files(plan.lake, plan.merged, table, [file], marks=[_mark(plan, log)])
    return TableMerged(
        plan.merged,
        plan.log,
        log.version,
        version,
        "delta-rs",
        changes=len(changes),
        inserted=len(changes),
        append_only=True,
    )


def _merge_in_memory(
    plan: MergePlan, log: ChangeLog, table: Snapshot, folded: pa.Table, key: TableKey
) -> TableMerged:
    """Merge in memory: in a small table nearly every file would be rewritten anyway."""
    assert plan.merged is not None
    result = apply_changes(table.rows(), merge_source(folded, table.schema), key)
    version = commit_files(
        plan.lake,
        plan.merged,
        table,
        [new_file(plan.lake, plan.merged, result.rows)],
        marks=[_mark(plan, log)],
        replace=True,
    )
    counts = MergeCounts(version, result.inserted, result.updated, result.deleted)
    return _merged(plan, log, folded, counts)


def _merge(
    plan: MergePlan,
    log: ChangeLog,
    table: Snapshot,
    folded: pa.Table,
    schema: pa.Schema,
    key: TableKey,
) -> TableMerged:
    newer = newer_than_row(plan.metadata)
    clauses = MergeClauses(
        on=same_key(key, '"'),
        delete=f"change.{IS_DELETED}{newer}",
        update=f"NOT change.{IS_DELETED}{newer}",
        insert=f"NOT change.{IS_DELETED}",
        flag=IS_DELETED,
    )
    source = merge_source(folded, schema)
    return _merged(plan, log, folded, merge_rows(table, source, clauses, _mark(plan, log)))


def _merged(plan: MergePlan, log: ChangeLog, folded: pa.Table, counts: MergeCounts) -> TableMerged:
    assert plan.merged is not None
    return TableMerged(
        plan.merged,
        plan.log,
        log.version,
        counts.version,
        "delta-rs",
        changes=len(folded),
        inserted=counts.inserted,
        updated=counts.updated,
        deleted=counts.deleted,
    )


def merge_source(folded: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the changes in the columns of the table, with a column that marks deletions."""
    columns = (
        pa.schema([*schema, pa.field(IS_DELETED, pa.bool_())])
        if IS_DELETED not in schema.names
        else schema
    )
    return folded.select(columns.names).cast(columns)


def same_key(key: TableKey, quote: str) -> str:
    """Return the join condition; the engines differ in how they quote names."""
    return " AND ".join(
        f"row.{quote}{name}{quote} = change.{quote}{name}{quote}" for name in key.columns
    )


def newer_than_row(metadata: bool) -> str:
    """Return the order condition; without an order column, tombstones have filtered already."""
    return f" AND change.{ORDER} > row.{ORDER}" if metadata else ""


def evolve_columns(
    plan: MergePlan, name: str, table: Snapshot, schema: pa.Schema, marked: int | None
) -> Snapshot:
    """Add or widen columns of the table to match the log."""
    current = table.schema
    if {field.name: field.type for field in current} == {
        field.name: field.type for field in schema
    }:
        return table
    dropped = [field for field in current if field.name not in schema.names]
    wanted = pa.schema([*schema, *dropped])
    widened = any(
        field.name in current.names and not current.field(field.name).type.equals(field.type)
        for field in wanted
    )
    mark = Mark(plan.app, -1 if marked is None else marked)
    committer = DeltaRsCommitter(plan.lake)
    committer.commit(Commit(name, wanted, (), mark, rewrite=widened))
    evolved = Snapshot.newest(plan.lake, name)
    assert evolved is not None
    return evolved


def _horizon(plan: MergePlan, changes: pa.Table) -> datetime | None:
    newest: datetime | None = pc.max(changes["_source_timestamp"]).as_py()
    if newest is None or not plan.horizon_seconds:
        return None
    return newest - timedelta(seconds=plan.horizon_seconds)


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


def _mark(plan: MergePlan, log: ChangeLog) -> Mark:
    return Mark(plan.app, log.version)
