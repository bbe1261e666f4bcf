"""The blocks of an Avro file: records one after the other, and nothing that says where one ends.

All of them are read at once where that is sure. Where it is not, the records are told apart by
the letter first, without a look at what their values mean, and then are payloads like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.formats.avro.columns import root_record
from headgate.formats.avro.decoder import MOST_PLACES, column_of
from headgate.formats.avro.physical_schema import ContainerReader, unguarded
from headgate.formats.avro.primitive_columns import Doubtful
from headgate.formats.avro.read_bytes import Cursor, WrongBytes, places_per_byte
from headgate.formats.avro.reference_decoder import ExactReader
from headgate.formats.avro.schema import AvroSchema
from headgate.formats.avro.types import (
    Array,
    Enum,
    Field,
    Fixed,
    JsonText,
    Map,
    Named,
    Primitive,
    Record,
    Type,
    Union,
)


class BlockReader:
    """Reads all records of some blocks at once, or not at all."""

    def __init__(self, record: Record, container: ContainerReader) -> None:
        self._record = record
        self._container = container
        self._places = places_per_byte(record)

    @classmethod
    def of(cls, record: Record) -> BlockReader | None:
        """None for the few schemas of which a block cannot be read at once."""
        plain = unguarded(record)
        return None if plain is None else cls(record, ContainerReader(plain))

    def read(self, blocks: Sequence[bytes], count: int) -> pa.StructArray | None:
        """The records as a struct of columns; None if it is not sure of any one of them."""
        if not count or sum(map(len, blocks)) * self._places > MOST_PLACES:
            return None
        plain = self._container.read_blocks(blocks, count)
        if plain is None:
            return None
        try:
            return column_of(self._record, plain)
        except (Doubtful, pa.ArrowException):
            return None


class RecordEnds:
    """Tells the records of a block apart."""

    def __init__(self, schema: AvroSchema) -> None:
        named = {name: _shape_of_named(kind) for name, kind in schema.named.items()}
        self._reader = ExactReader(_record_shape(root_record(schema)), named)

    def find(self, block: bytes, count: int, most_values: int) -> tuple[list[int], int]:
        """Where each record ends, and how many values are in arrays and maps of all of them.

        WrongBytes for a block that has not just so many records, or more values than allowed.
        """
        cursor = Cursor(block)
        ends, values = [], 0
        for _ in range(count):
            cursor.values = cursor.depth = 0
            self._reader.read_next(cursor)
            ends.append(cursor.at)
            values += cursor.values
            if values > most_values:
                raise WrongBytes(f"more than {most_values} values in arrays and maps")
        if cursor.at != len(block):
            raise WrongBytes(f"{len(block) - cursor.at} bytes after the last record of a block")
        return ends, values


def payloads_of(block: bytes, ends: Sequence[int]) -> pa.BinaryArray:
    """The records of a block, each on its own, without a copy."""
    offsets = np.array([0, *ends], np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )


def _shape(kind: Type) -> Type:
    """A type that takes the same bytes, and takes every one of them for a value."""
    match kind:
        case Primitive("string" | "bytes"):
            return Primitive("bytes")
        case Primitive("boolean"):
            return Fixed("boolean", 1)
        case Primitive(word):
            return Primitive(word)
        case Array(items):
            return Array(_shape(items))
        case Map(values):
            fields = (Field("key", Primitive("bytes")), Field("value", _shape(values)))
            return Array(Record("entry", fields, 1))
        case Union(branches):
            return Union(tuple(map(_shape, branches)))
        case JsonText(inside):
            return JsonText(_shape(inside))
        case Record():
            return _record_shape(kind)
        case Fixed(name, size):
            return Fixed(name, size)
        case Enum():
            return Primitive("int")
        case _:
            return kind


def _shape_of_named(kind: Named) -> Named:
    match kind:
        case Record():
            return _record_shape(kind)
        case Fixed(name, size):
            return Fixed(name, size)
        case Enum():
            # What is named stays so: only a type without an end looks for it by its name.
            return kind


def _record_shape(record: Record) -> Record:
    fields = tuple(Field(one.name, _shape(one.type)) for one in record.fields)
    return Record(record.name, fields, record.fewest_bytes)
