"""The physical schema that the batch reader gets, and the way back from it to columns.

The physical schema describes the same bytes with the simplest types, so that little is left to
the reader's interpretation: no logical types, names or symbols; a boolean is one byte that we
check ourselves, and a map is a list of entries, so that duplicate keys survive. A union always
has three branches or more, because the reader takes one of null and a type for a nullable field
and reads any branch other than null's as the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.avro.columns import NULL, branch_names, column_type
from headgate.formats.avro.primitive_columns import UnsafeBatch, primitive_column
from headgate.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    JsonTextType,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    min_size,
)

GUARD_SIZE = 8
_MAX_BRANCHES = 100
"""Arrow numbers the branches of a union with seven bits."""

_ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


@dataclass(frozen=True)
class PhysicalType:
    """A physical type, as Avro and as Arrow."""

    avro: Any
    arrow: pa.DataType
    name: str | None = None
    """Set where Avro requires a name."""

    def field(self, name: str) -> pa.Field:
        """Return an Arrow field with the metadata that the reader expects."""
        metadata = None if self.name is None else {"avro.name": self.name}
        return pa.field(name, self.arrow, metadata=metadata)


def physical_schema(record: Record, *, guarded: bool) -> PhysicalType | None:
    """Return a record whose first field is the given one; None if it needs the reference decoder.

    A guarded schema has room for random bytes after each record: only if they come out unchanged
    did the reader find the end of every record.
    """
    if is_zero_size(record) or not _is_supported(record):
        return None
    builder = _Builder()
    fields = [builder.build(record)]
    if guarded:
        fields.append(builder.fixed(GUARD_SIZE))
    return builder.record(fields)


def is_zero_size(avro_type: Type) -> bool:
    return min_size(avro_type, {}) == 0


def _is_supported(avro_type: Type) -> bool:
    match avro_type:
        case JsonTextType():
            return False
        case Array(item) | Map(item):
            return _is_supported(item)
        case Record(fields=fields):
            return all(_is_supported(field.type) for field in fields)
        case Union(branches):
            # Zero-size types become null, and a union can have only one null.
            nulls = sum(map(is_zero_size, branches))
            fits = nulls < 2 and len(branches) <= _MAX_BRANCHES
            return fits and all(map(_is_supported, branches))
        case _:
            return True


class _Builder:
    def __init__(self) -> None:
        self._numbers = count()

    def build(self, avro_type: Type) -> PhysicalType:
        match avro_type:
            case Primitive("boolean"):
                return self.fixed(1)
            case Primitive(name):
                return PhysicalType(name, _ARROW_TYPES[name])
            case Fixed(size=size):
                return self.fixed(size)
            case Enum():
                return PhysicalType("int", pa.int32())
            case Array(items):
                return _list(self.build(items))
            case Map(values):
                return _list(self._struct([Primitive("string"), values]))
            case Record(fields=fields):
                return self._struct([field.type for field in fields])
            case Union(branches):
                return self._union(branches)
            case _:
                raise AssertionError(f"{avro_type} is not expanded")

    def fixed(self, size: int) -> PhysicalType:
        name = self._name()
        return PhysicalType({"type": "fixed", "name": name, "size": size}, pa.binary(size), name)

    def record(self, parts: Iterable[PhysicalType]) -> PhysicalType:
        name, named = self._name(), {f"f{index}": part for index, part in enumerate(parts)}
        fields = [{"name": field, "type": part.avro} for field, part in named.items()]
        arrow = pa.struct([part.field(field) for field, part in named.items()])
        return PhysicalType({"type": "record", "name": name, "fields": fields}, arrow, name)

    def _struct(self, types: Iterable[Type]) -> PhysicalType:
        """Return a record without the zero-size fields, which the reader cannot represent."""
        return self.record(self.build(item) for item in types if not is_zero_size(item))

    def _union(self, branches: tuple[Type, ...]) -> PhysicalType:
        parts = [
            PhysicalType("null", pa.null())
            if is_zero_size(branch)
            else self.record([self.build(branch)])
            for branch in branches
        ]
        while len(parts) < 3:
            parts.append(self.fixed(1))
        fields = [part.field(part.name or "null") for part in parts]
        return PhysicalType([part.avro for part in parts], pa.dense_union(fields))

    def _name(self) -> str:
        return f"t{next(self._numbers)}"


def _list(item: PhysicalType) -> PhysicalType:
    return PhysicalType({"type": "array", "items": item.avro}, pa.list_(item.field("item")))


def to_column(avro_type: Type, physical: pa.Array) -> pa.Array:
    """Convert a physical array; raise UnsafeBatch if a value may not be of the type."""
    match avro_type:
        case Primitive() | Fixed() | Enum():
            return primitive_column(avro_type, physical)
        case Array(items):
            return pa.ListArray.from_arrays(physical.offsets, to_column(items, physical.values))
        case Map(values):
            return _map_column(values, physical)
        case Record(fields=fields):
            columns = _field_columns([field.type for field in fields], physical)
            return pa.StructArray.from_arrays(columns, names=[field.name for field in fields])
        case Union():
            return _union_column(avro_type, physical)
        case _:
            raise AssertionError(f"{avro_type} is not expanded")


def _field_columns(types: list[Type], physical: pa.StructArray) -> list[pa.Array]:
    """Convert the fields of a struct, adding the zero-size ones that it does not have."""
    fields = iter(physical.field(index) for index in range(physical.type.num_fields))
    return [
        _zero_size_column(avro_type, len(physical))
        if is_zero_size(avro_type)
        else to_column(avro_type, next(fields))
        for avro_type in types
    ]


def _zero_size_column(avro_type: Type, rows: int) -> pa.Array:
    match avro_type:
        case Record(fields=fields):
            children = [_zero_size_column(field.type, rows) for field in fields]
            return pa.Array.from_buffers(column_type(avro_type), rows, [None], children=children)
        case Fixed():
            return pa.repeat(pa.scalar(b"", pa.binary()), rows)
        case _:
            return pa.nulls(rows)


def _map_column(values: Type, physical: pa.ListArray) -> pa.MapArray:
    keys, items = _field_columns([Primitive("string"), values], physical.values)
    owners = np.repeat(np.arange(len(physical)), np.diff(physical.offsets))
    encoded = keys.dictionary_encode()
    pairs = owners * len(encoded.dictionary) + encoded.indices.to_numpy()
    if len(np.unique(pairs)) < len(pairs):
        raise UnsafeBatch("a map has a key twice")
    return pa.MapArray.from_arrays(physical.offsets, keys, items)


def _union_column(union: Union, physical: pa.UnionArray) -> pa.Array:
    codes, offsets = physical.type_codes.to_numpy(), physical.offsets.to_numpy()
    if len(codes) and codes.max() >= len(union.branches):
        raise UnsafeBatch("a value of a branch that only pads the union")
    columns = []
    names = branch_names(union)
    for index in names:
        branch, values = union.branches[index], physical.field(index)
        if is_zero_size(branch):
            column = _zero_size_column(branch, len(values))
        else:
            column = to_column(branch, values.field(0))
        selected = codes == index
        if not selected.all():
            column = column.take(pa.array(offsets, mask=~selected))
        columns.append(column)
    if len(columns) < 2:
        return columns[0] if columns else pa.nulls(len(physical))
    null = union.branches.index(NULL) if NULL in union.branches else -1
    return pa.StructArray.from_arrays(
        columns, names=list(names.values()), mask=pa.array(codes == null)
    )
