"""From the Arrow types that decoders give to those that Delta and Parquet can hold.

No value changes and none is lost: what Delta has no type for goes into the next larger one.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from headgate.schema.names import column_names

_PLAIN = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.null(): pa.string(),
}


def storable_type(kind: pa.DataType) -> pa.DataType:
    """The type a column of this type has in a table."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return storable_type(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(storable_type(kind.key_type), storable_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(storable_type(kind.value_type))
    if pa.types.is_struct(kind):
        # An empty message says only whether it is there.
        return pa.struct(storable_fields(list(kind))) if kind.num_fields else pa.bool_()
    return kind


def storable_fields(fields: list[pa.Field], reserved: Collection[str] = ()) -> list[pa.Field]:
    """The columns for these fields: every one nullable, no two of one name."""
    names = column_names((field.name for field in fields), reserved)
    return [
        pa.field(name, storable_type(field.type), nullable=True, metadata=field.metadata)
        for name, field in zip(names, fields, strict=True)
    ]


def storable_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values in a type that storable_type gave."""
    kind = array.type
    if kind.equals(target):
        return array
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        micros = pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")
        return array.cast(micros, safe=False).cast(pa.int64())
    if pa.types.is_struct(kind):
        if pa.types.is_boolean(target):
            return array.is_valid()
        children = [
            storable_array(array.field(index), target.field(index).type)
            for index in range(kind.num_fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_map(kind):
        keys = storable_array(array.keys, target.key_type)
        items = storable_array(array.items, target.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null())
    if pa.types.is_list(kind):
        values = storable_array(array.values, target.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=array.is_null())
    return array.cast(target, safe=not pa.types.is_timestamp(kind))
