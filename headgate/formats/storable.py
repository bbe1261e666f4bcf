"""Conversion of decoded Arrow types to those that Delta and Parquet can store.

No value is altered or lost: types that Delta lacks become the next wider one.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from headgate.schema.names import column_names

_STORABLE_TYPES = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.null(): pa.string(),
}


def storable_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a column in a table."""
    if data_type in _STORABLE_TYPES:
        return _STORABLE_TYPES[data_type]
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz)
    if pa.types.is_duration(data_type) or pa.types.is_time(data_type):
        return pa.int64()
    if pa.types.is_fixed_size_binary(data_type):
        return pa.binary()
    if pa.types.is_dictionary(data_type):
        return storable_type(data_type.value_type)
    if pa.types.is_map(data_type):
        return pa.map_(storable_type(data_type.key_type), storable_type(data_type.item_type))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return pa.list_(storable_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        # A struct cannot be empty, so only the presence of an empty message is kept.
        return pa.struct(storable_fields(list(data_type))) if data_type.num_fields else pa.bool_()
    return data_type


def storable_fields(fields: list[pa.Field], reserved: Collection[str] = ()) -> list[pa.Field]:
    """Return nullable columns with unique names for some fields."""
    names = column_names((field.name for field in fields), reserved)
    return [
        pa.field(name, storable_type(field.type), nullable=True, metadata=field.metadata)
        for name, field in zip(names, fields, strict=True)
    ]


def storable_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert values to the type that `storable_type` returned for theirs."""
    source = array.type
    if source.equals(target):
        return array
    if pa.types.is_duration(source) or pa.types.is_time(source):
        micros = pa.duration("us") if pa.types.is_duration(source) else pa.time64("us")
        return array.cast(micros, safe=False).cast(pa.int64())
    if pa.types.is_struct(source):
        if pa.types.is_boolean(target):
            return array.is_valid()
        children = [
            storable_array(array.field(index), target.field(index).type)
            for index in range(source.num_fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_map(source):
        keys = storable_array(array.keys, target.key_type)
        items = storable_array(array.items, target.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null())
    if pa.types.is_list(source):
        values = storable_array(array.values, target.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=array.is_null())
    return array.cast(target, safe=not pa.types.is_timestamp(source))
