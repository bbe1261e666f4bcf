"""A protobuf message around each payload, with its route and schema id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

import numpy as np
import pyarrow as pa

from headgate.config.envelopes import PayloadMessages
from headgate.envelopes.opened import Opened, Rejected, split_by, stable_order
from headgate.errors import PipelineFileError
from headgate.formats.cells import parts_of
from headgate.formats.decoders import Decoders
from headgate.formats.protobuf import NoSuchMessage, ProtobufDecoder
from headgate.formats.protobuf.descriptors import compile_proto
from headgate.reasons import Reason
from headgate.registry.registry import RefusedSchema
from headgate.schema.fit import type_name
from headgate.schema.names import is_nameable

_DEFAULT_PROTO = """syntax = "proto3";
message {message} {{
  optional string {route} = 1;
  optional int32 {schema_id} = 2;
  optional bytes {payload} = 3;
}}
"""


class _FieldRole(StrEnum):
    """The type that a field of the wrapper must have."""

    ROUTE = "a string or a whole number"
    SCHEMA_ID = "a whole number"
    PAYLOAD = "bytes"

    def accepts(self, kind: pa.DataType) -> bool:
        if self is _FieldRole.PAYLOAD:
            return bool(pa.types.is_binary(kind))
        number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        return bool(number or (self is _FieldRole.ROUTE and pa.types.is_string(kind)))


@dataclass(frozen=True)
class WrapperEnvelope:
    """Opens wrappers; `proto` is the text that defines the message, None for the default."""

    message: str
    route: str
    schema_id: str
    payload: str
    proto: str | None = None
    payload_messages: PayloadMessages = field(default_factory=PayloadMessages)

    def check(self) -> None:
        """Raise an error that would otherwise come from every executor."""
        self._compile()

    @property
    def decoder(self) -> ProtobufDecoder:
        return _decoder(self)

    def _compile(self) -> ProtobufDecoder:
        text = self.proto or _DEFAULT_PROTO.format(
            message=self.message, route=self.route, schema_id=self.schema_id, payload=self.payload
        )
        try:
            files = compile_proto({"wrapper.proto": text}, "wrapper.proto")
            decoder = ProtobufDecoder.for_message(files, self.message)
        except (RefusedSchema, NoSuchMessage) as error:
            raise PipelineFileError("bad-proto", f"the wrapper: {error}") from None
        for name, role in (
            (self.route, _FieldRole.ROUTE),
            (self.schema_id, _FieldRole.SCHEMA_ID),
            (self.payload, _FieldRole.PAYLOAD),
        ):
            if name not in decoder.schema.names:
                raise PipelineFileError(
                    "bad-proto",
                    f"the wrapper message {self.message} has no field {name}",
                    hint=f"its fields: {', '.join(decoder.schema.names)}",
                )
            kind = decoder.schema.field(name).type
            if not role.accepts(kind):
                raise PipelineFileError(
                    "bad-proto",
                    f"the wrapper's field {name} is {type_name(kind)}, but must be {role.value}",
                )
        return decoder

    def open(self, records: pa.Table, decoders: Decoders) -> Opened:
        opened = Opened()
        wrappers = self._decode(records.column("value"), opened)
        routes, ids = wrappers.routes.dictionary.to_pylist(), wrappers.ids.dictionary.to_pylist()
        route_codes, id_codes = wrappers.route_codes, wrappers.ids.indices.to_numpy()
        frequent_first = np.argsort(-np.bincount(id_codes, minlength=len(ids)), kind="stable")
        decoders.fetch(ids[at] for at in frequent_first if ids[at] >= 0)

        missing_payload = wrappers.payloads.is_null().to_numpy(zero_copy_only=False)
        parts = split_by(wrappers.codes * 2 + missing_payload)
        firsts = [part[0] for part in parts]
        for part, route_code, id_code, missing in zip(
            parts,
            route_codes[firsts].tolist(),
            id_codes[firsts].tolist(),
            missing_payload[firsts].tolist(),
            strict=True,
        ):
            rows = wrappers.rows[part]
            route = routes[route_code] if route_code >= 0 else None
            schema_id = ids[id_code]
            known_id = schema_id if schema_id >= 0 else None
            reason = _reason(route, known_id, missing)
            skipped = None if reason else decoders.skipped(schema_id)
            if skipped is not None:
                opened.rejected.extend(
                    Rejected(int(row), skipped.reason, skipped.detail, route, known_id)
                    for row in rows
                )
            elif route is not None and reason is None:
                message = (schema_id, self.payload_messages.for_route(route))
                opened.add(route, message, rows, wrappers.payloads, part)
            else:
                opened.rejected.extend(
                    Rejected(int(row), reason or Reason.ROUTE_MISSING, "", route, known_id)
                    for row in rows
                )
        return opened

    def _decode(self, values: pa.ChunkedArray, opened: Opened) -> _Wrappers:
        """Decode chunk by chunk: chunks that fit into the processor's caches are fastest."""
        chunks: list[_Wrappers] = []
        start = 0
        for chunk in self._parts(values):
            decoded = self.decoder.decode(chunk)
            for row, detail in decoded.bad.items():
                opened.rejected.append(Rejected(start + row, Reason.ENVELOPE_UNDECODABLE, detail))
            rows = np.delete(np.arange(start, start + len(chunk)), [*decoded.bad])
            wrappers = self._wrappers(rows, decoded.columns)
            chunks.append(wrappers.sorted() if values.num_chunks > 1 else wrappers)
            start += len(chunk)
        return _Wrappers.of(chunks)

    def _parts(self, values: pa.ChunkedArray) -> Iterator[pa.BinaryArray]:
        for chunk in values.chunks:
            for part in parts_of(self.decoder, chunk):
                yield chunk[part]

    def _wrappers(self, rows: np.ndarray, columns: pa.RecordBatch) -> _Wrappers:
        ids = columns.column(self.schema_id).cast(pa.int64(), safe=False).fill_null(-1)
        return _Wrappers(
            rows,
            columns.column(self.route).cast(pa.string()).dictionary_encode(),
            ids.dictionary_encode(),
            columns.column(self.payload),
        )


_FEW_GROUPS = 50
"""Up to this many groups, payloads that are far apart are copied as fast as sorted ones."""


@dataclass(frozen=True)
class _Wrappers:
    """The fields of all wrappers that could be decoded, and the rows of their records."""

    rows: np.ndarray
    routes: pa.DictionaryArray
    ids: pa.DictionaryArray
    """-1 where there is none."""
    payloads: pa.BinaryArray

    @classmethod
    def of(cls, chunks: list[_Wrappers]) -> _Wrappers:
        return cls(
            np.concatenate([one.rows for one in chunks]) if chunks else np.empty(0, np.int64),
            _together([one.routes for one in chunks], pa.dictionary(pa.int32(), pa.string())),
            _together([one.ids for one in chunks], pa.dictionary(pa.int32(), pa.int64())),
            _together([one.payloads for one in chunks], pa.binary()),
        )

    @property
    def route_codes(self) -> np.ndarray:
        """The position of each record's route in the dictionary, -1 if it has none."""
        codes: np.ndarray = self.routes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes

    @property
    def codes(self) -> np.ndarray:
        """A number for each record that is the same for those of one route and schema."""
        routes = self.route_codes.astype(np.int64)
        codes: np.ndarray = routes * len(self.ids.dictionary) + self.ids.indices.to_numpy()
        return codes

    def sorted(self) -> _Wrappers:
        """Put the records of each group together, unless there are few groups.

        In a portion of many such chunks, a group's payloads are copied in runs. One by one, from
        all over memory, each would have to wait for it.
        """
        if max(len(self.routes.dictionary), len(self.ids.dictionary)) <= _FEW_GROUPS:
            return self
        order = stable_order(self.codes)
        at = pa.array(order)
        routes, ids, payloads = (one.take(at) for one in (self.routes, self.ids, self.payloads))
        return _Wrappers(self.rows[order], routes, ids, payloads)


def _together(chunks: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.chunked_array(chunks, kind).unify_dictionaries().combine_chunks()


@cache
def _decoder(envelope: WrapperEnvelope) -> ProtobufDecoder:
    """Compile once per process: a decoder cannot be pickled with its envelope."""
    return envelope._compile()


def _reason(route: str | None, schema_id: int | None, payload_missing: bool) -> Reason | None:
    if route is None:
        return Reason.ROUTE_MISSING
    if not is_nameable(route):
        return Reason.ROUTE_UNUSABLE
    if schema_id is None:
        return Reason.SCHEMA_ID_MISSING
    if payload_missing:
        return Reason.PAYLOAD_MISSING
    return None
