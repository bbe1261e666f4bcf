"""Messages as JSON text: those that contain themselves, and Struct, Value and ListValue."""

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
    PtarsSchema,
    Read,
    Unstorable,
    delimited,
    lengths_of,
    offsets_of,
    size_without_unknown,
    tag_size,
)

_MAX_DETAIL = 400


@dataclass(frozen=True)
class JsonText:
    """A message in protobuf's own JSON, with the names of the .proto file and sorted keys."""

    message: Any
    """The message's class in python-protobuf."""
    type = pa.string()
    width = 1
    zero = None
    absent = None

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        declared.type = BYTES

    def read(self, raw: pa.Array) -> Read:
        codes = raw.dictionary_encode()
        texts: list[str | None] = []
        unstorable = []
        for code, payload in enumerate(codes.dictionary.to_pylist()):
            try:
                texts.append(self._text(payload))
            except Unstorable:
                texts.append(None)
                unstorable.append(code)
        mismatched = None
        if unstorable:
            indices = codes.indices.fill_null(-1).to_numpy()
            mismatched = np.flatnonzero(np.isin(indices, unstorable))
        return Read(pa.array(texts, pa.string()).take(codes.indices), mismatched)

    def value(self, value: Any) -> str:
        return self._text(type(value).SerializePartialToString(value))

    def sizes(self, raw: pa.Array) -> np.ndarray:
        """Leave out unknown fields: they are not in the JSON text."""
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
            raise Unstorable(str(error)[:_MAX_DETAIL]) from None
        # This is how the printer writes a string that is not UTF-8, which proto2 accepts.
        if ("\"b'" in text or '"b\\"' in text) and _has_bytes_for_text(message):
            raise Unstorable("a string that is not UTF-8")
        return text


@dataclass(frozen=True)
class SingularJson:
    """A singular field of JSON text; parts sent one by one are merged as protobuf does."""

    number: int
    column: str
    value_type: JsonText
    type = pa.string()
    width = 1

    def declare(self, message: Any, schema: PtarsSchema) -> None:
        self.value_type.declare(declare(message, self.number, REPEATED), schema)

    def read(self, raw: pa.Array) -> Read:
        return self.value_type.read(_joined(raw))

    def value(self, value: Any) -> Any:
        return None if value is None else value_within(self.column, self.value_type, value)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return sums(raw, self.value_type.sizes(raw.values) + tag_size(self.number))

    def present(self, raw: pa.Array) -> np.ndarray:
        return lengths_of(raw) > 0


def _joined(lists: pa.Array) -> pa.Array:
    """Join the byte strings of each list without a copy, as they are adjacent; null if empty."""
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
    """Yield every single value of a message, with the field that has its type."""
    for field, value in message.ListFields():
        if is_map(field):
            entry = field.message_type.fields_by_name
            for key, item in value.items():
                yield entry["key"], key
                yield entry["value"], item
        elif field.is_repeated:
            yield from ((field, one) for one in value)
        else:
            yield field, value
