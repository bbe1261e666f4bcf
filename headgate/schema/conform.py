"""The same values in a table's type: cast up, and without what the table has no place for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.schema.fit import widens


def conform(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Fields that the target lacks go; those that the array lacks, or has as what the target
    cannot hold, are null."""
    if array.type.equals(target):
        return array
    array = _in_usual_form(array)
    kind = array.type
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        named = {field.name: index for index, field in enumerate(kind)}
        children = [
            conform(array.field(named[field.name]), field.type)
            if field.name in named
            else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(target) and _takes_keys(target, kind):
        keys, items = conform(array.keys, target.key_type), conform(array.items, target.item_type)
        return pa.MapArray.from_arrays(
            _offsets(array), keys, items, type=target, mask=array.is_null()
        )
    if pa.types.is_list(kind) and pa.types.is_list(target):
        values = conform(array.values, target.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=target, mask=array.is_null())
    if widens(kind, target) or kind.equals(target) or _are_moments(kind, target):
        return array.cast(target)
    return pa.nulls(len(array), target)


_USUAL_FORMS = {
    pa.string_view(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.large_binary(): pa.binary(),
}


def _in_usual_form(array: pa.Array) -> pa.Array:
    """Other writers of a table may lay out the same values otherwise."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _in_usual_form(array.dictionary_decode())
    if pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return array.cast(pa.list_(kind.value_field))
    return array.cast(_USUAL_FORMS[kind]) if kind in _USUAL_FORMS else array


def _are_moments(kind: pa.DataType, target: pa.DataType) -> bool:
    """Spark writes moments as nanoseconds of no zone, which are those of UTC."""
    if not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(target)):
        return False
    return bool(kind.unit != target.unit)


def conformed(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The same for a column in pieces."""
    return pa.chunked_array([conform(chunk, target) for chunk in column.chunks], target)


def conform_rows(rows: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The same for all columns; those that the rows lack are null."""
    if rows.schema.names == target.names and rows.schema.types == target.types:
        return pa.RecordBatch.from_arrays(rows.columns, schema=target)
    columns = [
        conform(rows[field.name], field.type)
        if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _takes_keys(target: pa.DataType, kind: pa.DataType) -> bool:
    same: bool = kind.key_type.equals(target.key_type)
    return same or widens(kind.key_type, target.key_type)


def _offsets(array: pa.Array) -> pa.Array:
    """Arrow takes a mask only together with offsets that begin at their buffer's start."""
    return pa.concat_arrays([array.offsets]) if array.offset else array.offsets


def rows_with(array: pa.Array, path: Sequence[str]) -> np.ndarray:
    """Which rows have a value at a path inside of them, in any element of lists and maps."""
    if not path:
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    first, *rest = path
    if pa.types.is_struct(array.type):
        inside = rows_with(array.field(first), rest)
    elif pa.types.is_map(array.type):
        elements = array.keys if first == "key" else array.items
        inside = _any_of(array, rows_with(elements, rest))
    else:
        inside = _any_of(array, rows_with(array.values, rest))
    both: np.ndarray = inside & array.is_valid().to_numpy(zero_copy_only=False)
    return both


def _any_of(array: pa.Array, elements: np.ndarray) -> np.ndarray:
    """Which lists have an element that is marked."""
    counts = np.concatenate([[0], np.cumsum(elements)])
    offsets = array.offsets.to_numpy()
    found: np.ndarray = counts[offsets[1:]] > counts[offsets[:-1]]
    return found
