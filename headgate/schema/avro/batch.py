"""From the plain arrays of a whole batch to columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.schema.avro.columns import NULL, branch_names, column_type
from headgate.schema.avro.container import ContainerReader
from headgate.schema.avro.kinds import Array, Enum, Fixed, Map, Primitive, Record, Type, Union
from headgate.schema.avro.leaves import Doubtful, leaf_column
from headgate.schema.avro.plain import guarded, takes_no_bytes
from headgate.schema.avro.read_bytes import MOST_VALUES
from headgate.schema.avro.size import places_per_byte

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
        raise Doubtful("a map has a key twice")
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
