"""Predictions as records of a topic, in Avro with the schema that the topic has in the registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Protocol

from headgate.config import Duration, Kafka, PipelineConfig
from headgate.envelopes.confluent import frame_prefix
from headgate.errors import LandingError, RegistryError, extra_missing, listed, shown
from headgate.formats.avro.schema import AvroSchema, parse_schema
from headgate.formats.avro.types import Primitive, Record, Type, Union
from headgate.models.scores import Scored
from headgate.models.serving import Background
from headgate.registry.open import opened_registry
from headgate.registry.registry import RefusedSchema, SchemaText
from headgate.sources.kafka import client_settings

_SCHEMA_SECONDS = 30.0
"""How often to look for a newer schema of the topic."""
_REGISTRY_TIMEOUT = Duration(seconds=10)
_DELIVERY_SECONDS = 2.0
"""How long a batch waits for the broker to confirm its predictions."""
_MESSAGE_MILLISECONDS = 30_000

_WHOLE = ("int", "long")
_NUMERIC = (*_WHOLE, "float", "double")
_TIMES = ("event_time", "at")


@dataclass(frozen=True)
class TopicEncoder:
    """Encodes predictions in Confluent's framing, with one schema."""

    schema_id: int
    key: str
    value: str
    whole: bool
    """Whether the value is an integer."""
    times: tuple[str, ...]
    """Fields that get the event time."""
    others: tuple[str, ...]
    """Fields with the name of a column of predictions."""
    _parsed: Any

    @classmethod
    def of(
        cls,
        topic: str,
        schema: SchemaText,
        schema_id: int,
        key: str,
        field: str | None = None,
        time: str | None = None,
    ) -> TopicEncoder:
        """Match the fields of a schema with the columns of predictions, by name."""
        kinds = _fields(topic, schema)
        if key not in kinds:
            raise _unfit(topic, f"has no field {shown(key)}, the key of the prediction")
        numeric = [
            name
            for name, kind in kinds.items()
            if name != key and name not in ("low", "high") and _kind(kind) in _NUMERIC
        ]
        value = field or _only(topic, numeric)
        if value not in kinds or _kind(kinds[value]) not in _NUMERIC:
            raise _unfit(topic, f"has no numeric field {shown(value)}", f"it has {listed(numeric)}")
        times = tuple(
            name
            for name in dict.fromkeys((*_TIMES, time))
            if name in kinds and _is_time(kinds[name])
        )
        columns = {"prediction", "low", "high", "model", "prediction_id", "predicted_at"}
        others = tuple(name for name in kinds if name in columns - {value})
        required = _required(schema) - {key, value, *times, *others}
        if required:
            hint = "give them a default in a new version of the schema"
            raise _unfit(topic, f"needs {listed(sorted(required))}, which predictions lack", hint)
        whole = _kind(kinds[value]) in _WHOLE
        return cls(schema_id, key, value, whole, times, others, _parse(schema))

    def encode(self, row: Scored) -> bytes:
        import fastavro

        columns = row.named
        fields: dict[str, object] = {name: columns[name] for name in self.others}
        fields |= {self.key: row.key, **dict.fromkeys(self.times, row.at)}
        fields[self.value] = round(row.prediction) if self.whole else row.prediction
        output = BytesIO()
        output.write(frame_prefix(self.schema_id))
        fastavro.schemaless_writer(output, self._parsed, fields)
        return output.getvalue()


def _fields(topic: str, schema: SchemaText) -> dict[str, Type]:
    try:
        parsed: AvroSchema | None = parse_schema(schema) if schema.schema_type == "AVRO" else None
    except RefusedSchema as error:
        raise _unfit(topic, f"cannot be read: {error}") from None
    record = None if parsed is None else parsed.type
    if not isinstance(record, Record):
        raise _unfit(topic, "is not an Avro record", "predictions are published in Avro")
    return {one.name: one.type for one in record.fields}


def _kind(kind: Type) -> str | None:
    """Return the primitive type of a field that may be null; None for all others."""
    if isinstance(kind, Union):
        some = [one for one in kind.branches if one != Primitive("null")]
        return _kind(some[0]) if len(some) == 1 else None
    return kind.name if isinstance(kind, Primitive) and kind.logical is None else None


def _is_time(kind: Type) -> bool:
    if isinstance(kind, Union):
        return any(_is_time(one) for one in kind.branches)
    logical = kind.logical if isinstance(kind, Primitive) else None
    return logical is not None and "timestamp" in logical.name


def _required(schema: SchemaText) -> set[str]:
    """Return the fields without a default, which decoding does not need to know."""
    return {one["name"] for one in json.loads(schema.text)["fields"] if "default" not in one}


def _parse(schema: SchemaText) -> Any:
    if find_spec("fastavro") is None:
        raise extra_missing("models", ["fastavro"])
    import fastavro

    named: dict[str, Any] = {}
    for _, text in schema.references:
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)


def _only(topic: str, numeric: list[str]) -> str:
    if len(numeric) == 1:
        return numeric[0]
    found = f"several numeric fields: {listed(numeric)}" if numeric else "no numeric field"
    raise _unfit(topic, f"has {found}", "name the field of the value: `to: {field: …}`")


def _unfit(topic: str, message: str, hint: str | None = None) -> LandingError:
    return LandingError("topic-unfit", f"the schema of topic {topic} {message}", hint=hint)


def topic_encoder(pipeline: PipelineConfig, name: str) -> TopicEncoder:
    """Return the encoder for the latest schema of a prediction's topic."""
    declared = pipeline.predict[name]
    topic = declared.to.topic
    assert topic is not None
    with opened_registry(pipeline.schema_registry, _REGISTRY_TIMEOUT) as registry:
        try:
            latest = registry.latest(f"{topic}-value")
            schema = registry.fetch(latest.schema_id)
        except RefusedSchema as error:
            raise _unfit(topic, f"cannot be read: {error}") from None
        except RegistryError as error:
            if error.code != "schema-unknown":
                raise
            hint = "register the schema of the records before predictions are published"
            message = f"the registry has no subject {shown(f'{topic}-value')}"
            raise LandingError("topic-unfit", message, hint=hint) from None
    return TopicEncoder.of(
        topic, schema, latest.schema_id, declared.key, declared.to.field, declared.time
    )


class Producer(Protocol):
    """The part of a Kafka producer that publishing uses."""

    def produce(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes,
        headers: dict[str, str | bytes | None],
        on_delivery: Callable[[Any, Any], None],
    ) -> None: ...

    def poll(self, timeout: float, /) -> int: ...

    def flush(self, timeout: float, /) -> int: ...


def kafka_producer(source: Kafka) -> Producer:
    """Connect to the brokers of a source; nothing is sent twice by a retry."""
    from confluent_kafka import Producer as ConfluentProducer

    producer: Producer = ConfluentProducer(
        {
            **client_settings(source),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.timeout.ms": _MESSAGE_MILLISECONDS,
        }
    )
    return producer


class TopicPublisher:
    """Publishes the newest prediction of each key; what is not delivered is sent again later."""

    def __init__(
        self, topic: str, encoder: Callable[[], TopicEncoder], connect: Callable[[], Producer]
    ) -> None:
        self.topic = topic
        self.error: str | None = None
        """Why predictions are not delivered now."""
        self._encoder = Background(encoder, _SCHEMA_SECONDS)
        self._connect = connect
        self._producer: Producer | None = None
        self._waiting: dict[object, Scored] = {}
        self._in_flight = 0
        self._sent = False

    def start(self) -> None:
        self._encoder.start()

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def send(self, rows: Iterable[Scored]) -> None:
        """Hand predictions over to the client, unless it still waits for the broker."""
        self._waiting |= {row.key: row for row in rows}
        if not self._waiting:
            return
        encoder = self._encoder.newest()
        if encoder is None:
            self.error = str(getattr(self._encoder.error, "message", self._encoder.error))
            return
        try:
            self._produce(encoder)
        except Exception as error:  # the client, or a value that the schema cannot hold
            self.error = f"{type(error).__name__}: {error}"

    def wait(self) -> None:
        """Wait a moment for the broker to confirm."""
        if self._producer is None or not self._sent:
            return
        self._sent = False
        self._producer.flush(_DELIVERY_SECONDS)
        if self._in_flight and self.error is None:
            self.error = "the broker does not confirm predictions"

    def _produce(self, encoder: TopicEncoder) -> None:
        if self._producer is None:
            self._producer = self._connect()
        self._producer.poll(0)
        if self._in_flight:
            return
        encoded = [(row, encoder.encode(row)) for row in self._waiting.values()]
        self.error = None
        for row, value in encoded:
            self._producer.produce(
                self.topic,
                value,
                key=row.key if isinstance(row.key, bytes) else str(row.key).encode(),
                headers=_headers(row),
                on_delivery=partial(self._delivered, row),
            )
            self._in_flight += 1
            self._sent = True

    def _delivered(self, row: Scored, error: Any, _: object) -> None:
        self._in_flight -= 1
        if error is None:
            if self._waiting.get(row.key) is row:
                del self._waiting[row.key]
            return
        self.error = f"the broker did not accept predictions: {error.str()}"
        if error.fatal():
            self._producer, self._in_flight = None, 0


def _headers(row: Scored) -> dict[str, str | bytes | None]:
    return {"prediction_id": row.prediction_id.encode(), "model": row.model.encode()}
