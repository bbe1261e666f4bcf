"""Conversion of values to a table's types: widened, and without fields that the table lacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.schema.fit import widens

_CANONICAL_TYPES = {
    pa.string_view(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.large_binary(): pa.binary(),
}


def conform(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to a type.

    Struct fields that the target lacks are dropped; those that the array lacks, and values that
    the target cannot hold, are null.
    """
    if array.type.equals(target):
        return array
    array = _canonical(array)
    source = array.type
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        indexes = {field.name: index for index, field in enumerate(source)}
        children = [
            conform(array.field(indexes[field.name]), field.type)
            if field.name in indexes
            else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_map(source) and pa.types.is_map(target) and _keys_fit(source, target):
        keys, items = conform(array.keys, target.key_type), conform(array.items, target.item_type)
        return pa.MapArray.from_arrays(
            _offsets(array), keys, items, type=target, mask=array.is_null()
        )
    if pa.types.is_list(source) and pa.types.is_list(target):
        values = conform(array.values, target.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=target, mask=array.is_null())
    if widens(source, target) or source.equals(target) or _differ_in_unit(source, target):
        return array.cast(target)
    return pa.nulls(len(array), target)


def conform_chunked(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Convert every chunk of a column."""
    return pa.chunked_array([conform(chunk, target) for chunk in column.chunks], target)


def conform_rows(rows: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Convert all columns; those that the rows lack are null."""
    if rows.schema.names == target.names and rows.schema.types == target.types:
        return pa.RecordBatch.from_arrays(rows.columns, schema=target)
    columns = [
        conform(rows[field.name], field.type)
        if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which every column, and every part of one, may be null.

    A column that may not be needs a table feature, and is hard to widen.
    """
    return pa.schema(map(_nullable_field, schema), schema.metadata)


def with_nullable_columns(rows: pa.Table) -> pa.Table:
    """Return rows with a schema in which everything may be null."""
    target = nullable(rows.schema)
    return rows if rows.schema.equals(target) else rows.cast(target)


def _nullable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable_type(field.type)).with_nullable(True)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(map(_nullable_field, kind))
    if pa.types.is_map(kind):  # whose keys are never null
        key = kind.key_field.with_type(_nullable_type(kind.key_type))
        return pa.map_(key, _nullable_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_nullable_field(kind.value_field))
    return kind


def _canonical(array: pa.Array) -> pa.Array:
    """Return the array in the layout used here; other writers of a table may use others."""
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        return _canonical(array.dictionary_decode())
    if pa.types.is_large_list(data_type) or pa.types.is_list_view(data_type):
        return array.cast(pa.list_(data_type.value_field))
    return array.cast(_CANONICAL_TYPES[data_type]) if data_type in _CANONICAL_TYPES else array


def _differ_in_unit(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether both are timestamps: Spark writes UTC timestamps as nanoseconds without a zone."""
    if not (pa.types.is_timestamp(source) and pa.types.is_timestamp(target)):
        return False
    return bool(source.unit != target.unit)


def _keys_fit(source: pa.DataType, target: pa.DataType) -> bool:
    is_same: bool = source.key_type.equals(target.key_type)
    return is_same or widens(source.key_type, target.key_type)


def _offsets(array: pa.Array) -> pa.Array:
    """Return offsets without an offset of their own, which Arrow requires with a mask."""
    return pa.concat_arrays([array.offsets]) if array.offset else array.offsets


def rows_with_value(array: pa.Array, path: Sequence[str]) -> np.ndarray:
    """Return a mask of the rows with a value at a nested path, in any element of lists and maps."""
    if not path:
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    first, *rest = path
    if pa.types.is_struct(array.type):
        nested = rows_with_value(array.field(first), rest)
    elif pa.types.is_map(array.type):
        elements = array.keys if first == "key" else array.items
        nested = _any_element(array, rows_with_value(elements, rest))
    else:
        nested = _any_element(array, rows_with_value(array.values, rest))
    mask: np.ndarray = nested & array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _any_element(array: pa.Array, elements: np.ndarray) -> np.ndarray:
    """Return a mask of the lists in which any element is set."""
    counts = np.concatenate([[0], np.cumsum(elements)])
    offsets = array.offsets.to_numpy()
    mask: np.ndarray = counts[offsets[1:]] > counts[offsets[:-1]]
    return mask
