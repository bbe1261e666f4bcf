"""What a task is told about the tables that it merges, and what it tells of them."""

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
    """One source table: its log, and what is made of it."""

    lake: str
    log: str
    merged: str | None
    history: str | None
    tombstones: str
    app: str
    """Whose mark in a table says up to which version of the log it has everything."""
    metadata: bool = True
    key: Sequence[str] | None = None
    """Declared by the pipeline, where changes do not name one."""
    horizon_seconds: float = 0
    spark_above: int = 2 << 30
    in_memory_up_to: int = 16 << 20
    """Bytes of files of a table that is small enough to be merged in memory."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MergePlan:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class TableMerged:
    """A merged or history table has everything that its log had."""

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
        """The row of the ledger."""
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
    """A table that is too large for one task: the folded changes wait in a file."""

    plan: MergePlan
    table: str
    log_version: int
    folded: str | None
    """None where the whole log has to be folded."""
    is_history: bool = False


IS_DELETED = "_is_deleted"
MAX_FOLD_BYTES = 64 << 20
"""Bytes of changes in files that one task folds in memory, where they take many times as much."""


@dataclass(frozen=True)
class Folded:
    """One change a key, those that count."""

    changes: pa.Table
    gone: tuple[pa.Table, ...]
    """What tombstones shall remember."""


def merge_table(plan: MergePlan) -> TableMerged | NeedsSparkMerge | None:
    """None where there is nothing new."""
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
    if tombstones.match_row_ids(changes):
        # A row was deleted by its row id, and only now it is told which key it had then.
        return _rebuild(plan, log)
    folded = fold_changes(changes, key, log, tombstones, keep_living=not plan.metadata)
    tombstones.add(*folded.gone, since=_horizon(plan, changes))
    if table.bytes > plan.spark_above:
        path = stage_merge(plan.lake, plan.merged, merge_source(folded.changes, schema))
        return NeedsSparkMerge(plan, plan.merged, log.version, path)
    if table.bytes <= plan.in_memory_up_to and plan.metadata:
        return _merge_in_memory(plan, log, table, folded.changes, key)
    return _merge(plan, log, table, folded.changes, schema, key)


def fold_changes(
    changes: pa.Table, key: TableKey, log: ChangeLog, tombstones: Tombstones, keep_living: bool
) -> Folded:
    """The changes that count, one a key, against all that is known of earlier ones."""
    last = latest(keyed_changes(changes, key, log.rows_by_id(key)), key)
    remembered = last if keep_living else deletions(last)
    if ROW_ID in remembered.column_names and not key.by_row_id:
        # A tombstone of a key says nothing of the row id that its row had.
        remembered = remembered.drop_columns([ROW_ID])
    by_row = changes.filter(pa.array(by_row_id_alone(changes, key)))
    return Folded(tombstones.drop_superseded(last), (remembered, by_row))


def _rebuild(plan: MergePlan, log: ChangeLog) -> TableMerged | NeedsSparkMerge:
    """By the whole log, and by the key that its newest change has."""
    assert plan.merged is not None
    if log.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge(plan, plan.merged, log.version, None)
    changes = log.rows(columns_to_merge(log.schema))
    return _create(plan, log, changes, newest_key(changes, plan.key) or TableKey(), rebuild=True)


def _create(
    plan: MergePlan, log: ChangeLog, changes: pa.Table, key: TableKey, rebuild: bool
) -> TableMerged:
    """The first rows of a table, or all of them anew."""
    assert plan.merged is not None
    schema = merged_columns(log.schema, key, plan.metadata)
    if key:
        tombstones = Tombstones(plan.lake, plan.tombstones, key)
        if rebuild:
            tombstones.reset(changes)
        folded = fold_changes(changes, key, log, tombstones, keep_living=not plan.metadata)
        tombstones.add(*folded.gone)
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
    """Nothing tells the rows apart: every change is kept, once."""
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
    """Of a small table all files would be read and most rewritten: do it at once."""
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
    """The changes in the columns of the table, and whether each of them is a deletion."""
    columns = (
        pa.schema([*schema, pa.field(IS_DELETED, pa.bool_())])
        if IS_DELETED not in schema.names
        else schema
    )
    return folded.select(columns.names).cast(columns)


def same_key(key: TableKey, quote: str) -> str:
    """In the words of either engine; they differ in how they quote a name."""
    return " AND ".join(
        f"row.{quote}{name}{quote} = change.{quote}{name}{quote}" for name in key.columns
    )


def newer_than_row(metadata: bool) -> str:
    """Rows without an order of their own were compared with what tombstones remember."""
    return f" AND change.{ORDER} > row.{ORDER}" if metadata else ""


def evolve_columns(
    plan: MergePlan, name: str, table: Snapshot, schema: pa.Schema, marked: int | None
) -> Snapshot:
    """Give a table the columns that the log has by now."""
    there = table.schema
    if {field.name: field.type for field in there} == {field.name: field.type for field in schema}:
        return table
    gone = [field for field in there if field.name not in schema.names]
    wanted = pa.schema([*schema, *gone])
    widened = any(
        field.name in there.names and not there.field(field.name).type.equals(field.type)
        for field in wanted
    )
    mark = Mark(plan.app, -1 if marked is None else marked)
    committer = DeltaRsCommitter(plan.lake)
    committer.commit(Commit(name, wanted, (), mark, rewrite=widened))
    followed = Snapshot.newest(plan.lake, name)
    assert followed is not None
    return followed


def _horizon(plan: MergePlan, changes: pa.Table) -> datetime | None:
    newest: datetime | None = pc.max(changes["_source_timestamp"]).as_py()
    if newest is None or not plan.horizon_seconds:
        return None
    return newest - timedelta(seconds=plan.horizon_seconds)


def _is_outdated(plan: MergePlan, table: Snapshot, changes: pa.Table, key: TableKey) -> bool:
    """Whether the table has to be rebuilt: it was merged by a key that is no longer the source's,
    or otherwise than the pipeline wants it by now."""
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
