"""From many changes of a key to the one that counts: pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.key import ROW_ID, TableKey

KnownRows = Callable[[Collection[str]], pa.Table]
"""What the log knows of rows by their row ids: their keys, row ids and orders."""


def latest(changes: pa.Table, key: TableKey) -> pa.Table:
    """The last change of each key, by the whole order."""
    if len(changes) < 2:
        return changes
    by = [(name, "ascending") for name in (*key.columns, "_order")]
    ordered = changes.take(pc.sort_indices(changes, by))
    return ordered.filter(pa.array(last_of_each_key(ordered, key)))


def last_of_each_key(ordered: pa.Table, key: TableKey) -> np.ndarray:
    """Of rows in the order of their keys: which are the last of theirs."""
    last = np.ones(len(ordered), bool)
    last[:-1] = False
    for name in key.columns:
        column = ordered[name].combine_chunks()
        one, next_one = column.slice(0, len(column) - 1), column.slice(1)
        differs = pc.if_else(
            pc.or_(one.is_null(), next_one.is_null()),
            pc.xor(one.is_null(), next_one.is_null()),
            pc.not_equal(one, next_one),
        )
        last[:-1] |= differs.to_numpy(zero_copy_only=False)
    return last


def live(changes: pa.Table) -> pa.Table:
    """Those that leave a row."""
    return changes.filter(pc.invert(changes["_is_deleted"]))


def deletions(changes: pa.Table) -> pa.Table:
    """Those that leave none."""
    return changes.filter(changes["_is_deleted"])


def has_key(changes: pa.Table, key: TableKey) -> np.ndarray:
    """Which changes have a value for every column of the key."""
    there = np.ones(len(changes), bool)
    for name in key.columns:
        there &= changes[name].is_valid().to_numpy(zero_copy_only=False)
    return there


def by_row_id_alone(changes: pa.Table, key: TableKey) -> np.ndarray:
    """Which deletions name their row by its row id and nothing else: Oracle's roll-backs."""
    none = np.zeros(len(changes), bool)
    if not key or key.by_row_id or ROW_ID not in changes.column_names:
        return none
    named = changes[ROW_ID].is_valid().to_numpy(zero_copy_only=False)
    gone = changes["_is_deleted"].to_numpy(zero_copy_only=False)
    alone: np.ndarray = named & gone & ~has_key(changes, key)
    return alone


def keyed_changes(changes: pa.Table, key: TableKey, known_rows: KnownRows) -> pa.Table:
    """Changes that name their key, and deletions by row id with the key that their row had."""
    keyed = changes.filter(pa.array(has_key(changes, key)))
    by_row = changes.filter(pa.array(by_row_id_alone(changes, key)))
    if not len(by_row):
        return keyed
    known = known_rows(set(by_row[ROW_ID].to_pylist()))
    found = _with_keys(by_row, known.filter(pa.array(has_key(known, key))), key)
    return pa.concat_tables([keyed, found], promote_options="permissive")


def _with_keys(row_deletions: pa.Table, candidates: pa.Table, key: TableKey) -> pa.Table:
    """Deletions by row id, each with the key that its row had when it was deleted.

    That is the key of the last change of the same row id before the deletion. A deletion whose
    row is not known yet is left out: it is asked for again when a change of that row comes.
    """
    by_row: dict[str, list[tuple[str, int]]] = {}
    for at, (row, order) in enumerate(
        zip(candidates[ROW_ID].to_pylist(), candidates["_order"].to_pylist(), strict=True)
    ):
        by_row.setdefault(row, []).append((order, at))
    found, places = [], []
    for at, (row, order) in enumerate(
        zip(row_deletions[ROW_ID].to_pylist(), row_deletions["_order"].to_pylist(), strict=True)
    ):
        before = [one for one in by_row.get(row, ()) if one[0] < order]
        if before:
            found.append(at)
            places.append(max(before)[1])
    resolved = row_deletions.take(pa.array(found, pa.int64()))
    keys = candidates.take(pa.array(places, pa.int64()))
    for name in key.columns:
        index = resolved.schema.get_field_index(name)
        column = keys[name].cast(resolved.schema.field(name).type)
        resolved = resolved.set_column(index, resolved.schema.field(name), column)
    return resolved


@dataclass(frozen=True)
class AppliedChanges:
    """The rows afterwards, and what happened to them."""

    rows: pa.Table
    inserted: int
    updated: int
    deleted: int


def apply_changes(rows: pa.Table, changes: pa.Table, key: TableKey) -> AppliedChanges:
    """Both with their orders; changes say whether they are deletions, in a column more."""
    before = rows.append_column("_is_deleted", pa.array(np.zeros(len(rows), bool)))
    together = pa.concat_tables([before, changes.select(before.column_names)])
    by = [(name, "ascending") for name in (*key.columns, "_order")]
    order = pc.sort_indices(together, by).to_numpy()
    ordered = together.take(pa.array(order))
    if not len(ordered):
        return AppliedChanges(rows, 0, 0, 0)
    last = last_of_each_key(ordered, key)
    starts = np.concatenate([[0], np.flatnonzero(last)[:-1] + 1])
    was_there = np.add.reduceat(order < len(rows), starts) > 0
    is_new = order[last] >= len(rows)
    gone = ordered["_is_deleted"].to_numpy(zero_copy_only=False)[last]
    left = ordered.filter(pa.array(last)).filter(pa.array(~gone)).select(rows.column_names)
    return AppliedChanges(
        left,
        inserted=int((is_new & ~gone & ~was_there).sum()),
        updated=int((is_new & ~gone & was_there).sum()),
        deleted=int((is_new & gone & was_there).sum()),
    )
