"""Avro: a registry's schema text, payloads decoded to columns.

A batch is read at once where it can be. Where anything about it is not as it should be, it is
halved, and the few records that are left are read by the letter: what a record becomes depends
on its bytes and its schema, and never on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.formats.avro.columns import (
    NULL,
    branch_names,
    column_type,
    record_columns,
    root_record,
)
from headgate.formats.avro.physical_schema import ContainerReader, guarded, takes_no_bytes
from headgate.formats.avro.primitive_columns import Doubtful, leaf_column
from headgate.formats.avro.read_bytes import MOST_VALUES, WrongBytes, places, places_per_byte
from headgate.formats.avro.reference_decoder import ExactReader
from headgate.formats.avro.schema import AvroSchema, parse_schema
from headgate.formats.avro.types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union
from headgate.formats.decoder import Decoded, only_length
from headgate.formats.storable import storable_array, storable_fields
from headgate.registry.registry import SchemaText
from headgate.schema.origin import ORIGIN_COLUMNS

_MOST_BYTES = 32 << 20
MOST_PLACES = 1 << 27
"""A hostile count can make values of all that is in a batch."""


class BatchReader:
    """Reads payloads of one schema at once, or not at all."""

    def __init__(self, record: Record, container: ContainerReader) -> None:
        self._record = record
        self._container = container
        self._places = places_per_byte(record)

    @classmethod
    def of(cls, record: Record) -> BatchReader | None:
        """None for the few schemas of which a batch cannot be read."""
        plain = guarded(record)
        return None if plain is None else cls(record, ContainerReader(plain))

    def read(self, payloads: pa.BinaryArray) -> pa.StructArray | None:
        """The records as a struct of columns; None if it is not sure of any one of them."""
        offsets = np.frombuffer(payloads.buffers()[1], np.int32)
        offsets = offsets[payloads.offset : payloads.offset + len(payloads) + 1]
        size, longest = int(offsets[-1] - offsets[0]), int(np.diff(offsets).max())
        if size > _MOST_BYTES or size * self._places > MOST_PLACES:
            return None
        if longest * self._places > MOST_VALUES:
            return None
        plain = self._container.read(payloads)
        if plain is None:
            return None
        try:
            return column_of(self._record, plain)
        except (Doubtful, pa.ArrowException):
            return None


def column_of(kind: Type, plain: pa.Array) -> pa.Array:
    """The column of an expanded type; Doubtful if any one of its values is none."""
    match kind:
        case Primitive() | Fixed() | Enum():
            return leaf_column(kind, plain)
        case Array(items):
            return pa.ListArray.from_arrays(plain.offsets, column_of(items, plain.values))
        case Map(values):
            return _map(values, plain)
        case Record(fields=fields):
            columns = _parts([one.type for one in fields], plain)
            return pa.StructArray.from_arrays(columns, fields=list(column_type(kind)))
        case Union():
            return _union(kind, plain)
        case _:
            raise AssertionError(f"{kind} is not expanded")


def _parts(kinds: list[Type], plain: pa.StructArray) -> list[pa.Array]:
    """Of a record, or of the entries of a map; what takes no bytes was not told to the reader."""
    told = iter(plain.field(at) for at in range(plain.type.num_fields))
    return [
        _without_bytes(kind, len(plain)) if takes_no_bytes(kind) else column_of(kind, next(told))
        for kind in kinds
    ]


def _without_bytes(kind: Type, rows: int) -> pa.Array:
    match kind:
        case Record(fields=fields):
            children = [_without_bytes(one.type, rows) for one in fields]
            return pa.Array.from_buffers(column_type(kind), rows, [None], children=children)
        case Fixed():
            return pa.repeat(pa.scalar(b"", pa.binary()), rows)
        case _:
            return pa.nulls(rows)


def _map(values: Type, plain: pa.ListArray) -> pa.MapArray:
    keys, items = _parts([Primitive("string"), values], plain.values)
    owners = np.repeat(np.arange(len(plain)), np.diff(plain.offsets))
    words = keys.dictionary_encode()
    pairs = owners * len(words.dictionary) + words.indices.to_numpy()
    if len(np.unique(pairs)) < len(pairs):
        raise Doubtful("a map has a duplicate key")
    return pa.MapArray.from_arrays(plain.offsets, keys, items)


def _union(union: Union, plain: pa.UnionArray) -> pa.Array:
    branch, place = plain.type_codes.to_numpy(), plain.offsets.to_numpy()
    if len(branch) and branch.max() >= len(union.branches):
        raise Doubtful("a branch that only pads the union")
    names = branch_names(union)
    columns = []
    for at in names:
        kind, told = union.branches[at], plain.field(at)
        if takes_no_bytes(kind):
            column = _without_bytes(kind, len(told))
        else:
            column = column_of(kind, told.field(0))
        is_here = branch == at
        if not is_here.all():
            column = column.take(pa.array(place, mask=~is_here))
        columns.append(column)
    if len(columns) < 2:
        return columns[0] if columns else pa.nulls(len(plain))
    null = union.branches.index(NULL) if NULL in union.branches else -1
    return pa.StructArray.from_arrays(
        columns, fields=list(column_type(union)), mask=pa.array(branch == null)
    )


_FEW_RECORDS = 32
_MANY_RECORDS = 4_096
"""Python's values take many times the place of Arrow's, and go before the next ones come."""
_FEW_BYTES = 4 << 10
_FEW_BYTES_OF_A_COLUMN = 200


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes the records of one writer's schema."""

    record_name: str
    schema: pa.Schema
    read_type: pa.DataType
    """The columns as they are read, before those of Delta."""
    exact: ExactReader
    batches: BatchReader | None
    few_bytes: int
    """In the time that it takes to begin with a batch, so many are read by the letter."""

    @classmethod
    def parse(cls, text: SchemaText) -> AvroDecoder:
        return cls.of(parse_schema(text))

    @classmethod
    def of(cls, schema: AvroSchema) -> AvroDecoder:
        record = root_record(schema)
        columns = storable_fields(record_columns(record), ORIGIN_COLUMNS)
        return cls(
            record_name=record.name,
            schema=pa.schema(columns),
            read_type=column_type(record),
            exact=ExactReader(record, schema.named),
            batches=BatchReader.of(record),
            few_bytes=_FEW_BYTES + _FEW_BYTES_OF_A_COLUMN * places(record),
        )

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        found, bad = self.read(payloads)
        if not self.schema.names:
            return Decoded(only_length(len(found)), bad)
        arrays = [
            storable_array(found.field(at), field.type) for at, field in enumerate(self.schema)
        ]
        return Decoded(pa.RecordBatch.from_arrays(arrays, schema=self.schema), bad)

    def read(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, dict[int, str]]:
        """The records in the types that they are read in, and what is wrong with the others."""
        found: list[pa.StructArray] = []
        bad: dict[int, str] = {}
        self._decode_range(payloads.fill_null(b""), 0, found, bad)
        if len(found) != 1:
            found = [pa.concat_arrays([*found, pa.array([], self.read_type)])]
        return found[0], bad

    def _decode_range(
        self,
        payloads: pa.BinaryArray,
        start: int,
        found: list[pa.StructArray],
        bad: dict[int, str],
    ) -> None:
        if self.batches is not None and payloads.nbytes > self.few_bytes:
            columns = self.batches.read(payloads)
            if columns is not None:
                found.append(columns)
                return
            if len(payloads) > _FEW_RECORDS:
                middle = len(payloads) // 2
                self._decode_range(payloads[:middle], start, found, bad)
                self._decode_range(payloads[middle:], start + middle, found, bad)
                return
        for first in range(0, len(payloads), _MANY_RECORDS):
            rows = []
            part = payloads[first : first + _MANY_RECORDS]
            for position, payload in enumerate(part.to_pylist(), start + first):
                try:
                    rows.append(self.exact.read(payload))
                except WrongBytes as error:
                    bad[position] = str(error)[:500]
            found.append(pa.array(rows, self.read_type))
