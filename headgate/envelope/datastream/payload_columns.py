"""The columns of a row, from the payload record of an Avro file.

Old files have a text as a record of its value and its length, and a moment with a time zone as a
record of the moment and the zone's offset. Both become what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.envelope.datastream.columns import LOG_COLUMN_NAMES
from headgate.schema.avro.columns import NULL, record_columns
from headgate.schema.avro.kinds import Field, Primitive, Record, Type, Union
from headgate.schema.avro.logical import Logical
from headgate.schema.decoder import only_length
from headgate.schema.storable import storable_array, storable_fields

_MICROS = Primitive("long", Logical("timestamp-micros"))


@dataclass(frozen=True)
class PayloadColumns:
    """Takes the payloads of one schema apart."""

    schema: pa.Schema
    paths: tuple[tuple[int, ...], ...]
    """Which field of the payload each column is, or which field of that field."""

    @classmethod
    def of(cls, payload: Record) -> PayloadColumns:
        fields, paths = [], []
        for at, one in enumerate(payload.fields):
            for field, path in _columns(one):
                fields.append(field)
                paths.append((at, *path))
        columns = record_columns(Record(payload.name, tuple(fields), payload.fewest_bytes))
        return cls(pa.schema(storable_fields(columns, LOG_COLUMN_NAMES)), tuple(paths))

    def batch(self, payloads: pa.StructArray) -> pa.RecordBatch:
        """The columns of payloads of which none is null."""
        if not self.paths:
            return only_length(len(payloads))
        arrays = []
        for path, field in zip(self.paths, self.schema, strict=True):
            array = payloads.field(path[0])
            for at in path[1:]:
                array = array.flatten()[at]
            arrays.append(storable_array(array, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def record_inside(kind: Type) -> Record | None:
    """The record that a type is, or that it is when it is not null."""
    match kind:
        case Record():
            return kind
        case Union(branches):
            others = [one for one in branches if one != NULL]
            if len(others) == 1 and isinstance(others[0], Record):
                return others[0]
    return None


def _columns(field: Field) -> list[tuple[Field, tuple[int, ...]]]:
    record = record_inside(field.type)
    if record is not None:
        parts = {one.name: (at, one.type) for at, one in enumerate(record.fields)}
        nullable = isinstance(field.type, Union)
        match record.name.rpartition(".")[2].lower():
            case "varchar" if "value" in parts:
                at, kind = parts["value"]
                return [(Field(field.name, _as_nullable(kind, nullable)), (at,))]
            case "timestamptz" if {"timestamp", "offset"} <= parts.keys():
                (at, kind), (offset_at, offset) = parts["timestamp"], parts["offset"]
                moment = _MICROS if kind == Primitive("long") else kind
                return [
                    (Field(field.name, _as_nullable(moment, nullable)), (at,)),
                    (Field(f"{field.name}_offset", _as_nullable(offset, nullable)), (offset_at,)),
                ]
    return [(field, ())]


def _as_nullable(kind: Type, nullable: bool) -> Type:
    if not nullable:
        return kind
    branches = kind.branches if isinstance(kind, Union) else (kind,)
    return Union((NULL, *(one for one in branches if one != NULL)))
