"""The bytes of one Avro record, and how plain values are read from them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from headgate.formats.avro.columns import NULL
from headgate.formats.avro.types import Array, Map, Record, Type, Union, fewest_bytes

MOST_VALUES = 1 << 24
"""So many values may be in the arrays and maps of one record."""

DEEPEST_VALUE = 100
"""So deep may a value nest whose schema has no end."""


class WrongBytes(ValueError):
    """The bytes are no value of their schema."""


class Cursor:
    """A place in the bytes, and how much was met before it."""

    __slots__ = ("at", "data", "depth", "values")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0
        self.values = 0

    def count(self, values: int) -> None:
        self.values += values
        if self.values > MOST_VALUES:
            raise WrongBytes(f"more than {MOST_VALUES} values in arrays and maps")

    def go_deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST_VALUE:
            raise WrongBytes(f"nests deeper than {DEEPEST_VALUE}")


Read = Callable[[Cursor], Any]


def read_varint(cursor: Cursor) -> int:
    data, at = cursor.data, cursor.at
    byte = data[at]
    at += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70 or value >> 64:
            raise WrongBytes("a number of more than 64 bits")
    cursor.at = at
    return value


def read_long(cursor: Cursor) -> int:
    value = read_varint(cursor)
    return (value >> 1) ^ -(value & 1)


def read_int(cursor: Cursor) -> int:
    value = read_varint(cursor)
    if value >> 32:
        raise WrongBytes("an int of more than 32 bits")
    return (value >> 1) ^ -(value & 1)


def take(cursor: Cursor, size: int) -> bytes:
    at = cursor.at
    if not 0 <= size <= len(cursor.data) - at:
        raise WrongBytes(f"{size} bytes are wanted, {len(cursor.data) - at} are there")
    cursor.at = at + size
    return cursor.data[at : at + size]


def read_bytes(cursor: Cursor) -> bytes:
    return take(cursor, read_long(cursor))


def read_string(cursor: Cursor) -> str:
    return take(cursor, read_long(cursor)).decode()


def read_boolean(cursor: Cursor) -> bool:
    byte = cursor.data[cursor.at]
    cursor.at += 1
    if byte > 1:
        raise WrongBytes(f"a boolean of {byte}")
    return byte == 1


def read_blocks(cursor: Cursor, weight: int) -> Iterator[None]:
    """Once for each item of an array or a map; the caller reads it."""
    while count := read_long(cursor):
        if count < 0:
            count = -count
            read_long(cursor)  # The block's length, for those who skip it.
        cursor.count(count * weight)
        for _ in range(count):
            yield


def fixed_reader(size: int) -> Read:
    return lambda cursor: take(cursor, size)


def _number_reader(layout: str) -> Read:
    form = struct.Struct(layout)
    return lambda cursor: form.unpack(take(cursor, form.size))[0]


PLAIN_READERS: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": read_boolean,
    "int": read_int,
    "long": read_long,
    "float": _number_reader("<f"),
    "double": _number_reader("<d"),
    "bytes": read_bytes,
    "string": read_string,
}


def places(kind: Type) -> int:
    """The places that one value of an expanded type has in columns, be it null."""
    match kind:
        case Record(fields=fields):
            return 1 + sum(places(one.type) for one in fields)
        case Union(branches):
            return 1 + sum(places(one) for one in branches if one != NULL)
        case _:
            return 1


def places_per_byte(kind: Type) -> float:
    """No byte of a payload becomes more places than this in arrays and maps."""
    match kind:
        case Array(items):
            return places(items) / fewest_bytes(items, {}) + places_per_byte(items)
        case Map(values):
            entry = (1 + places(values)) / (1 + fewest_bytes(values, {}))
            return entry + places_per_byte(values)
        case Record(fields=fields):
            return max((places_per_byte(one.type) for one in fields), default=0.0)
        case Union(branches):
            return max(places_per_byte(one) for one in branches)
        case _:
            return 0.0
