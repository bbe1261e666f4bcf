"""Protobuf payloads decoded to columns: by ptars where its result is right, else row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.decoder import ROOT_MESSAGE, Decoded, MessageChoice, only_length
from headgate.formats.protobuf.descriptors import (
    JsonClasses,
    NoSuchMessage,
    choose_message,
    descriptors,
    find_message,
    pool_of,
    without_conflicts,
)
from headgate.formats.protobuf.field import MapField, Repeated, Singular, ValueType
from headgate.formats.protobuf.message import Message, Planner
from headgate.formats.protobuf.ptars import PtarsDecoder, PtarsResult
from headgate.formats.protobuf.reference import ProtobufReferenceDecoder, UndeclaredFields
from headgate.formats.protobuf.scalar import EnumValue
from headgate.formats.protobuf.wire import lengths_of, offsets_of
from headgate.registry.registry import RefusedSchema, SchemaText
from headgate.schema.origin import ORIGIN_COLUMNS

_MAX_CELLS = 1 << 26
_MIN_ELEMENT_BYTES = 2
_CELL_BYTES = 8
_CACHED_BYTES = 1 << 17
"""Bytes that a processor's cache holds while they are compared several times."""
_DELIMITED, _GROUP = 2, 3
_LOW_BITS = 0x7F
"""A tag may be encoded in more bytes than it needs, but its first byte has the same low bits."""


class _TooLarge(Exception):
    pass


@dataclass(frozen=True)
class SizeLimit:
    """The limit on the cells that a payload of one message takes as columns.

    An element of a list takes two bytes or more in a payload, and a cell in each of its columns,
    whether it is set or not: a small payload of a wide schema could fill the memory.
    """

    message: Message
    has_groups: bool

    def too_large(self, payloads: pa.BinaryArray, lengths: np.ndarray) -> dict[int, str]:
        """Return the payloads beyond the limit; only those long enough to be are looked at."""
        found: dict[int, str] = {}
        if lengths.max(initial=0) <= self._always_fits:
            return found
        from google.protobuf.message import DecodeError

        for row in np.flatnonzero(lengths > self._always_fits).tolist():
            try:
                _count(self.message, payloads[row].as_py(), _MAX_CELLS)
            except _TooLarge:
                found[row] = f"its lists take more than {_MAX_CELLS} values as columns"
            except DecodeError as error:
                found[row] = str(error)[:500]
        return found

    @cached_property
    def _always_fits(self) -> int:
        return _MAX_CELLS * _MIN_ELEMENT_BYTES // max(1, _widest(self.message))

    def most_cells(self, payloads: pa.BinaryArray, enough: int) -> np.ndarray | None:
        """Return an upper bound of the cells of each payload; None if they have few together."""
        offsets, lists = offsets_of(payloads), self._lists
        start, end = int(offsets[0]), int(offsets[-1])
        size, width = end - start, self.message.width
        few = len(payloads) * width + size * lists.per_byte
        widest = max(lists.elements.values(), default=0)
        if few + size * widest // _MIN_ELEMENT_BYTES <= enough:
            return None
        lengths = lengths_of(payloads)
        most = lengths * np.int64(lists.per_byte) + width
        if not lists.elements or not size:
            return most
        data = np.frombuffer(payloads.buffers()[2], np.uint8, size, start)
        if few + lists.most_in(data) <= enough:
            return None
        filled = lengths > 0
        starts = offsets[:-1][filled] - start
        for tag, cells in lists.elements.items():
            begins = (data & _LOW_BITS) == tag
            most[filled] += cells * np.add.reduceat(begins, starts, dtype=np.int64)
        return most

    @cached_property
    def _lists(self) -> _Lists:
        return _Lists.of(self.message, (_DELIMITED, _GROUP) if self.has_groups else (_DELIMITED,))


@dataclass(frozen=True)
class _Lists:
    """What the elements of a message's lists take in cells."""

    elements: Mapping[int, int]
    """Of messages and map entries, by the low bits of the tag that each of them begins with."""
    per_byte: int
    """Of numbers and texts, for each byte of a payload."""

    def most_in(self, data: np.ndarray) -> int:
        """Return the most cells that elements take in payloads: every such byte may begin one."""
        most = 0
        for start in range(0, len(data), _CACHED_BYTES):
            block = data[start : start + _CACHED_BYTES] & _LOW_BITS
            for tag, cells in self.elements.items():
                most += cells * int(np.count_nonzero(block == tag))
        return most

    @classmethod
    def of(cls, message: Message, wire_types: Sequence[int]) -> _Lists:
        elements: dict[int, int] = {}
        per_byte = 0
        for field in message.fields:
            value_type, _ = _element(field)
            cells = 0
            if isinstance(field, MapField):
                cells = 1 + field.key.width + field.item.width
            elif isinstance(field, Repeated):
                if isinstance(value_type, Message):
                    cells = value_type.width
                else:
                    names = value_type.names if isinstance(value_type, EnumValue) else {}
                    longest = max(map(len, names.values()), default=0)
                    per_byte = max(per_byte, 1 + longest // _CELL_BYTES)
            if cells:
                for wire_type in wire_types:
                    tag = (field.number << 3 | wire_type) & _LOW_BITS
                    elements[tag] = max(elements.get(tag, 0), cells)
            if isinstance(value_type, Message):
                nested = cls.of(value_type, wire_types)
                per_byte = max(per_byte, nested.per_byte)
                for tag, cells in nested.elements.items():
                    elements[tag] = max(elements.get(tag, 0), cells)
        return cls(elements, per_byte)


def _element(field: Any) -> tuple[ValueType | None, bool]:
    """Return the type of a field's values, and whether it may have many."""
    if isinstance(field, Singular | Repeated):
        return field.value_type, isinstance(field, Repeated)
    item = field.item if isinstance(field, MapField) else None
    return (item.value_type if isinstance(item, Singular) else None), True


def _widest(message: Message) -> int:
    """Return the most columns that an element of any list has."""
    most = 0
    for field in message.fields:
        value_type, is_list = _element(field)
        if isinstance(value_type, Message):
            most = max(most, value_type.width if is_list else 0, _widest(value_type))
    return most


def _count(message: Message, payload: Any, left: int) -> int:
    """Return how many cells are left after the lists in a message."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    # To an empty message every field is unknown, and takes no memory.
    is_group = isinstance(payload, UnknownFieldSet)
    fields: Any = payload if is_group else UnknownFieldSet(Empty.FromString(payload))
    for found in fields:
        field = message.by_number.get(found.field_number)
        value_type, is_list = _element(field) if field is not None else (None, False)
        if not isinstance(value_type, Message) or found.wire_type not in (2, 3):
            continue
        if is_list:
            left -= value_type.width
            if left < 0:
                raise _TooLarge
        nested = Message((field.item,)) if isinstance(field, MapField) else value_type
        left = _count(nested, found.data, left)
    return left


@dataclass(frozen=True, eq=False)
class ProtobufDecoder:
    """Decodes payloads of one message."""

    record_name: str
    columns: Message
    schema: pa.Schema
    size_limit: SizeLimit
    reference: ProtobufReferenceDecoder
    fast: PtarsDecoder | None
    """None if python-protobuf must decode every payload."""

    @classmethod
    def compile(cls, text: SchemaText, message: MessageChoice = ROOT_MESSAGE) -> ProtobufDecoder:
        files = descriptors(text)
        return cls.for_message(files, choose_message(files, message))

    @classmethod
    def for_message(cls, files: Any, name: str) -> ProtobufDecoder:
        """Return a decoder for the named message of a compiled FileDescriptorSet."""
        try:
            files = without_conflicts(files)
            as_bytes = files.SerializeToString()
            planner = Planner(JsonClasses(files))
            columns = planner.message(find_message(pool_of(as_bytes), name), ORIGIN_COLUMNS)
            reference = ProtobufReferenceDecoder(as_bytes, name, columns)
            fast = None if planner.has_groups else PtarsDecoder.of(columns, reference, planner)
        except (KeyboardInterrupt, SystemExit, RefusedSchema, NoSuchMessage):
            raise
        except BaseException as error:  # a panic in Rust is not an Exception
            raise RefusedSchema(f"message {name} cannot be decoded: {error}"[:500]) from None
        limit = SizeLimit(columns, planner.has_groups)
        return cls(name, columns, pa.schema(columns.columns), limit, reference, fast)

    @property
    def message(self) -> Any:
        """The message's class in python-protobuf."""
        return self.reference.message

    @property
    def width(self) -> int:
        return self.columns.width

    def most_cells(self, payloads: pa.BinaryArray, enough: int) -> np.ndarray | None:
        return self.size_limit.most_cells(payloads, enough)

    @cached_property
    def handler(self) -> Any:
        """ptars for the message as it is declared, for encoding."""
        from ptars import HandlerPool, PtarsConfig

        descriptor = self.message.DESCRIPTOR
        config = PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us")
        return HandlerPool([descriptor.file], config).get_for_message(descriptor)

    def is_like(self, other: ProtobufDecoder) -> bool:
        """Return whether the decoders differ in nothing but the names of their columns."""
        return self._nameless == other._nameless

    @cached_property
    def _nameless(self) -> Message:
        fields: tuple[Any, ...] = self.columns.fields
        return replace(self.columns, fields=tuple(replace(one, column="") for one in fields))

    def decode_exact(self, payloads: pa.BinaryArray) -> list[pa.Array] | None:
        """Return the columns if no payload needs a closer look, else None.

        Decoders that are alike return the same for the same payloads.
        """
        lengths = lengths_of(payloads)
        if self.fast is None or self.size_limit.too_large(payloads, lengths):
            return None
        return self.fast.read_exact(payloads, lengths)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        rows, lengths = np.arange(len(payloads)), lengths_of(payloads)
        too_large = self.size_limit.too_large(payloads, lengths)
        if too_large:
            rows = np.delete(rows, list(too_large))
        if self.fast is not None:
            result = self.fast.read(payloads, lengths, rows)
        else:
            validation = self.reference.validate(payloads, rows)
            result = PtarsResult.without_rows(self.columns, rows, validation)
        by_row, invalid = self.reference.decode(payloads, result.fallback)
        bad = too_large | result.validation.invalid | invalid
        unknown = [row for row in result.validation.unknown if row not in bad]
        if not self.columns.fields:
            return Decoded(only_length(len(payloads) - len(bad)), bad, unknown)
        return Decoded(self._batch(result, by_row, bad), bad, unknown)

    def unknown_fields(self, payload: bytes) -> UndeclaredFields:
        """Return the wire data of a payload in `Decoded.unknown` that the message lacks."""
        return self.reference.unknown_fields(payload)

    def _batch(
        self, result: PtarsResult, by_row: dict[int, dict[str, Any]], bad: dict[int, str]
    ) -> pa.RecordBatch:
        """Merge the rows of both decoders in the order of their payloads."""
        batch = pa.RecordBatch.from_arrays(result.arrays, schema=self.schema)
        if not by_row and not bad:
            return batch
        fast = np.isin(result.rows, [*by_row, *bad], invert=True)
        batch = batch.filter(pa.array(fast))
        if not by_row:
            return batch
        rows = pa.array(by_row.values(), pa.struct(list(self.schema)))
        order = np.argsort(np.concatenate([result.rows[fast], list(by_row)]))
        arrays = [
            pa.concat_arrays([column, rows.field(place)]).take(pa.array(order))
            for place, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
