"""What sets the rows that a table has apart from those that it should have."""

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

_TEXT = pa.large_binary()
_NULL = pa.scalar(b"~", _TEXT)
_NOTHING = pa.scalar(b"", _TEXT)
_END_OF_LENGTH = pa.scalar(b":", _TEXT)


def canonical(values: pa.Array) -> pa.Array:
    """A text for each value, never null."""
    texts = _texts(values)
    lengths = pc.binary_length(texts).cast(pa.string()).cast(_TEXT)
    whole = pc.binary_join_element_wise(lengths, texts, _END_OF_LENGTH)
    return pc.if_else(values.is_valid(), whole, _NULL)


def _texts(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        return _texts(values.cast(pa.list_(entry)))
    if pa.types.is_struct(kind):
        fields = [canonical(field) for field in values.flatten()]
        joined = pc.binary_join_element_wise(*fields, _NOTHING) if fields else None
        return pa.repeat(_NOTHING, len(values)) if joined is None else joined
    if pa.types.is_nested(kind):
        return _texts_of_lists(values)
    if pa.types.is_floating(kind):
        values = pc.add(values, pa.scalar(0.0, kind))
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        values = values.cast(pa.string())
    return values.cast(_TEXT)


def _texts_of_lists(values: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    elements = canonical(values.flatten())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), elements)
    return pc.binary_join(lists, _NOTHING)


MAX_EXAMPLES = 5
_NTH, _WANTED, _FOUND = "nth", "wanted", "found"


@dataclass(frozen=True)
class WrongRow:
    """A row that is missing, with what it should be, or one too many, with what it is."""

    key: Mapping[str, Any]
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class WrongValue:
    should_be: Any
    found: Any


@dataclass(frozen=True)
class DifferentRow:
    """A row that is there, and is not what it should be."""

    key: Mapping[str, Any]
    columns: Mapping[str, WrongValue]


@dataclass(frozen=True)
class RowDifferences:
    """How many rows are wrong in which way, with a few of each."""

    rows: int
    """That the table has."""
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
    """Both have the same columns. Should a key have several rows, those that are equal go in
    pairs, then the others."""
    rows = len(found)
    wanted = pa.table(
        [conform_chunked(wanted[field.name], field.type) for field in found.schema],
        schema=found.schema,
    )
    if _has_twins(wanted, key) or _has_twins(found, key):
        wanted, found = _without_equals(wanted, found)
    pairs = _numbered(wanted, key, _WANTED).join(
        _numbered(found, key, _FOUND), [*_places(key), _NTH], join_type="full outer"
    )
    pairs = pairs.sort_by([(name, "ascending") for name in (*_places(key), _NTH)])
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


def _has_twins(rows: pa.Table, key: Sequence[str]) -> bool:
    return len(rows.select(list(key)).group_by(list(key)).aggregate([])) < len(rows)


def _without_equals(wanted: pa.Table, found: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows on either side that have no equal on the other."""
    sides = {_WANTED: wanted, _FOUND: found}
    first, second = (
        _numbered(pa.table({"row": canonical(_as_structs(rows))}), ["row"], side)
        for side, rows in sides.items()
    )
    pairs = first.join(second, [*_places(["row"]), _NTH], join_type="full outer")
    return (
        wanted.take(pairs.filter(pairs[_FOUND].is_null())[_WANTED]),
        found.take(pairs.filter(pairs[_WANTED].is_null())[_FOUND]),
    )


def _as_structs(rows: pa.Table) -> pa.Array:
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=list(rows.schema))


def _places(key: Sequence[str]) -> list[str]:
    """Names for the columns of a key that no others have."""
    return [str(place) for place in range(len(key))]


def _numbered(rows: pa.Table, key: Sequence[str], side: str) -> pa.Table:
    """The keys of rows, the how manieth of its key each one is, and where it stands."""
    names = _places(key)
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


def _unequal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    kind = one.type
    first, second = one.combine_chunks(), other.combine_chunks()
    if pa.types.is_nested(kind):
        first, second = canonical(first), canonical(second)
    differs = pc.if_else(
        pc.or_(first.is_null(), second.is_null()),
        pc.xor(first.is_null(), second.is_null()),
        pc.not_equal(first, second),
    )
    if pa.types.is_floating(kind):
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
