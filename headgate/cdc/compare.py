"""Compare the rows of a table with the rows that it should have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.cdc.fold import last_of_each_key
from headgate.cdc.key import TableKey
from headgate.schema.conform import conform_chunked

_BYTES = pa.large_binary()
_NULL = pa.scalar(b"~", _BYTES)
_EMPTY = pa.scalar(b"", _BYTES)
_LENGTH_END = pa.scalar(b":", _BYTES)


def canonical(values: pa.Array) -> pa.Array:
    """Encode each value as bytes, equal for equal values and never null."""
    texts = _encode(values)
    lengths = pc.binary_length(texts).cast(pa.string()).cast(_BYTES)
    whole = pc.binary_join_element_wise(lengths, texts, _LENGTH_END)
    return pc.if_else(values.is_valid(), whole, _NULL)


def _encode(values: pa.Array) -> pa.Array:
    type_ = values.type
    if pa.types.is_map(type_):
        entry = pa.struct([type_.key_field, type_.item_field])
        return _encode(values.cast(pa.list_(entry)))
    if pa.types.is_struct(type_):
        fields = [canonical(field) for field in values.flatten()]
        joined = pc.binary_join_element_wise(*fields, _EMPTY) if fields else None
        return pa.repeat(_EMPTY, len(values)) if joined is None else joined
    if pa.types.is_nested(type_):
        return _encode_lists(values)
    if pa.types.is_floating(type_):
        values = pc.add(values, pa.scalar(0.0, type_))
    if not (pa.types.is_binary(type_) or pa.types.is_large_binary(type_)):
        values = values.cast(pa.string())
    return values.cast(_BYTES)


def _encode_lists(values: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    elements = canonical(values.flatten())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), elements)
    return pc.binary_join(lists, _EMPTY)


MAX_EXAMPLES = 5
_NTH, _WANTED, _FOUND = "nth", "wanted", "found"


@dataclass(frozen=True)
class WrongRow:
    """A missing row with the values it should have, or an extra row with the values it has."""

    key: Mapping[str, Any]
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class WrongValue:
    """A value that should be another."""

    should_be: Any
    found: Any


@dataclass(frozen=True)
class DifferentRow:
    """A row that has wrong values."""

    key: Mapping[str, Any]
    columns: Mapping[str, WrongValue]


@dataclass(frozen=True)
class RowDifferences:
    """Number of missing, extra and different rows, with a few examples of each."""

    rows: int
    """Rows in the table."""
    missing: int = 0
    too_many: int = 0
    different: int = 0
    missing_rows: tuple[WrongRow, ...] = ()
    rows_too_many: tuple[WrongRow, ...] = ()
    different_rows: tuple[DifferentRow, ...] = ()

    @property
    def total(self) -> int:
        return self.missing + self.too_many + self.different


def compare_rows(wanted: pa.Table, found: pa.Table, key: Sequence[str]) -> RowDifferences:
    """Compare rows with the same columns by key.

    If a key has several rows, equal rows are paired first, then the others.
    """
    rows = len(found)
    wanted = pa.table(
        [conform_chunked(wanted[field.name], field.type) for field in found.schema],
        schema=found.schema,
    )
    if _has_duplicates(wanted, key) or _has_duplicates(found, key):
        wanted, found = _without_equals(wanted, found)
    pairs = _numbered(wanted, key, _WANTED).join(
        _numbered(found, key, _FOUND), [*_key_names(key), _NTH], join_type="full outer"
    )
    pairs = pairs.sort_by([(name, "ascending") for name in (*_key_names(key), _NTH)])
    is_wanted, is_found = (
        pairs[side].is_valid().to_numpy().astype(bool) for side in (_WANTED, _FOUND)
    )
    missing = pairs[_WANTED].filter(pa.array(is_wanted & ~is_found))
    too_many = pairs[_FOUND].filter(pa.array(is_found & ~is_wanted))
    both = pairs.filter(pa.array(is_wanted & is_found))
    wrong = np.zeros(len(both), bool)
    for name in found.column_names:
        if name not in key:
            wrong |= _unequal(wanted[name].take(both[_WANTED]), found[name].take(both[_FOUND]))
    different = both.filter(pa.array(wrong))
    return RowDifferences(
        rows=rows,
        missing=len(missing),
        too_many=len(too_many),
        different=len(different),
        missing_rows=_wrong_rows(wanted, missing, key),
        rows_too_many=_wrong_rows(found, too_many, key),
        different_rows=_different_rows(wanted, found, different, key),
    )


def _has_duplicates(rows: pa.Table, key: Sequence[str]) -> bool:
    return len(rows.select(list(key)).group_by(list(key)).aggregate([])) < len(rows)


def _without_equals(wanted: pa.Table, found: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows of either side that have no equal on the other."""
    sides = {_WANTED: wanted, _FOUND: found}
    first, second = (
        _numbered(pa.table({"row": canonical(_as_structs(rows))}), ["row"], side)
        for side, rows in sides.items()
    )
    pairs = first.join(second, [*_key_names(["row"]), _NTH], join_type="full outer")
    return (
        wanted.take(pairs.filter(pairs[_FOUND].is_null())[_WANTED]),
        found.take(pairs.filter(pairs[_WANTED].is_null())[_FOUND]),
    )


def _as_structs(rows: pa.Table) -> pa.Array:
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=list(rows.schema))


def _key_names(key: Sequence[str]) -> list[str]:
    """Return names for key columns that do not collide with other columns."""
    return [str(place) for place in range(len(key))]


def _numbered(rows: pa.Table, key: Sequence[str], side: str) -> pa.Table:
    """Return the keys of rows, each with its number among rows of the same key and its index."""
    names = _key_names(key)
    keys = rows.select(list(key)).rename_columns(names)
    order = pc.sort_indices(keys, [(name, "ascending") for name in names])
    ordered = keys.take(order)
    first = np.ones(len(rows), bool)
    if len(rows):
        first[1:] = last_of_each_key(ordered, TableKey(tuple(names)))[:-1]
    places = np.arange(len(rows))
    nth = places - np.maximum.accumulate(np.where(first, places, 0)) if len(rows) else places
    return ordered.append_column(_NTH, pa.array(nth, pa.int64())).append_column(
        side, order.cast(pa.int64())
    )


def _unequal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> np.ndarray:
    type_ = left.type
    first, second = left.combine_chunks(), right.combine_chunks()
    if pa.types.is_nested(type_):
        first, second = canonical(first), canonical(second)
    differs = pc.if_else(
        pc.or_(first.is_null(), second.is_null()),
        pc.xor(first.is_null(), second.is_null()),
        pc.not_equal(first, second),
    )
    if pa.types.is_floating(type_):
        both = pc.and_(pc.is_nan(first), pc.is_nan(second)).fill_null(False)
        differs = pc.and_not(differs, both)
    unequal: np.ndarray = differs.to_numpy(zero_copy_only=False).astype(bool)
    return unequal


def _wrong_rows(
    rows: pa.Table, places: pa.ChunkedArray, key: Sequence[str]
) -> tuple[WrongRow, ...]:
    few = rows.take(places.slice(0, MAX_EXAMPLES)).to_pylist()
    return tuple(
        WrongRow(
            {name: row[name] for name in key},
            {name: value for name, value in row.items() if name not in key},
        )
        for row in few
    )


def _different_rows(
    wanted: pa.Table, found: pa.Table, pairs: pa.Table, key: Sequence[str]
) -> tuple[DifferentRow, ...]:
    few = pairs.slice(0, MAX_EXAMPLES)
    wanted, found = wanted.take(few[_WANTED]), found.take(few[_FOUND])
    unequal = {
        name: _unequal(wanted[name], found[name]) for name in found.column_names if name not in key
    }
    return tuple(
        DifferentRow(
            {name: is_row[name] for name in key},
            {
                name: WrongValue(should_be[name], is_row[name])
                for name, differs in unequal.items()
                if differs[at]
            },
        )
        for at, (should_be, is_row) in enumerate(
            zip(wanted.to_pylist(), found.to_pylist(), strict=True)
        )
    )
