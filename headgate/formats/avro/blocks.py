"""Record boundaries in the blocks of an Avro file, where nothing separates the records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.formats.avro.columns import root_record
from headgate.formats.avro.encoding import Cursor, MalformedAvro
from headgate.formats.avro.reference_decoder import AvroReferenceDecoder
from headgate.formats.avro.schema import AvroSchema
from headgate.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    JsonTextType,
    Map,
    Named,
    Primitive,
    Record,
    RecordField,
    Type,
    Union,
)


class RecordBoundaries:
    """Finds where the records of a block end, without checking their values."""

    def __init__(self, schema: AvroSchema) -> None:
        named = {name: _unchecked_named(defined) for name, defined in schema.named.items()}
        self._decoder = AvroReferenceDecoder(_unchecked_record(root_record(schema)), named)

    def find(self, block: bytes, count: int, max_cells: int) -> tuple[list[int], int]:
        """Return the end of each record, and the cells in arrays and maps of all of them.

        Raises MalformedAvro if the block does not have exactly `count` records, or if they have
        more than `max_cells`.
        """
        cursor = Cursor(block)
        ends, cells = [], 0
        for _ in range(count):
            cursor.cells = cursor.depth = 0
            self._decoder.decode_next(cursor)
            ends.append(cursor.position)
            cells += cursor.cells
            if cells > max_cells:
                raise MalformedAvro(f"more than {max_cells} values in arrays and maps")
        if cursor.position != len(block):
            raise MalformedAvro(f"{len(block) - cursor.position} bytes after the last record")
        return ends, cells


def split_block(block: bytes, ends: Sequence[int]) -> pa.BinaryArray:
    """Return the records of a block as payloads, without copying them."""
    offsets = np.array([0, *ends], np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )


def _unchecked(avro_type: Type) -> Type:
    """Return a type that reads the same bytes and accepts any value of that length."""
    match avro_type:
        case Primitive("string" | "bytes"):
            return Primitive("bytes")
        case Primitive("boolean"):
            return Fixed("boolean", 1)
        case Primitive(name):
            return Primitive(name)
        case Array(items):
            return Array(_unchecked(items))
        case Map(values):
            fields = (
                RecordField("key", Primitive("bytes")),
                RecordField("value", _unchecked(values)),
            )
            return Array(Record("entry", fields, 1))
        case Union(branches):
            return Union(tuple(map(_unchecked, branches)))
        case JsonTextType(inside):
            return JsonTextType(_unchecked(inside))
        case Record():
            return _unchecked_record(avro_type)
        case Fixed(name, size):
            return Fixed(name, size)
        case Enum():
            return Primitive("int")
        case _:
            return avro_type


def _unchecked_named(named: Named) -> Named:
    match named:
        case Record():
            return _unchecked_record(named)
        case Fixed(name, size):
            return Fixed(name, size)
        case Enum():
            # Recursive types look it up by name, so it has to stay a named type.
            return named


def _unchecked_record(record: Record) -> Record:
    fields = tuple(RecordField(field.name, _unchecked(field.type)) for field in record.fields)
    return Record(record.name, fields, record.min_size)
