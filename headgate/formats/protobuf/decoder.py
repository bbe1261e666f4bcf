"""Protobuf: a registry's .proto text compiled in process, payloads decoded by ptars.

What ptars cannot read, or reads otherwise than protobuf says, python-protobuf reads: row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.decoder import ROOT_MESSAGE, Decoded, MessageChoice, only_length
from headgate.formats.protobuf.descriptors import (
    NoSuchMessage,
    PlainClasses,
    choose_message,
    descriptors,
    find_message,
    for_reading,
    pool_of,
)
from headgate.formats.protobuf.message import Message
from headgate.formats.protobuf.plan import Plan
from headgate.formats.protobuf.ptars import Judge, PtarsReader, Reading, UnknownFields
from headgate.formats.protobuf.size_limit import Room
from headgate.formats.protobuf.wire import lengths_of
from headgate.registry.registry import RefusedSchema, SchemaText
from headgate.schema.origin import ORIGIN_COLUMNS


@dataclass(frozen=True, eq=False)
class ProtobufDecoder:
    """Decodes one message type."""

    record_name: str
    columns: Message
    schema: pa.Schema
    room: Room
    judge: Judge
    reader: PtarsReader | None
    """None where python-protobuf reads every payload."""

    @classmethod
    def compile(cls, text: SchemaText, message: MessageChoice = ROOT_MESSAGE) -> ProtobufDecoder:
        files = descriptors(text)
        return cls.for_message(files, choose_message(files, message))

    @classmethod
    def for_message(cls, files: Any, name: str) -> ProtobufDecoder:
        """A decoder for the named message of a compiled FileDescriptorSet."""
        try:
            files = for_reading(files)
            as_bytes = files.SerializeToString()
            plan = Plan(PlainClasses(files))
            columns = plan.message(find_message(pool_of(as_bytes), name), ORIGIN_COLUMNS)
            judge = Judge(as_bytes, name, columns)
            reader = None if plan.has_groups else PtarsReader.of(columns, judge, plan)
        except (KeyboardInterrupt, SystemExit, RefusedSchema, NoSuchMessage):
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            raise RefusedSchema(f"message {name} cannot be decoded: {error}"[:500]) from None
        return cls(name, columns, pa.schema(columns.columns), Room(columns), judge, reader)

    @property
    def message(self) -> Any:
        """The message's class in python-protobuf."""
        return self.judge.message

    @cached_property
    def handler(self) -> Any:
        """ptars for the message as it is declared: for those who encode."""
        from ptars import HandlerPool, PtarsConfig

        descriptor = self.message.DESCRIPTOR
        config = PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us")
        return HandlerPool([descriptor.file], config).get_for_message(descriptor)

    def is_like(self, other: ProtobufDecoder) -> bool:
        """Whether they differ in nothing but the names of their columns."""
        return self._nameless == other._nameless

    @cached_property
    def _nameless(self) -> Message:
        fields: tuple[Any, ...] = self.columns.fields
        return replace(self.columns, fields=tuple(replace(one, column="") for one in fields))

    def decode_exact(self, payloads: pa.BinaryArray) -> list[pa.Array] | None:
        """The columns, where every payload is just as its values are declared; None otherwise.

        Decoders that are alike give the same for the same payloads.
        """
        lengths = lengths_of(payloads)
        if self.reader is None or self.room.refusals(payloads, lengths):
            return None
        return self.reader.read_exact(payloads, lengths)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        rows, lengths = np.arange(len(payloads)), lengths_of(payloads)
        too_large = self.room.refusals(payloads, lengths)
        if too_large:
            rows = np.delete(rows, list(too_large))
        if self.reader is not None:
            reading = self.reader.read(payloads, lengths, rows)
        else:
            reading = Reading.of_none(self.columns, rows, self.judge.judged(payloads, rows))
        read, refused = self.judge.read(payloads, reading.odd)
        bad = too_large | reading.judged.refused | refused
        unknown = [row for row in reading.judged.unknown if row not in bad]
        if not self.columns.fields:
            return Decoded(only_length(len(payloads) - len(bad)), bad, unknown)
        return Decoded(self._batch(reading, read, bad), bad, unknown)

    def unknown_fields(self, payload: bytes) -> UnknownFields:
        """Return the wire data of a decoded payload that the message does not declare."""
        return self.judge.unknown_fields(payload)

    def _batch(
        self, reading: Reading, read: dict[int, dict[str, Any]], bad: dict[int, str]
    ) -> pa.RecordBatch:
        """Rows of both ways, in the order of their payloads."""
        batch = pa.RecordBatch.from_arrays(reading.arrays, schema=self.schema)
        if not read and not bad:
            return batch
        fast = np.isin(reading.rows, [*read, *bad], invert=True)
        batch = batch.filter(pa.array(fast))
        if not read:
            return batch
        rows = pa.array(read.values(), pa.struct(list(self.schema)))
        order = np.argsort(np.concatenate([reading.rows[fast], list(read)]))
        arrays = [
            pa.concat_arrays([column, rows.field(place)]).take(pa.array(order))
            for place, column in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
