"""Brings one merged table up to its log: in a task of a Spark job, by delta-rs.

Whatever is merged twice changes nothing: a row gives way only to a change of a greater order, and
the order is whole. So a merge that was cut short is simply done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import by_row_id_alone, deletions, fold_in, keyed_changes, latest, live
from headgate.cdc.key import (
    ORDER,
    ROW_ID,
    TableKey,
    columns_to_merge,
    key_by_now,
    merged_columns,
    newest_key,
)
from headgate.cdc.merge_plan import ForSpark, MergePlan, TableMerged
from headgate.cdc.tombstones import Tombstones
from headgate.lake.commit import Commit, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
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

GONE = "_is_deleted"
LARGEST_FOLD = 64 << 20
"""Bytes of changes in files that one task folds in memory, where they take many times as much."""


@dataclass(frozen=True)
class Folded:
    """One change a key, those that count."""

    changes: pa.Table
    gone: tuple[pa.Table, ...]
    """What tombstones shall remember."""


def merge_table(plan: MergePlan) -> TableMerged | ForSpark | None:
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
    if new.bytes > LARGEST_FOLD:
        return ForSpark(plan, plan.merged, log.version, None)
    changes = new.rows(columns_to_merge(log.schema))
    kept = TableKey.kept_in(table.schema) if table else None
    key = key_by_now(kept, newest_key(changes, plan.key))
    if table is None:
        return _make(plan, log, changes, key, again=False)
    if _is_outdated(plan, table, changes, key) or (new is log and not kept):
        return _rebuild(plan, log)
    key = kept or TableKey()
    schema = merged_columns(log.schema, key, plan.metadata)
    table = follow(plan, plan.merged, table, schema, marked)
    if not key:
        return _append(plan, log, table, changes, schema)
    tombstones = Tombstones(plan.lake, plan.tombstones, key)
    if tombstones.of_rows(changes):
        # A row was deleted by its row id, and only now it is told which key it had then.
        return _rebuild(plan, log)
    folded = fold_new(changes, key, log, tombstones, keep_living=not plan.metadata)
    tombstones.remember(*folded.gone, since=_horizon(plan, changes))
    if table.bytes > plan.spark_above:
        path = stage_merge(plan.lake, plan.merged, merge_source(folded.changes, schema))
        return ForSpark(plan, plan.merged, log.version, path)
    if table.bytes <= plan.in_memory_up_to and plan.metadata:
        return _merge_in_memory(plan, log, table, folded.changes, key)
    return _merge(plan, log, table, folded.changes, schema, key)


def fold_new(
    changes: pa.Table, key: TableKey, log: ChangeLog, tombstones: Tombstones, keep_living: bool
) -> Folded:
    """The changes that count, one a key, against all that is known of earlier ones."""
    last = latest(keyed_changes(changes, key, log.rows_by_id(key)), key)
    remembered = last if keep_living else deletions(last)
    if ROW_ID in remembered.column_names and not key.by_row_id:
        # A tombstone of a key says nothing of the row id that its row had.
        remembered = remembered.drop_columns([ROW_ID])
    by_row = changes.filter(pa.array(by_row_id_alone(changes, key)))
    return Folded(tombstones.without_the_dead(last), (remembered, by_row))


def _rebuild(plan: MergePlan, log: ChangeLog) -> TableMerged | ForSpark:
    """By the whole log, and by the key that its newest change has."""
    assert plan.merged is not None
    if log.bytes > LARGEST_FOLD:
        return ForSpark(plan, plan.merged, log.version, None)
    changes = log.rows(columns_to_merge(log.schema))
    return _make(plan, log, changes, newest_key(changes, plan.key) or TableKey(), again=True)


def _make(
    plan: MergePlan, log: ChangeLog, changes: pa.Table, key: TableKey, again: bool
) -> TableMerged:
    """The first rows of a table, or all of them anew."""
    assert plan.merged is not None
    schema = merged_columns(log.schema, key, plan.metadata)
    if key:
        tombstones = Tombstones(plan.lake, plan.tombstones, key)
        if again:
            tombstones.start_anew(changes)
        folded = fold_new(changes, key, log, tombstones, keep_living=not plan.metadata)
        tombstones.remember(*folded.gone)
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
        made=not again,
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
    did = fold_in(table.rows(), merge_source(folded, table.schema), key)
    version = commit_files(
        plan.lake,
        plan.merged,
        table,
        [new_file(plan.lake, plan.merged, did.rows)],
        marks=[_mark(plan, log)],
        replace=True,
    )
    counts = MergeCounts(version, did.inserted, did.updated, did.deleted)
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
        delete=f"change.{GONE}{newer}",
        update=f"NOT change.{GONE}{newer}",
        insert=f"NOT change.{GONE}",
        flag=GONE,
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
        pa.schema([*schema, pa.field(GONE, pa.bool_())]) if GONE not in schema.names else schema
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


def follow(
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
    kept = TableKey.kept_in(table.schema)
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
