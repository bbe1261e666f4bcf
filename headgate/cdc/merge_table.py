"""Brings one merged table up to its log: in a task of a Spark job, by delta-rs.

Whatever is merged twice changes nothing: a row gives way only to a change of a greater order, and
the order is whole. So a merge that was cut short is simply done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

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
from headgate.lake.delta_rs import DeltaRsCommitter, add_action, hooks_after
from headgate.lake.parquet import write_parquet
from headgate.lake.tables import tables_kept_open

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
    table = tables_kept_open(plan.lake).newest(plan.merged)
    marked = table.transaction_version(plan.app) if table else None
    if marked is not None and marked >= log.version:
        return None
    new = log.since(marked)
    if new.bytes > LARGEST_FOLD:
        return ForSpark(plan, plan.merged, log.version, None)
    changes = new.changes(columns_to_merge(log.schema))
    kept = TableKey.kept_in(pa.schema(table.schema())) if table else None
    key = key_by_now(kept, newest_key(changes, plan.key))
    if table is None:
        return _make(plan, log, changes, key, again=False)
    if _is_outdated(plan, table, changes, key) or (new is log and not kept):
        return _all_anew(plan, log)
    key = kept or TableKey()
    schema = merged_columns(log.schema, key, plan.metadata)
    table = follow(plan, plan.merged, table, schema, marked)
    if not key:
        return _append(plan, log, table, changes, schema)
    tombstones = Tombstones(plan.lake, plan.tombstones, key)
    if tombstones.of_rows(changes):
        # A row was deleted by its row id, and only now it is told which key it had then.
        return _all_anew(plan, log)
    folded = fold_new(changes, key, log, tombstones, keep_living=not plan.metadata)
    tombstones.remember(*folded.gone, since=_horizon(plan, changes))
    there = ChangeLog.of(table, Path(plan.lake, plan.merged))
    if there.bytes > plan.spark_above:
        path = _set_down(plan, folded.changes, schema)
        return ForSpark(plan, plan.merged, log.version, path)
    if there.bytes <= plan.in_memory_up_to and plan.metadata:
        return _merge_in_memory(plan, log, table, there, folded.changes, key)
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


def _all_anew(plan: MergePlan, log: ChangeLog) -> TableMerged | ForSpark:
    """By the whole log, and by the key that its newest change has."""
    assert plan.merged is not None
    if log.bytes > LARGEST_FOLD:
        return ForSpark(plan, plan.merged, log.version, None)
    changes = log.changes(columns_to_merge(log.schema))
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
    version = _write(plan, log, rows.select(schema.names).cast(schema))
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
    plan: MergePlan, log: ChangeLog, table: DeltaTable, changes: pa.Table, schema: pa.Schema
) -> TableMerged:
    """Nothing tells the rows apart: every change is kept, once."""
    assert plan.merged is not None
    rows = changes.select(schema.names).cast(schema)
    write_deltalake(table, rows, mode="append", commit_properties=_mark(plan, log))
    table.update_incremental()
    return TableMerged(
        plan.merged,
        plan.log,
        log.version,
        table.version(),
        "delta-rs",
        changes=len(changes),
        inserted=len(changes),
        append_only=True,
    )


def _merge_in_memory(
    plan: MergePlan,
    log: ChangeLog,
    table: DeltaTable,
    there: ChangeLog,
    folded: pa.Table,
    key: TableKey,
) -> TableMerged:
    """Of a small table all files would be read and most written anew: so do it at once."""
    assert plan.merged is not None
    did = fold_in(there.changes(), merge_source(folded, there.schema), key)
    file = write_parquet(plan.lake, plan.merged, f"part-{uuid4()}.parquet", did.rows)
    table.create_write_transaction(
        [add_action(file)],
        "overwrite",
        table.schema(),
        commit_properties=_mark(plan, log),
        post_commithook_properties=hooks_after(table),
    )
    return TableMerged(
        plan.merged,
        plan.log,
        log.version,
        table.version() + 1,
        "delta-rs",
        changes=len(folded),
        inserted=did.inserted,
        updated=did.updated,
        deleted=did.deleted,
    )


def _merge(
    plan: MergePlan,
    log: ChangeLog,
    table: DeltaTable,
    folded: pa.Table,
    schema: pa.Schema,
    key: TableKey,
) -> TableMerged:
    assert plan.merged is not None
    source = merge_source(folded, schema)
    newer = newer_than_row(plan.metadata)
    did = (
        table.merge(
            source,
            same_key(key, '"'),
            source_alias="change",
            target_alias="row",
            # With the whole source in memory, files that cannot have its keys are not read.
            streamed_exec=False,
            commit_properties=_mark(plan, log),
        )
        .when_matched_delete(f"change.{GONE}{newer}")
        .when_matched_update_all(f"NOT change.{GONE}{newer}", except_cols=[GONE])
        .when_not_matched_insert_all(f"NOT change.{GONE}", except_cols=[GONE])
        .execute()
    )
    table.update_incremental()
    if table.transaction_version(plan.app) != log.version:
        mark_only(plan, log.version, table)
    return TableMerged(
        plan.merged,
        plan.log,
        log.version,
        table.version(),
        "delta-rs",
        changes=len(folded),
        inserted=did["num_target_rows_inserted"],
        updated=did["num_target_rows_updated"],
        deleted=did["num_target_rows_deleted"],
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
    plan: MergePlan, name: str, table: DeltaTable, schema: pa.Schema, marked: int | None
) -> DeltaTable:
    """The columns that the log has by now."""
    there = pa.schema(table.schema())
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
    opened = tables_kept_open(plan.lake).newest(name)
    assert opened is not None
    return opened


def _horizon(plan: MergePlan, changes: pa.Table) -> datetime | None:
    newest: datetime | None = pc.max(changes["_source_timestamp"]).as_py()
    if newest is None or not plan.horizon_seconds:
        return None
    return newest - timedelta(seconds=plan.horizon_seconds)


def _is_outdated(plan: MergePlan, table: DeltaTable, changes: pa.Table, key: TableKey) -> bool:
    """Whether the table was merged by a key that is no longer the source's, or otherwise than
    the pipeline wants it by now: then it is merged anew."""
    there = pa.schema(table.schema())
    kept = TableKey.kept_in(there)
    if kept and plan.metadata != (ORDER in there.names):
        return True
    if key == kept or not key:
        return False
    if ORDER not in there.names:
        return True
    newest = pc.max(table.to_pyarrow_table(columns=[ORDER])[ORDER]).as_py()
    return newest is None or bool(pc.max(changes[ORDER]).as_py() > newest)


def _set_down(plan: MergePlan, folded: pa.Table, schema: pa.Schema) -> str:
    """Where Spark finds the folded changes."""
    folder = Path(plan.lake, "_staged", "merges")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{plan.merged}-{uuid4()}.parquet"
    pq.write_table(merge_source(folded, schema), path)
    return str(path)


def _write(plan: MergePlan, log: ChangeLog, rows: pa.Table) -> int:
    """All rows of the table, in one commit."""
    path = str(Path(plan.lake, str(plan.merged)))
    mark = _mark(plan, log)
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", commit_properties=mark)
    return DeltaTable(path).version()


def mark_only(plan: MergePlan, log_version: int, table: DeltaTable) -> None:
    """A merge that changes nothing makes no commit, and so no mark."""
    mark = CommitProperties(app_transactions=[Transaction(plan.app, log_version)])
    table.create_write_transaction([], "append", table.schema(), commit_properties=mark)
    table.update_incremental()


def _mark(plan: MergePlan, log: ChangeLog) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(plan.app, log.version)])
