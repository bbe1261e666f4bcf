"""What ptars is told of a message, and how many bytes its values take in a payload.

ptars never sees the registry's own descriptors but ones that are made here: its fields have
types that it reads exactly as python-protobuf does, and names that cannot clash.
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
_MOST_HANDLERS = 4_096
_FEW = 2_000
"""Up to so many numbers, searching for each is faster than a pass over all for each step."""


class Unstorable(ValueError):
    """A value that protobuf can carry and no column can hold; the message says which."""


@dataclass(frozen=True)
class Read:
    """Values made of what ptars gave, one for each of its slots."""

    array: pa.Array
    odd: np.ndarray | None = None
    """Slots that ptars cannot give as python-protobuf does."""


class Declared(Protocol):
    """A field that can be declared to ptars."""

    def declare(self, message: Any, wire: Wire) -> None: ...


@dataclass(frozen=True)
class Wire:
    """The file that is made for ptars."""

    file: Any
    highest: list[int] = field(default_factory=list)
    """The highest field number of each message: ptars keeps a table that long for each."""

    @classmethod
    def empty(cls) -> Wire:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        return cls(FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3"))

    def message(self, fields: Sequence[Declared]) -> str:
        """Declare a message of these fields and return its name."""
        name = f"M{len(self.file.message_type)}"
        message = self.file.message_type.add(name=name)
        for one in fields:
            one.declare(message, self)
        self.highest.append(max((one.number for one in message.field), default=0))
        return f".{_PACKAGE}.{name}"

    def handler(self, name: str) -> Any:
        """What reads such messages."""
        return _handler(self.file.SerializeToString(deterministic=True), name.removeprefix("."))


@lru_cache(_MOST_HANDLERS)
def _handler(file: bytes, name: str) -> Any:
    """One for all schemas that differ in names alone, as those of many tables do: it is large."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from ptars import HandlerPool

    pool = DescriptorPool()
    pool.Add(FileDescriptorProto.FromString(file))
    descriptor = pool.FindMessageTypeByName(name)
    return HandlerPool([descriptor.file]).get_for_message(descriptor)


def declare_presence(message: Any, declared: Any) -> None:
    """Let null mean absent; messages have that by themselves."""
    if declared.type != MESSAGE:
        declared.proto3_optional = True
        declared.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{declared.name}")


def varint_sizes(numbers: np.ndarray) -> np.ndarray:
    """How many bytes each number takes as a varint; negative ones take ten. Always a new array."""
    sizes = more_bytes(numbers)
    sizes += 1
    return sizes


def more_bytes(numbers: np.ndarray) -> np.ndarray:
    """How many bytes each number takes as a varint beyond the first."""
    unsigned = numbers.astype(np.int64, copy=False).view(np.uint64)
    if unsigned.size < _FEW:
        return _VARINT_STEPS.searchsorted(unsigned, side="right")
    ends = [unsigned.min(), unsigned.max()]
    least, most = np.searchsorted(_VARINT_STEPS, ends, side="right").tolist()
    sizes = np.full(unsigned.shape, least, np.int32)
    for step in _VARINT_STEPS[least:most]:
        sizes += unsigned >= step
    return sizes


def zigzag(numbers: np.ndarray) -> np.ndarray:
    """What is written for numbers of 64 bits whose sign stands last."""
    folded: np.ndarray = (numbers << 1) ^ (numbers >> 63)
    return folded


@cache
def tag_size(number: int) -> int:
    """How many bytes stand before each value of a field."""
    return int(varint_sizes(np.array([number << 3]))[0])


def delimited(sizes: np.ndarray) -> np.ndarray:
    """With the length in front that strings, bytes and messages have."""
    with_lengths: np.ndarray = sizes + np.int32(1)
    for longer in longer_lengths(sizes):
        with_lengths += longer
    return with_lengths


def longer_lengths(sizes: np.ndarray) -> list[np.ndarray]:
    """Of which of them the length takes more than one byte, more than two, and so on."""
    most = sizes.max(initial=0)
    return [sizes >= step for step in _LENGTH_STEPS if step <= most]


def numbers_of(array: pa.Array, dtype: type[np.generic]) -> np.ndarray:
    """The numbers of an array, whatever stands in its null slots; not a copy."""
    count, offset = len(array), array.offset
    if not count:
        return np.empty(0, dtype)
    if offset:
        offset *= np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, count, offset)


def with_numbers(numbers: np.ndarray, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of these numbers; null where the given one is."""
    return pa.Array.from_buffers(kind, len(array), [array.buffers()[0], pa.py_buffer(numbers)])


def offsets_of(array: pa.Array) -> np.ndarray:
    """Where each string, byte string or list begins and the last one ends."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def lengths_of(array: pa.Array) -> np.ndarray:
    """The length of each string, byte string or list."""
    offsets = offsets_of(array)
    lengths: np.ndarray = offsets[1:] - offsets[:-1]
    return lengths


def bits_of(bitmap: pa.Buffer, count: int) -> np.ndarray:
    """The truths of an array that begins where its bitmap does."""
    if not count:
        return np.empty(0, bool)
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=count, bitorder="little").view(bool)


def present_in(array: pa.Array) -> np.ndarray | bool:
    """Which slots are not null, or True for all."""
    return bits_of(array.buffers()[0], len(array)) if array.null_count else True


def size_without_unknown(message: Any) -> int:
    """How long a message of python-protobuf is once fields are gone that its schema lacks."""
    of = type(message)  # not the message itself: a field may have the name of a method
    of.DiscardUnknownFields(message)
    return len(of.SerializePartialToString(message))


def odd_slots(*found: np.ndarray | None) -> np.ndarray | None:
    """All of them together, or None for the usual case that there are none."""
    some = [one for one in found if one is not None and len(one)]
    return np.unique(np.concatenate(some)) if some else None
