"""Records of a stream, built in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import pyarrow as pa

from headgate.config import PipelineConfig, Wrapper
from headgate.envelopes.confluent import frame_prefix
from headgate.envelopes.open import open_envelope
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.errors import UsageError
from headgate.formats.decoder import FIRST_MESSAGE
from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaRegistry, SchemaText, UnknownSchema
from headgate.schema.origin import RECORD_COLUMNS

_EPOCH = datetime.fromtimestamp(0, UTC)

Offsets = Mapping[str, Mapping[str, int]]
"""The next offset by topic and partition, as in the ledger; partitions are keys in JSON."""


@dataclass(frozen=True)
class Record:
    """A record as a Kafka consumer gets it."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    topic: str | None = None
    """Defaults to the first topic of the pipeline's source, or to the pipeline's name."""
    partition: int = 0
    offset: int | None = None
    """Defaults to the next offset of the partition."""
    timestamp: datetime = _EPOCH


def frame(
    pipeline: PipelineConfig,
    registry: SchemaRegistry,
    route: str,
    schema_id: int,
    payload: bytes | Mapping[str, Any],
) -> Record:
    """Return a payload in the envelope of a pipeline."""
    try:
        schema = registry.fetch(schema_id)
    except UnknownSchema:
        schema = None
    if isinstance(pipeline.envelope, Wrapper):
        envelope = open_envelope(pipeline.envelope)
        assert isinstance(envelope, WrapperEnvelope)
        message = envelope.payload_messages.for_route(route)
        fields = {
            envelope.route: route,
            envelope.schema_id: schema_id,
            envelope.payload: _encode(payload, schema, message),
        }
        return Record(envelope.decoder.message(**fields).SerializeToString())
    # The list of message indexes of the first message is a single zero.
    index = b"\0" if schema and schema.schema_type == "PROTOBUF" else b""
    encoded = _encode(payload, schema, FIRST_MESSAGE)
    return Record(frame_prefix(schema_id) + index + encoded, topic=route)


def _encode(
    payload: bytes | Mapping[str, Any],
    schema: SchemaText | None,
    message: tuple[int, ...] | str | None,
) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if schema is None or schema.schema_type != "PROTOBUF":
        raise UsageError(
            "bad-argument",
            "fields can only be encoded with a registered Protobuf schema",
            hint="pass the encoded payload as bytes",
        )
    encoded: bytes = ProtobufDecoder.compile(schema, message).message(**payload).SerializeToString()
    return encoded


def number_records(
    records: Iterable[Record], topic: str, offsets: Offsets
) -> tuple[list[Record], Offsets]:
    """Give records without a topic or an offset the default topic and the next offset.

    Returns the next offsets too.
    """
    upcoming = {name: dict(partitions) for name, partitions in offsets.items()}
    numbered = []
    for record in records:
        partitions = upcoming.setdefault(record.topic or topic, {})
        partition = str(record.partition)
        offset = partitions.get(partition, 0) if record.offset is None else record.offset
        partitions[partition] = offset + 1
        numbered.append(replace(record, topic=record.topic or topic, offset=offset))
    return numbered, upcoming


def by_partition(records: Iterable[Record]) -> list[pa.RecordBatch]:
    """Return numbered records as the tasks of a batch get them: one task per partition."""

    def partition(record: Record) -> tuple[str | None, int]:
        return record.topic, record.partition

    return [
        _columns(list(group)) for _, group in groupby(sorted(records, key=partition), partition)
    ]


def _columns(records: Sequence[Record]) -> pa.RecordBatch:
    def headers(record: Record) -> list[dict[str, Any]] | None:
        return [{"key": key, "value": value} for key, value in record.headers] or None

    columns = {
        name: [getattr(record, name) for record in records]
        for name in RECORD_COLUMNS.names
        if name != "headers"
    }
    return pa.record_batch(
        {**columns, "headers": [headers(record) for record in records]}, schema=RECORD_COLUMNS
    )
