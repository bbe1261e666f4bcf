"""Avro's binary encoding of primitive values, items and file headers, with limits on reading."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

MAGIC = b"Obj\x01"
"""The first bytes of a container file."""
SCHEMA_KEY = b"avro.schema"
SYNC_MARKER_SIZE = 16

MAX_ITEM_CELLS = 1 << 24
"""Limit on the cells in arrays and maps of one record."""

MAX_VALUE_DEPTH = 100
"""Limit on the nesting of a value whose type is recursive."""


class MalformedAvro(ValueError):
    """The bytes are not a value of their schema."""


class Cursor:
    """A position in encoded bytes, with the depth and the item cells read so far."""

    __slots__ = ("cells", "data", "depth", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.depth = 0
        self.cells = 0

    def count(self, cells: int) -> None:
        self.cells += cells
        if self.cells > MAX_ITEM_CELLS:
            raise MalformedAvro(f"more than {MAX_ITEM_CELLS} values in arrays and maps")

    def descend(self) -> None:
        self.depth += 1
        if self.depth > MAX_VALUE_DEPTH:
            raise MalformedAvro(f"nests deeper than {MAX_VALUE_DEPTH}")


Read = Callable[[Cursor], Any]


def read_varint(cursor: Cursor) -> int:
    data, position = cursor.data, cursor.position
    byte = data[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70 or value >> 64:
            raise MalformedAvro("a number has more than 64 bits")
    cursor.position = position
    return value


def read_long(cursor: Cursor) -> int:
    value = read_varint(cursor)
    return (value >> 1) ^ -(value & 1)


def read_int(cursor: Cursor) -> int:
    value = read_varint(cursor)
    if value >> 32:
        raise MalformedAvro("an int has more than 32 bits")
    return (value >> 1) ^ -(value & 1)


def take(cursor: Cursor, size: int) -> bytes:
    position = cursor.position
    if not 0 <= size <= len(cursor.data) - position:
        raise MalformedAvro(f"declares {size} bytes; {len(cursor.data) - position} are left")
    cursor.position = position + size
    return cursor.data[position : position + size]


def read_bytes(cursor: Cursor) -> bytes:
    return take(cursor, read_long(cursor))


def read_string(cursor: Cursor) -> str:
    return take(cursor, read_long(cursor)).decode()


def read_boolean(cursor: Cursor) -> bool:
    byte = cursor.data[cursor.position]
    cursor.position += 1
    if byte > 1:
        raise MalformedAvro(f"a boolean is {byte}")
    return byte == 1


def read_items(cursor: Cursor, item_cells: int) -> Iterator[None]:
    """Yield once per item of an array or a map, for the caller to read the item."""
    while count := read_long(cursor):
        if count < 0:
            count = -count
            read_long(cursor)  # The block's size, for readers that skip it.
        cursor.count(count * item_cells)
        for _ in range(count):
            yield


def fixed_reader(size: int) -> Read:
    return lambda cursor: take(cursor, size)


def _float_reader(layout: str) -> Read:
    form = struct.Struct(layout)
    return lambda cursor: form.unpack(take(cursor, form.size))[0]


PRIMITIVE_READERS: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": read_boolean,
    "int": read_int,
    "long": read_long,
    "float": _float_reader("<f"),
    "double": _float_reader("<d"),
    "bytes": read_bytes,
    "string": read_string,
}


def encode_long(value: int) -> bytes:
    """Encode a number that is not negative."""
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def encode_bytes(value: bytes) -> bytes:
    """Encode bytes or the UTF-8 of a string."""
    return encode_long(len(value)) + value


def encode_header(schema: bytes, sync_marker: bytes) -> bytes:
    """Encode the header of a container file without compression."""
    metadata = encode_long(1) + encode_bytes(SCHEMA_KEY) + encode_bytes(schema) + encode_long(0)
    return MAGIC + metadata + sync_marker
