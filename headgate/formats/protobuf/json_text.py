"""Values that have no columns of their own, as JSON text: what contains itself, or anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.field import REPEATED, declare, is_map, sums, value_within
from headgate.formats.protobuf.wire import (
    BYTES,
    STRING,
    Read,
    Unstorable,
    Wire,
    delimited,
    lengths_of,
    offsets_of,
    size_without_unknown,
    tag_size,
)

_LONGEST_DETAIL = 400


@dataclass(frozen=True)
class Json:
    """A message in protobuf's own JSON, with the names of the .proto file and keys in order."""

    message: Any
    """The message's class in python-protobuf."""
    type = pa.string()
    width = 1
    zero = None
    absent = None

    def declare(self, declared: Any, wire: Wire) -> None:
        declared.type = BYTES

    def read(self, raw: pa.Array) -> Read:
        codes = raw.dictionary_encode()
        texts: list[str | None] = []
        refused = []
        for code, payload in enumerate(codes.dictionary.to_pylist()):
            try:
                texts.append(self._text(payload))
            except Unstorable:
                texts.append(None)
                refused.append(code)
        odd = None
        if refused:
            odd = np.flatnonzero(np.isin(codes.indices.fill_null(-1).to_numpy(), refused))
        return Read(pa.array(texts, pa.string()).take(codes.indices), odd)

    def value(self, value: Any) -> str:
        return self._text(type(value).SerializePartialToString(value))

    def sizes(self, raw: pa.Array) -> np.ndarray:
        """Without what the schema does not have: there is no JSON of that."""
        codes = raw.dictionary_encode()
        known = [self._known_size(payload) for payload in codes.dictionary.to_pylist()]
        return delimited(np.array(known, np.int64)[codes.indices.to_numpy()])

    def is_written(self, raw: pa.Array) -> bool:
        return True

    def _known_size(self, payload: bytes) -> int:
        from google.protobuf.message import DecodeError

        try:
            return min(len(payload), size_without_unknown(self.message.FromString(payload)))
        except DecodeError:
            return 0

    def _text(self, payload: bytes) -> str:
        from google.protobuf.json_format import MessageToJson

        try:
            message = self.message.FromString(payload)
            text = MessageToJson(
                message,
                preserving_proto_field_name=True,
                indent=None,
                sort_keys=True,
                ensure_ascii=False,
            )
        except Exception as error:  # whatever a hostile message does inside the printer
            raise Unstorable(str(error)[:_LONGEST_DETAIL]) from None
        # How the printer writes a string that is not UTF-8, which proto2 lets through.
        if ("\"b'" in text or '"b\\"' in text) and _has_bytes_for_text(message):
            raise Unstorable("a string that is not UTF-8")
        return text


@dataclass(frozen=True)
class OneJson:
    """A field that occurs once; where it does not, its parts are merged as protobuf merges."""

    number: int
    column: str
    shape: Json
    type = pa.string()
    width = 1

    def declare(self, message: Any, wire: Wire) -> None:
        self.shape.declare(declare(message, self.number, REPEATED), wire)

    def read(self, raw: pa.Array) -> Read:
        return self.shape.read(_joined(raw))

    def value(self, value: Any) -> Any:
        return None if value is None else value_within(self.column, self.shape, value)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return sums(raw, self.shape.sizes(raw.values) + tag_size(self.number))

    def present(self, raw: pa.Array) -> np.ndarray:
        return lengths_of(raw) > 0


def _joined(lists: pa.Array) -> pa.Array:
    """The byte strings of each list as one, null for none: they stand side by side already."""
    if not len(lists.values):
        return pa.nulls(len(lists), pa.binary())
    bounds = offsets_of(lists.values)[offsets_of(lists)]
    present = np.packbits(lengths_of(lists) > 0, bitorder="little")
    return pa.Array.from_buffers(
        pa.binary(),
        len(lists),
        [pa.py_buffer(present), pa.py_buffer(bounds), lists.values.buffers()[2]],
    )


def _has_bytes_for_text(message: Any) -> bool:
    return any(
        _has_bytes_for_text(value)
        if field.message_type is not None
        else field.type == STRING and isinstance(value, bytes)
        for field, value in _values(message)
    )


def _values(message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every single value directly inside, with the field that says its type."""
    # Not message.ListFields(): a field may have that name.
    for field, value in type(message).ListFields(message):
        if is_map(field):
            entry = field.message_type.fields_by_name
            for key, item in value.items():
                yield entry["key"], key
                yield entry["value"], item
        elif field.is_repeated:
            yield from ((field, one) for one in value)
        else:
            yield field, value
