"""Protobuf: a registry's .proto text compiled in process, payloads decoded by ptars."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from headgate.schema.compile_proto import compile_proto
from headgate.schema.decoder import Decoded
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.schema.registry import RefusedSchema, SchemaText
from headgate.schema.storable import storable_array, storable_fields

_ROOT = "__root__.proto"


class NoSuchMessage(Exception):
    """The schema has no message at that index."""


@dataclass(frozen=True)
class ProtobufDecoder:
    """Decodes one message type."""

    record_name: str
    handler: Any
    schema: pa.Schema

    @classmethod
    def compile(cls, text: SchemaText, message: tuple[int, ...]) -> ProtobufDecoder:
        for name, _ in text.references:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or name == _ROOT or "\0" in name:
                raise RefusedSchema(f"a reference is called {name!r}")
        files = compile_proto({**dict(text.references), _ROOT: text.text}, _ROOT)
        return cls.for_message(files, _message_name(files.file[-1], message))

    @classmethod
    def for_message(cls, files: Any, name: str) -> ProtobufDecoder:
        """A decoder for the named message of a compiled FileDescriptorSet."""
        from google.protobuf.descriptor_pool import DescriptorPool
        from ptars import HandlerPool, PtarsConfig

        pool = DescriptorPool()
        for file in files.file:
            pool.Add(file)
        try:
            descriptor = pool.FindMessageTypeByName(name)
        except KeyError:
            raise NoSuchMessage(f"the schema has no message {name}") from None
        config = PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us")
        handler = HandlerPool([descriptor.file], config).get_for_message(descriptor)
        return cls(
            name, handler, pa.schema(storable_fields(list(handler.schema()), ORIGIN_COLUMNS))
        )

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        batches: list[pa.RecordBatch] = []
        bad: dict[int, str] = {}
        self._decode_range(payloads, 0, batches, bad)
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
