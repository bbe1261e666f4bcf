"""History tables: every version of a row, with the time span in which it was current.

A version ends where the next change of its key begins, by the source's order. A late change is
inserted between two versions, and only the one before it is updated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.change_log import ChangeLog
from headgate.cdc.fold import (
    KnownRows,
    by_row_id_alone,
    has_key,
    keyed_changes,
    last_of_each_key,
    with_comparable_keys,
)
from headgate.cdc.key import ORDER, ROW_ID, TableKey, current_key, newest_key
from headgate.cdc.merge_table import (
    IS_DELETED,
    MAX_FOLD_BYTES,
    NeedsSparkMerge,
    TableMerged,
    evolve_columns,
)
from headgate.cdc.unmerged import MergePlan, Unmerged
from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.errors import LandingError
from headgate.lake.commit import Committer, MergeCommit, MergeCounts, MergeRule
from headgate.lake.merge import replace_rows
from headgate.lake.snapshot import Snapshot
from headgate.schema.conform import nullable

VALIDITY = pa.schema(
    [
        pa.field("_valid_from", pa.timestamp("us", "UTC")),
        pa.field("_valid_to", pa.timestamp("us", "UTC")),
        pa.field("_is_current", pa.bool_()),
    ]
)
_METADATA = ("_change_type", ORDER)

# Working columns, beside those of the source, whose names have only letters, digits and `_`.
_PRECEDES_NEW = "#precedes_new"
_IS_NEW = "#is_new"


def history_columns(log: pa.Schema, key: TableKey) -> pa.Schema:
    """Return the columns of a history table: those of the source, metadata, validity."""
    own = [field for field in log if field.name not in LOG_COLUMN_NAMES]
    taken = [field.name for field in own if field.name.lower() in VALIDITY.names]
    if taken:
        raise LandingError(
            "column-reserved",
            f"the change log has a column {taken[0]}, which history tables have themselves",
            hint="no source has such a column: it was added to the log, and can be renamed",
        )
    names = {*_METADATA, *((ROW_ID,) if key.by_row_id else ())}
    metadata = [field for field in log if field.name in names]
    return key.annotate(nullable(pa.schema([*own, *metadata, *VALIDITY])))


def merge_history(plan: MergePlan, committer: Committer) -> TableMerged | NeedsSparkMerge | None:
    """Bring a history table up to date with its log.

    Return None if there is no log, or if the source table has no key.
    """
    assert plan.history is not None
    table = Snapshot.newest(plan.lake, plan.history)
    unmerged = plan.unmerged(table)
    if unmerged is None:
        return None
    if table is not None and unmerged.is_empty:
        return TableMerged.up_to_date(unmerged, table, committer.engine(plan.history))
    log = unmerged.log
    if unmerged.new.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge.of(plan, plan.history, unmerged, is_history=True)
    changes = unmerged.new.rows()
    kept = TableKey.from_schema(table.schema) if table else None
    key = current_key(kept, newest_key(changes, plan.key))
    if not key:
        return None
    schema = history_columns(log.schema, key)
    must_rebuild = table is None or unmerged.rebuild is not None or key != kept
    if table is None or must_rebuild or _resolves_row_deletion(changes, log, key):
        return _create(plan, committer, unmerged, key, created=table is None)
    evolved = evolve_columns(committer, unmerged, table, schema)
    if evolved is None:
        unmerged = unmerged.rebuilt("another writer has changed its columns")
        return _create(plan, committer, unmerged, key, created=False)
    known = timeline(log, key, changes)
    new = known.filter(pc.is_in(known[ORDER], value_set=changes[ORDER].unique()))
    before = known.filter(pc.and_(known[_PRECEDES_NEW], pc.invert(known[IS_DELETED])))
    touched = before.filter(pc.invert(pc.is_in(before[ORDER], value_set=changes[ORDER].unique())))
    source = pa.concat_tables(
        [_flagged(versions(new, changes, schema), True), _flagged(_ends(touched, schema), False)]
    )
    rule = MergeRule((*key.columns, ORDER), set=("_valid_to", "_is_current"), insert=_IS_NEW)
    required = unmerged.required_marks
    merge = MergeCommit(plan.history, source, rule, (unmerged.mark,), required_marks=required)
    counts = committer.merge(merge)
    if (again := unmerged.after_others(plan, table, counts.version)) is not None:
        return _create(plan, committer, again, key, created=False)
    return TableMerged.of(unmerged, plan.history, committer, len(changes), counts)


def _resolves_row_deletion(changes: pa.Table, log: ChangeLog, key: TableKey) -> bool:
    """Return whether changes may assign an earlier deletion by row ID to another key."""
    row_ids = [deleted[ROW_ID] for deleted in log.by_row_id_alone(key) if len(deleted)]
    if not row_ids:
        return False
    new = changes.filter(pa.array(has_key(changes, key)))[ROW_ID]
    return any(pc.any(pc.is_in(new, value_set=ids.combine_chunks())).as_py() for ids in row_ids)


def _create(
    plan: MergePlan, committer: Committer, unmerged: Unmerged, key: TableKey, created: bool
) -> TableMerged | NeedsSparkMerge:
    """Write all versions, from the whole log."""
    assert plan.history is not None
    log = unmerged.log
    if log.bytes > MAX_FOLD_BYTES:
        return NeedsSparkMerge.of(plan, plan.history, unmerged, is_history=True)
    changes = log.rows()
    rows = all_versions(changes, key, history_columns(log.schema, key), log.rows_by_id(key))
    required = unmerged.required_marks
    version = replace_rows(
        committer, plan.history, rows, key.columns, unmerged.mark, required_marks=required
    )
    counts = MergeCounts(version, inserted=len(rows))
    merged = TableMerged.of(unmerged, plan.history, committer, len(changes), counts)
    return replace(merged, created=created)


def all_versions(
    changes: pa.Table, key: TableKey, schema: pa.Schema, known_rows: KnownRows
) -> pa.Table:
    """Return all versions of rows; the changes must include all changes of their keys."""
    known = _with_ends(_ordered(keyed_changes(changes, key, known_rows), key), key, None)
    return versions(known, changes, schema)


def timeline(log: ChangeLog, key: TableKey, touched_by: pa.Table) -> pa.Table:
    """Return all changes in the log of the keys that `touched_by` has, with their validity."""
    names = [*key.columns, ORDER, IS_DELETED, "_source_timestamp", ROW_ID]
    columns = [name for name in dict.fromkeys(names) if name in log.schema.names]
    new = keyed_changes(touched_by, key, log.rows_by_id(key)).select(list(key.columns))
    touched = new.group_by(list(key.columns)).aggregate([])
    first = key.columns[0]
    values = touched[first].combine_chunks()
    # Filter early by the first key column: a log is much larger than the part that is touched.
    parts = [pa.Table.from_batches([], pa.schema(map(log.schema.field, columns)))]
    for portion in log.portions(columns):
        rows = with_comparable_keys(pa.Table.from_batches([portion]), key)
        near = pc.is_in(rows[first], value_set=values).to_numpy()
        parts.append(rows.filter(pa.array(near | by_row_id_alone(rows, key))))
    known = keyed_changes(pa.concat_tables(parts), key, log.rows_by_id(key))
    known = known.join(touched, list(key.columns), join_type="left semi")
    return _with_ends(_ordered(known, key), key, touched_by[ORDER].unique())


def _ordered(changes: pa.Table, key: TableKey) -> pa.Table:
    by = [(name, "ascending") for name in (*key.columns, ORDER)]
    return changes.take(pc.sort_indices(changes, by))


def _with_ends(ordered: pa.Table, key: TableKey, new: pa.Array | None) -> pa.Table:
    last = last_of_each_key(ordered, key) if len(ordered) else np.empty(0, bool)
    following = np.minimum(np.arange(len(ordered)) + 1, max(len(ordered) - 1, 0))
    ends = ordered["_source_timestamp"].take(pa.array(following))
    ends = pc.if_else(pa.array(last), pa.scalar(None, ends.type), ends)
    is_new = (
        np.ones(len(ordered), bool)
        if new is None
        else pc.is_in(ordered[ORDER], value_set=new).to_numpy(zero_copy_only=False)
    )
    precedes = np.zeros(len(ordered), bool)
    precedes[:-1] = is_new[1:] & ~last[:-1]
    return (
        ordered.append_column("_valid_to", ends)
        .append_column("_is_current", pa.array(last))
        .append_column(_PRECEDES_NEW, pa.array(precedes))
    )


def versions(known: pa.Table, changes: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the versions that changes created, with all columns."""
    living = known.filter(pc.invert(known[IS_DELETED]))
    # A change by row ID alone never creates a version, so an order identifies one change.
    facts = living.select([ORDER, "_source_timestamp", "_valid_to", "_is_current"])
    facts = facts.rename_columns([ORDER, "_valid_from", "_valid_to", "_is_current"])
    own = [name for name in schema.names if name not in VALIDITY.names]
    at = pc.index_in(facts[ORDER], value_set=changes[ORDER].combine_chunks())
    rows = changes.take(at).select(own)
    for name in VALIDITY.names:
        rows = rows.append_column(name, facts[name])
    return rows.select(schema.names).cast(schema)


def _ends(known: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the new validity of versions that are in the table; other columns are null."""
    columns = [
        known[field.name].cast(field.type)
        if field.name in known.column_names
        else pa.nulls(len(known), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _flagged(rows: pa.Table, is_new: bool) -> pa.Table:
    return rows.append_column(_IS_NEW, pa.array([is_new] * len(rows), pa.bool_()))
