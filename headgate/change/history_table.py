"""History: every version that a row ever had, and from when to when it was the current one.

A version ends where the next change of its key begins, by the source's order. A late change
finds its place between two others: only the version before it is touched.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from headgate.change.change_log import ChangeLog
from headgate.change.fold import ends_of_runs, keyed_changes
from headgate.change.merge_plan import MergePlan, TableMerged
from headgate.change.merge_table import GONE, follow, same_key
from headgate.change.merged_columns import ORDER
from headgate.change.table_key import ROW_ID, TableKey, newest_key
from headgate.envelope.datastream.columns import LOG_COLUMN_NAMES

VALIDITY = pa.schema(
    [
        pa.field("_valid_from", pa.timestamp("us", "UTC")),
        pa.field("_valid_to", pa.timestamp("us", "UTC")),
        pa.field("_is_current", pa.bool_()),
    ]
)
_BESIDE = ("_change_type", ORDER)


def history_columns(log: pa.Schema, key: TableKey) -> pa.Schema:
    own = [field for field in log if field.name not in LOG_COLUMN_NAMES]
    beside = {*_BESIDE, *((ROW_ID,) if key.by_row_id else ())}
    told = [field for field in log if field.name in beside]
    return key.keep_in(pa.schema([*own, *told, *VALIDITY]))


def merge_history(plan: MergePlan) -> TableMerged | None:
    """None where there is nothing new, or nothing that tells rows apart."""
    assert plan.history is not None
    log = ChangeLog.open(plan.lake, plan.log)
    if log is None:
        return None
    path = str(Path(plan.lake, plan.history))
    try:
        table: DeltaTable | None = DeltaTable(path)
    except TableNotFoundError:
        table = None
    marked = table.transaction_version(plan.app) if table else None
    if marked is not None and marked >= log.version:
        return None
    changes = log.since(marked).changes()
    kept = TableKey.kept_in(pa.schema(table.schema())) if table else None
    key = kept or newest_key(changes, plan.key) or TableKey()
    if not key:
        return None
    schema = history_columns(log.schema, key)
    known = timeline(log, key, changes if table else None)
    new = known.filter(pc.is_in(known[ORDER], value_set=changes[ORDER].unique()))
    mark = CommitProperties(app_transactions=[Transaction(plan.app, log.version)])
    if table is None:
        rows = versions(new, changes, schema)
        write_deltalake(
            path, rows, schema_mode="overwrite", mode="overwrite", commit_properties=mark
        )
        return TableMerged(
            plan.history, plan.log, log.version, 0, "delta-rs", len(changes), len(rows), made=True
        )
    table = follow(plan, plan.history, table, schema, marked)
    before = known.filter(pc.and_(known["_precedes_new"], pc.invert(known[GONE])))
    touched = before.filter(pc.invert(pc.is_in(before[ORDER], value_set=changes[ORDER].unique())))
    source = pa.concat_tables(
        [_flagged(versions(new, changes, schema), True), _flagged(_ends(touched, schema), False)]
    )
    did = (
        table.merge(
            source,
            f"{same_key(key, chr(34))} AND row.{ORDER} = change.{ORDER}",
            source_alias="change",
            target_alias="row",
            streamed_exec=False,
            commit_properties=mark,
        )
        .when_matched_update({"_valid_to": "change._valid_to", "_is_current": "change._is_current"})
        .when_not_matched_insert_all("change._is_new", except_cols=["_is_new"])
        .execute()
    )
    table.update_incremental()
    return TableMerged(
        plan.history,
        plan.log,
        log.version,
        table.version(),
        "delta-rs",
        changes=len(changes),
        inserted=did["num_target_rows_inserted"],
        updated=did["num_target_rows_updated"],
    )


def timeline(log: ChangeLog, key: TableKey, touched_by: pa.Table | None) -> pa.Table:
    """All changes of the keys that some changes touch, each with the moment at which it ended."""
    columns = [*key.columns, ORDER, GONE, "_source_timestamp"]
    has_rows = ROW_ID in log.schema.names and not key.by_row_id
    told = log.changes([*columns, ROW_ID] if has_rows else columns)
    all_changes = keyed_changes(told, key, lambda _: told)
    news = None
    if touched_by is not None:
        news = touched_by[ORDER].unique()
        is_new = pc.is_in(all_changes[ORDER], value_set=news)
        touched = (
            all_changes.filter(is_new)
            .select(list(key.columns))
            .group_by(list(key.columns))
            .aggregate([])
        )
        all_changes = all_changes.join(touched, list(key.columns), join_type="left semi")
    by = [(name, "ascending") for name in (*key.columns, ORDER)]
    ordered = all_changes.take(pc.sort_indices(all_changes, by))
    return _with_ends(ordered, key, news)


def _with_ends(ordered: pa.Table, key: TableKey, news: pa.Array | None) -> pa.Table:
    last = ends_of_runs(ordered, key) if len(ordered) else np.empty(0, bool)
    following = np.minimum(np.arange(len(ordered)) + 1, max(len(ordered) - 1, 0))
    ends = ordered["_source_timestamp"].take(pa.array(following))
    ends = pc.if_else(pa.array(last), pa.scalar(None, ends.type), ends)
    is_new = (
        np.ones(len(ordered), bool)
        if news is None
        else pc.is_in(ordered[ORDER], value_set=news).to_numpy(zero_copy_only=False)
    )
    precedes = np.zeros(len(ordered), bool)
    precedes[:-1] = is_new[1:] & ~last[:-1]
    return (
        ordered.append_column("_valid_to", ends)
        .append_column("_is_current", pa.array(last))
        .append_column("_precedes_new", pa.array(precedes))
    )


def versions(known: pa.Table, changes: pa.Table, schema: pa.Schema) -> pa.Table:
    """The versions that changes made, whole."""
    living = known.filter(pc.invert(known[GONE]))
    # A change by row id alone never makes a version, so an order names one change.
    facts = living.select([ORDER, "_source_timestamp", "_valid_to", "_is_current"])
    facts = facts.rename_columns([ORDER, "_valid_from", "_valid_to", "_is_current"])
    own = [name for name in schema.names if name not in VALIDITY.names]
    at = pc.index_in(facts[ORDER], value_set=changes[ORDER].combine_chunks())
    rows = changes.take(at).select(own)
    for name in VALIDITY.names:
        rows = rows.append_column(name, facts[name])
    return rows.select(schema.names).cast(schema)


def _ends(known: pa.Table, schema: pa.Schema) -> pa.Table:
    """Versions that are in the table: only when they ended is told."""
    columns = [
        known[field.name].cast(field.type)
        if field.name in known.column_names
        else pa.nulls(len(known), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _flagged(rows: pa.Table, is_new: bool) -> pa.Table:
    return rows.append_column("_is_new", pa.array([is_new] * len(rows), pa.bool_()))
