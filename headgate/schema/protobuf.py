"""Protobuf: a registry's .proto text compiled in process, payloads decoded by ptars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.schema.decoder import Decoded
from headgate.schema.descriptors import descriptors
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.schema.registry import RefusedSchema, SchemaText
from headgate.schema.storable import storable_array, storable_fields

_MOST_FIELDS = 10_000
_DEEPEST_FIELD = 64
_SAFE_LENGTH = 16 << 10
"""A payload nests groups no deeper than it is long, and ptars recurses into them unbounded."""


_UNDECODABLE = pa.scalar(b"\xff", pa.binary())


class NoSuchMessage(Exception):
    """The schema has no message at that index."""


@dataclass(frozen=True)
class ProtobufDecoder:
    """Decodes one message type."""

    record_name: str
    handler: Any
    message: Any
    """The message's class in python-protobuf."""
    schema: pa.Schema

    @classmethod
    def compile(cls, text: SchemaText, message: tuple[int, ...]) -> ProtobufDecoder:
        files = descriptors(text)
        return cls.for_message(files, _message_name(files.file[-1], message))

    @classmethod
    def for_message(cls, files: Any, name: str) -> ProtobufDecoder:
        """A decoder for the named message of a compiled FileDescriptorSet."""
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
        from ptars import HandlerPool, PtarsConfig

        config = PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us")
        pool = DescriptorPool()
        try:
            for file in files.file:
                pool.Add(file)
            descriptor = pool.FindMessageTypeByName(name)
            if len(list(islice(_all_fields(descriptor), _MOST_FIELDS + 1))) > _MOST_FIELDS:
                raise RefusedSchema(f"message {name} has more than {_MOST_FIELDS} fields")
            handler = HandlerPool([descriptor.file], config).get_for_message(descriptor)
        except (KeyboardInterrupt, SystemExit, RefusedSchema):
            raise
        except KeyError:
            raise NoSuchMessage(f"the schema has no message {name}") from None
        except BaseException as error:  # a panic in Rust is no Exception
            raise RefusedSchema(f"message {name} cannot be decoded: {error}"[:500]) from None
        columns = pa.schema(storable_fields(list(handler.schema()), ORIGIN_COLUMNS))
        return cls(name, handler, GetMessageClass(descriptor), columns)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        batches: list[pa.RecordBatch] = []
        bad: dict[int, str] = {}
        unsafe = self._unsafe(payloads)
        if unsafe:
            mask = np.zeros(len(payloads), bool)
            mask[list(unsafe)] = True
            payloads = pc.if_else(pa.array(mask), _UNDECODABLE, payloads)
        self._decode_range(payloads, 0, batches, bad)
        bad.update(unsafe)
        arrays = [
            storable_array(
                pa.concat_arrays([batch.column(index) for batch in batches])
                if len(batches) != 1
                else batches[0].column(index),
                field.type,
            )
            if batches
            else pa.array([], field.type)
            for index, field in enumerate(self.schema)
        ]
        if not self.schema.names:
            return Decoded(_only_length(len(payloads) - len(bad)), bad)
        return Decoded(pa.RecordBatch.from_arrays(arrays, schema=self.schema), bad)

    def _unsafe(self, payloads: pa.BinaryArray) -> dict[int, str]:
        """Long payloads that python-protobuf, which bounds its recursion, refuses."""
        from google.protobuf.message import DecodeError

        refused = {}
        lengths = _lengths(payloads)
        for position in np.flatnonzero(lengths > _SAFE_LENGTH):
            try:
                self.message.FromString(payloads[int(position)].as_py())
            except DecodeError as error:
                refused[int(position)] = str(error)[:500]
        return refused

    def _decode_range(
        self,
        payloads: pa.BinaryArray,
        start: int,
        batches: list[pa.RecordBatch],
        bad: dict[int, str],
    ) -> None:
        """One bad record fails a whole array: halve until it stands alone."""
        if not len(payloads):
            return
        try:
            batches.append(self.handler.array_to_record_batch(payloads))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            if len(payloads) == 1:
                bad[start] = str(error)[:500]
                return
            middle = len(payloads) // 2
            self._decode_range(payloads[:middle], start, batches, bad)
            self._decode_range(payloads[middle:], start + middle, batches, bad)


def _lengths(payloads: pa.BinaryArray) -> np.ndarray:
    """Straight from the offsets: groups can be many and small."""
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)
    return np.diff(offsets[payloads.offset : payloads.offset + len(payloads) + 1])


def _all_fields(message: Any, above: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Every field that becomes a column or a part of one; those of messages time and again."""
    if len(above) > _DEEPEST_FIELD:
        raise RefusedSchema(f"messages nest deeper than {_DEEPEST_FIELD}")
    for field in message.fields:
        yield field
        inside = field.message_type
        if inside is not None and inside not in above and inside is not message:
            yield from _all_fields(inside, (*above, message))


def _message_name(file: Any, indexes: tuple[int, ...]) -> str:
    names = [file.package] if file.package else []
    level = file.message_type
    for index in indexes:
        if not 0 <= index < len(level):
            raise NoSuchMessage(f"the schema has no message at index {list(indexes)}")
        names.append(level[index].name)
        level = level[index].nested_type
    return ".".join(names)


def _only_length(rows: int) -> pa.RecordBatch:
    """A message without fields still is a record: no columns, but as many rows."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
