"""Descriptors for ptars, and the arithmetic of how many bytes values take in a payload.

ptars never sees the registry's own descriptors but generated ones: their fields have types that it
reads exactly as python-protobuf does, and names that cannot clash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

STRING, GROUP, MESSAGE, BYTES = 9, 10, 11, 12
"""Protobuf's numbers for types."""
_FILE = "headgate.proto"
_PACKAGE = "headgate"
_VARINT_STEPS = np.array([1 << 7 * step for step in range(1, 10)], np.uint64)
_LENGTH_STEPS = [1 << 7 * step for step in range(1, 5)]
_MAX_HANDLERS = 4_096
_SEARCH_UP_TO = 2_000
"""Numbers up to which a binary search for each is faster than a pass over all for each step."""


class Unstorable(ValueError):
    """A value that is valid in protobuf, but that no column can hold."""


@dataclass(frozen=True)
class Read:
    """Values of a column, converted from an array of ptars."""

    array: pa.Array
    mismatched: np.ndarray | None = None
    """Positions at which python-protobuf has another value."""


class PtarsField(Protocol):
    """A field that can be declared to ptars."""

    def declare(self, message: Any, schema: PtarsSchema) -> None: ...


@dataclass(frozen=True)
class PtarsSchema:
    """The generated file that ptars reads messages by."""

    file: Any
    highest: list[int] = field(default_factory=list)
    """The highest field number of each message: ptars allocates a table of that length for each."""

    @classmethod
    def empty(cls) -> PtarsSchema:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        return cls(FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3"))

    def message(self, fields: Sequence[PtarsField]) -> str:
        """Declare a message of these fields and return its name."""
        name = f"M{len(self.file.message_type)}"
        message = self.file.message_type.add(name=name)
        for one in fields:
            one.declare(message, self)
        self.highest.append(max((one.number for one in message.field), default=0))
        return f".{_PACKAGE}.{name}"

    def handler(self, name: str) -> Any:
        """Return the ptars handler for a declared message."""
        return _handler(self.file.SerializeToString(deterministic=True), name.removeprefix("."))


@lru_cache(_MAX_HANDLERS)
def _handler(file: bytes, name: str) -> Any:
    """Share handlers, which are large, among schemas that differ only in names, as many do."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from ptars import HandlerPool

    pool = DescriptorPool()
    pool.Add(FileDescriptorProto.FromString(file))
    descriptor = pool.FindMessageTypeByName(name)
    return HandlerPool([descriptor.file]).get_for_message(descriptor)


def declare_presence(message: Any, declared: Any) -> None:
    """Give a field presence, so that null means absent; message fields always have it."""
    if declared.type != MESSAGE:
        declared.proto3_optional = True
        declared.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{declared.name}")


def varint_sizes(numbers: np.ndarray) -> np.ndarray:
    """Return the bytes that each number takes as a varint, ten if negative, in a new array."""
    sizes = extra_varint_bytes(numbers)
    sizes += 1
    return sizes


def extra_varint_bytes(numbers: np.ndarray) -> np.ndarray:
    """Return the bytes that each number takes as a varint beyond the first."""
    unsigned = numbers.astype(np.int64, copy=False).view(np.uint64)
    if unsigned.size < _SEARCH_UP_TO:
        return _VARINT_STEPS.searchsorted(unsigned, side="right")
    ends = [unsigned.min(), unsigned.max()]
    least, most = np.searchsorted(_VARINT_STEPS, ends, side="right").tolist()
    sizes = np.full(unsigned.shape, least, np.int32)
    for step in _VARINT_STEPS[least:most]:
        sizes += unsigned >= step
    return sizes


def zigzag(numbers: np.ndarray) -> np.ndarray:
    """Encode signed numbers of 64 bits so that the sign is the last bit."""
    folded: np.ndarray = (numbers << 1) ^ (numbers >> 63)
    return folded


@cache
def tag_size(number: int) -> int:
    """Return the bytes of the tag before each value of a field."""
    return int(varint_sizes(np.array([number << 3]))[0])


def delimited(sizes: np.ndarray) -> np.ndarray:
    """Add the bytes of the length prefix that strings, bytes and messages have."""
    with_lengths: np.ndarray = sizes + np.int32(1)
    for longer in longer_lengths(sizes):
        with_lengths += longer
    return with_lengths


def longer_lengths(sizes: np.ndarray) -> list[np.ndarray]:
    """Return which lengths take more than one byte, more than two, and so on."""
    most = sizes.max(initial=0)
    return [sizes >= step for step in _LENGTH_STEPS if step <= most]


def numbers_of(array: pa.Array, dtype: type[np.generic]) -> np.ndarray:
    """Return the numbers of an array without a copy; those of nulls are arbitrary."""
    count, offset = len(array), array.offset
    if not count:
        return np.empty(0, dtype)
    if offset:
        offset *= np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, count, offset)


def with_numbers(numbers: np.ndarray, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of these numbers that is null where the given one is."""
    return pa.Array.from_buffers(kind, len(array), [array.buffers()[0], pa.py_buffer(numbers)])


def offsets_of(array: pa.Array) -> np.ndarray:
    """Return the offsets of the strings, byte strings or lists of an array."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def lengths_of(array: pa.Array) -> np.ndarray:
    """Return the length of each string, byte string or list."""
    offsets = offsets_of(array)
    lengths: np.ndarray = offsets[1:] - offsets[:-1]
    return lengths


def bits_of(bitmap: pa.Buffer, count: int) -> np.ndarray:
    """Unpack a bitmap without offset to booleans."""
    if not count:
        return np.empty(0, bool)
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=count, bitorder="little").view(bool)


def present_in(array: pa.Array) -> np.ndarray | bool:
    """Return which values are not null, or True for all."""
    return bits_of(array.buffers()[0], len(array)) if array.null_count else True


def size_without_unknown(message: Any) -> int:
    """Discard the unknown fields of a message and return its encoded size."""
    of = type(message)  # not the message itself: a field may have the name of a method
    of.DiscardUnknownFields(message)
    return len(of.SerializePartialToString(message))


def merge_mismatched(*found: np.ndarray | None) -> np.ndarray | None:
    """Return all positions once, or None in the usual case of none."""
    some = [one for one in found if one is not None and len(one)]
    return np.unique(np.concatenate(some)) if some else None
