"""Merges the states of groups in memory, with the results that Spark would have.

Only those of simple types and aggregates: the others are left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headgate.lake.key_index import KeyIndex
from headgate.lake.parquet import ParquetRows
from headgate.schema.conform import conform_rows
from headgate.sql.incremental import Incremental, State
from headgate.sql.parse import quoted

_Merge = Callable[[pa.Array, pa.Array], pa.Array]


def can_merge(states: Incremental, schema: pa.Schema) -> bool:
    """Whether states of these types can be merged, and outputs are nothing but keys and states."""
    if any(each.expression != quoted(each.name) for each in states.outputs):
        return False
    return all(_merge_of(each, schema) is not None for each in states.states)


def merge_states(states: Incremental, new: pa.Table, keys: KeyIndex, kept: pa.Table) -> pa.Table:
    """Return the groups of new rows, merged with those of the same keys that were kept.

    Raises `pyarrow.ArrowInvalid` if a sum is too large for its type.
    """
    at = np.full(len(new), -1)
    at[keys.find(kept)] = np.arange(len(kept))
    same = kept.take(pa.array(at, mask=at < 0))
    for state in states.states:
        merge = _merge_of(state, new.schema)
        assert merge is not None
        place = new.schema.get_field_index(state.name)
        one, other = same[state.name].combine_chunks(), new[state.name].combine_chunks()
        merged = pc.coalesce(merge(one, other).cast(other.type), one, other)
        new = new.set_column(place, new.schema.field(place), merged)
    return new


@dataclass(frozen=True)
class KeptGroups:
    """Groups of derived tables, which tasks merge with new ones."""

    states: Incremental
    files: Mapping[int, Sequence[str]]
    """Files of the tables that are merged into, by index."""

    def merged_with(self, index: int, new: pa.Table) -> pa.Table | None:
        """Return all groups of a table after the merge; None if only Spark can merge them."""
        if index not in self.files:
            return new
        kept = self._rows(self.files[index], new.schema)
        keys = KeyIndex(new, [one.name for one in self.states.keys])
        is_met = keys.find(kept) >= 0
        try:
            merged = merge_states(self.states, new, keys, kept.filter(pa.array(is_met)))
        except pa.ArrowInvalid:
            return None  # a sum is too large
        return pa.concat_tables([kept.filter(pa.array(~is_met)), merged])

    def _rows(self, files: Sequence[str], columns: pa.Schema) -> pa.Table:
        batches = (rows for path in files for rows in ParquetRows(path).batches(columns.names))
        return pa.Table.from_batches((conform_rows(rows, columns) for rows in batches), columns)


def _merge_of(state: State, schema: pa.Schema) -> _Merge | None:
    """Return how two values of a state are merged: null if one of them is null."""
    kind = schema.field(state.name).type
    match state.function:
        case "sum" if types.is_int64(kind):
            return pc.add_checked  # type: ignore[no-any-return]
        case "sum" if types.is_float64(kind):
            return _add_doubles
        case "sum" if types.is_decimal128(kind):
            return _add_decimals
        case "min" if types.is_floating(kind):
            return _least_number
        case "max" if types.is_floating(kind):
            return _greatest_number
        case "min" if _is_ordered(kind):
            return _least
        case "max" if _is_ordered(kind):
            return _greatest
        case "bool_and" if types.is_boolean(kind):
            return pc.and_  # type: ignore[no-any-return]
        case "bool_or" if types.is_boolean(kind):
            return pc.or_  # type: ignore[no-any-return]
    return None


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(
        types.is_integer(kind)
        or types.is_decimal128(kind)
        or types.is_string(kind)
        or types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def _add_doubles(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.add(pc.add(0.0, one), other)  # as Spark does: not -0.0


def _add_decimals(one: pa.Array, other: pa.Array) -> pa.Array:
    wide = pa.decimal256(one.type.precision, one.type.scale)
    return pc.add_checked(one.cast(wide), other.cast(wide))


def _least(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.if_else(pc.less(other, one), other, one)


def _greatest(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(other, one), other, one)


def _least_number(one: pa.Array, other: pa.Array) -> pa.Array:
    """NaN is greater than any number."""
    return pc.if_else(pc.is_nan(one), other, _least(one, other))


def _greatest_number(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(other), other, _greatest(one, other))
