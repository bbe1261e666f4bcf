"""Fold changes: from many changes of a key to the last one. Pure functions on Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.key import ROW_ID, TableKey
from headgate.lake.key_index import comparable_key

KnownRows = Callable[[Collection[str]], pa.Table]
"""Looks up the changes of rows by row IDs: their keys, row IDs and orders."""


def latest(changes: pa.Table, key: TableKey) -> pa.Table:
    """Return the last change of each key, by order."""
    if len(changes) < 2:
        return changes
    by = [(name, "ascending") for name in (*key.columns, "_order")]
    ordered = changes.take(pc.sort_indices(changes, by))
    return ordered.filter(pa.array(last_of_each_key(ordered, key)))


def last_of_each_key(ordered: pa.Table, key: TableKey) -> np.ndarray:
    """Return which rows, sorted by key, are the last of their key."""
    last = np.ones(len(ordered), bool)
    last[:-1] = False
    for name in key.columns:
        column = ordered[name].combine_chunks()
        this, following = column.slice(0, len(column) - 1), column.slice(1)
        differs = pc.if_else(
            pc.or_(this.is_null(), following.is_null()),
            pc.xor(this.is_null(), following.is_null()),
            _differ(this, following),
        )
        last[:-1] |= differs.to_numpy(zero_copy_only=False)
    return last


def _differ(one: pa.Array, other: pa.Array) -> pa.Array:
    """Return where values differ; NaN is equal to NaN."""
    differ = pc.not_equal(one, other)
    if pa.types.is_floating(one.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return differ


def with_comparable_keys(changes: pa.Table, key: TableKey) -> pa.Table:
    """Return changes with one NaN and one zero in their keys, so that joins find them."""
    for name in key.columns:
        at = changes.schema.get_field_index(name)
        field = changes.schema.field(at)
        if pa.types.is_floating(field.type):
            values = comparable_key(changes[name].combine_chunks())
            changes = changes.set_column(at, field, values)
    return changes


def live(changes: pa.Table) -> pa.Table:
    """Return the changes that leave a row."""
    return changes.filter(pc.invert(changes["_is_deleted"]))


def deletions(changes: pa.Table) -> pa.Table:
    """Return the changes that delete a row."""
    return changes.filter(changes["_is_deleted"])


def has_key(changes: pa.Table, key: TableKey) -> np.ndarray:
    """Return which changes have a value for every column of the key."""
    valid = np.ones(len(changes), bool)
    for name in key.columns:
        valid &= changes[name].is_valid().to_numpy(zero_copy_only=False)
    return valid


def by_row_id_alone(changes: pa.Table, key: TableKey) -> np.ndarray:
    """Return which deletions name only a row ID, as rollbacks of Oracle do."""
    none = np.zeros(len(changes), bool)
    if not key or key.by_row_id or ROW_ID not in changes.column_names:
        return none
    named = changes[ROW_ID].is_valid().to_numpy(zero_copy_only=False)
    gone = changes["_is_deleted"].to_numpy(zero_copy_only=False)
    alone: np.ndarray = named & gone & ~has_key(changes, key)
    return alone


def keyed_changes(changes: pa.Table, key: TableKey, known_rows: KnownRows) -> pa.Table:
    """Return the changes with a key, and the deletions by row ID with the keys of their rows."""
    changes = with_comparable_keys(changes, key)
    keyed = changes.filter(pa.array(has_key(changes, key)))
    by_row = changes.filter(pa.array(by_row_id_alone(changes, key)))
    if not len(by_row):
        return keyed
    known = known_rows(set(by_row[ROW_ID].to_pylist()))
    found = _with_keys(by_row, known.filter(pa.array(has_key(known, key))), key)
    return pa.concat_tables([keyed, found], promote_options="permissive")


def _with_keys(row_deletions: pa.Table, candidates: pa.Table, key: TableKey) -> pa.Table:
    """Return deletions by row ID with the key that their row had when it was deleted.

    That is the key of the last change of the same row ID before the deletion. A deletion of an
    unknown row is left out, and resolved once a change of that row arrives.
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
        before = [change for change in by_row.get(row, ()) if change[0] < order]
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
