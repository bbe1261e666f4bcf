"""Payloads decoded one by one with python-protobuf, the reference for every other way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.descriptors import pool_of
from headgate.formats.protobuf.field import is_map
from headgate.formats.protobuf.message import Message
from headgate.formats.protobuf.wire import Unstorable, size_without_unknown

T = TypeVar("T")

_WIRE_TYPES = {0: "varint", 1: "64 bits", 2: "length-delimited", 3: "group", 5: "32 bits"}
_MAX_NAMES = 10
_MAX_VISITED = 10_000


@dataclass(frozen=True)
class Validation:
    """Which payloads are invalid or have unknown fields."""

    invalid: dict[int, str] = field(default_factory=dict)
    """Position to what is wrong."""
    unknown: list[int] = field(default_factory=list)
    """Positions of valid payloads with fields that the schema does not have."""

    def __or__(self, other: Validation) -> Validation:
        unknown = sorted({*self.unknown, *other.unknown})
        return Validation(self.invalid | other.invalid, unknown)


@dataclass(frozen=True)
class UndeclaredFields:
    """Wire data of a payload that its message does not declare."""

    data: bytes
    """The unknown fields as they were sent, concatenated; the whole payload if any of them is
    nested in another message."""
    detail: str
    """Numbers and wire types of the unknown fields, without extensions."""
    only_extensions: bool
    """Whether every field is in a range that its message declares for extensions."""


@dataclass(frozen=True)
class ProtobufReferenceDecoder:
    """Decodes payloads of one message row by row."""

    files: bytes
    """The compiled FileDescriptorSet: the class is much larger, and most schemas never need it."""
    name: str
    columns: Message

    @cached_property
    def message(self) -> Any:
        """The message's class in python-protobuf."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(pool_of(self.files).FindMessageTypeByName(self.name))

    def validate(self, payloads: pa.BinaryArray, rows: np.ndarray) -> Validation:
        """Parse the payloads of these rows without converting their values."""
        if not len(rows):
            return Validation()
        has_unknown, invalid = _for_each(self._has_unknown, payloads, rows)
        return Validation(invalid, [row for row, found in has_unknown.items() if found])

    def invalid(self, payloads: pa.BinaryArray) -> dict[int, str]:
        """Parse payloads and return what is wrong with them.

        One message serves for all, which is faster; its memory grows until the last is parsed.
        """
        from google.protobuf.message import DecodeError

        found: dict[int, str] = {}
        message = self.message()
        for place, payload in enumerate(payloads.to_pylist()):
            try:
                self.message.ParseFromString(message, payload or b"")
            except DecodeError as error:
                found[place] = str(error)[:500]
        return found

    def decode(
        self, payloads: pa.BinaryArray, rows: np.ndarray
    ) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Return the values of these rows by column, and what is wrong with the others."""
        if not len(rows):
            return {}, {}
        return _for_each(self._values, payloads, rows)

    def unknown_fields(self, payload: bytes) -> UndeclaredFields:
        """Collect what the message does not declare of a valid payload."""
        message = self.message.FromString(payload)
        undeclared = self._undeclared(message)
        whole = self.message.SerializePartialToString(message, deterministic=True)
        self.message.DiscardUnknownFields(message)
        known = self.message.SerializePartialToString(message, deterministic=True)
        # Unknown fields are serialized after all others. Those of a nested message change its
        # length, so that the rest is no longer a prefix.
        data = whole[len(known) :] if whole.startswith(known) else payload
        if undeclared:
            more = " and more" if len(undeclared) > _MAX_NAMES else ""
            detail = f"message {self.name} has no field {', '.join(undeclared[:_MAX_NAMES])}{more}"
        else:
            detail = f"message {self.name} has unknown fields in nested messages"
        is_legitimate = self._has_extensions and not undeclared
        return UndeclaredFields(data, detail, only_extensions=is_legitimate)

    def _undeclared(self, message: Any) -> list[str]:
        """Name some unknown fields; only extensions are a reason to look at a whole payload."""
        found: dict[str, None] = {}
        for name in _undeclared(message, None if self._has_extensions else _MAX_VISITED):
            found[name] = None
            if len(found) > _MAX_NAMES:
                break
        return list(found)

    @cached_property
    def _has_extensions(self) -> bool:
        """Whether any message of the schema may have extensions."""
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        def may_have(messages: Any) -> bool:
            return any(one.extension_range or may_have(one.nested_type) for one in messages)

        return any(
            may_have(file.message_type) for file in FileDescriptorSet.FromString(self.files).file
        )

    def _has_unknown(self, payload: bytes) -> bool:
        known = size_without_unknown(self.message.FromString(payload))
        if known == len(payload):
            return False
        whole = self.message.SerializePartialToString(self.message.FromString(payload))
        return len(whole) != known

    def _values(self, payload: bytes) -> dict[str, Any]:
        return self.columns.value(self.message.FromString(payload))


def _undeclared(message: Any, max_visited: int | None) -> Iterator[str]:
    """Yield number and wire type of each unknown field that is not in a range for extensions."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    for path, one in islice(_messages_in(message), max_visited):
        # Not one.DESCRIPTOR: a field may have the name of any attribute.
        ranges = type(one).DESCRIPTOR.extension_ranges
        unknown: Any = UnknownFieldSet(one)
        for found in unknown:
            if not any(start <= found.field_number < end for start, end in ranges):
                yield f"{path}{found.field_number} ({_WIRE_TYPES[found.wire_type]})"


def _messages_in(message: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a message and all nested ones, with the names of the fields that lead to each."""
    yield path, message
    for of, value in type(message).ListFields(message):
        if of.message_type is None:
            continue
        nested: Any = [value]
        if is_map(of):
            is_scalar = of.message_type.fields_by_name["value"].message_type is None
            nested = () if is_scalar else value.values()
        elif of.is_repeated:
            nested = value
        for one in nested:
            yield from _messages_in(one, f"{path}{of.name}.")


def _for_each(
    read: Callable[[bytes], T], payloads: pa.BinaryArray, rows: np.ndarray
) -> tuple[dict[int, T], dict[int, str]]:
    from google.protobuf.message import DecodeError

    results: dict[int, T] = {}
    invalid: dict[int, str] = {}
    for row in rows.tolist():
        try:
            results[row] = read(payloads[row].as_py() or b"")
        except (DecodeError, Unstorable) as error:
            invalid[row] = str(error)[:500]
    return results, invalid
