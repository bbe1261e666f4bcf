from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import LandingError
from headgate.formats.avro import AvroDecoder
from headgate.models.publish import TopicEncoder, TopicPublisher
from headgate.models.scores import Scored
from headgate.registry.registry import SchemaText

AT = datetime(2026, 1, 5, 18, tzinfo=UTC)
STORE = {"name": "store_id", "type": "int"}
WAIT = {"name": "wait_time", "type": "int"}
TIME = {
    "name": "event_time",
    "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    "default": None,
}
ID = {"name": "prediction_id", "type": ["null", "string"], "default": None}


def schema(*fields: dict[str, Any]) -> SchemaText:
    record = {"type": "record", "name": "WaitTimes", "fields": list(fields)}
    return SchemaText("AVRO", json.dumps(record))


def scored(key: object, prediction: float) -> Scored:
    return Scored(key, prediction, None, None, AT, "models:/m/1", f"id-{key}", AT)


def encoder(*fields: dict[str, Any], **more: Any) -> TopicEncoder:
    return TopicEncoder.of("waits", schema(*fields), 7, "store_id", **more)


def decoded(value: bytes, *fields: dict[str, Any]) -> dict[str, Any]:
    assert value[:5] == b"\0\0\0\0\7"
    found = AvroDecoder.parse(schema(*fields)).decode(pa.array([value[5:]], pa.binary()))
    assert not found.bad
    (row,) = found.columns.to_pylist()
    return dict(row)


def test_record_is_read_back_with_the_rounded_value() -> None:
    fields = STORE, WAIT, TIME
    value = encoder(*fields).encode(scored(3, 12.6))
    assert decoded(value, *fields) == {"store_id": 3, "wait_time": 13, "event_time": AT}


def test_first_version_of_a_schema_is_enough() -> None:
    value = encoder(STORE, WAIT).encode(scored(3, 12.4))
    assert decoded(value, STORE, WAIT) == {"store_id": 3, "wait_time": 12}


def test_columns_of_predictions_are_filled_by_name() -> None:
    exact = {"name": "minutes", "type": "double"}
    low = {"name": "low", "type": ["null", "double"], "default": None}
    value = encoder(STORE, exact, low, ID).encode(scored(3, 12.5))
    assert decoded(value, STORE, exact, low, ID) == {
        "store_id": 3, "minutes": 12.5, "low": None, "prediction_id": "id-3",
    }  # fmt: skip


def test_field_of_the_value_can_be_named() -> None:
    other = {"name": "cooks", "type": "int", "default": 0}
    value = encoder(STORE, other, WAIT, field="wait_time").encode(scored(3, 9.0))
    assert decoded(value, STORE, other, WAIT)["wait_time"] == 9


UNFIT = {
    "no key": ([WAIT], {}, "no field `store_id`"),
    "no number": ([STORE, ID], {}, "no numeric field"),
    "two numbers": ([STORE, WAIT, {"name": "cooks", "type": "int"}], {}, "`wait_time`, `cooks`"),
    "unknown field": ([STORE, WAIT], {"field": "wait"}, "no numeric field `wait`"),
    "a field without a default": (
        [STORE, WAIT, {"name": "region", "type": "string"}], {}, "needs `region`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT.values(), ids=UNFIT)
def test_schema_that_cannot_hold_predictions_is_refused(
    case: tuple[list[dict[str, Any]], dict[str, str], str],
) -> None:
    fields, more, word = case
    with pytest.raises(LandingError, match=word) as raised:
        encoder(*fields, **more)
    assert raised.value.code == "topic-unfit"


def test_only_avro_records_are_published() -> None:
    text = SchemaText("PROTOBUF", 'syntax = "proto3"; message a { int32 store_id = 1; }')
    with pytest.raises(LandingError, match="not an Avro record"):
        TopicEncoder.of("waits", text, 1, "store_id")


class FakeError:
    def str(self) -> str:
        return "not enough replicas"

    def fatal(self) -> bool:
        return False


class FakeProducer:
    """A broker that accepts, refuses, or does not answer."""

    def __init__(self) -> None:
        self.answers: Callable[[], FakeError | None] | None = lambda: None
        self.sent: list[tuple[bytes, bytes, dict[str, Any]]] = []
        self._waiting: list[Callable[[Any, Any], None]] = []

    def produce(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes,
        headers: dict[str, Any],
        on_delivery: Callable[[Any, Any], None],
    ) -> None:
        self.sent.append((key, value, headers))
        self._waiting.append(on_delivery)

    def poll(self, timeout: float, /) -> int:
        if self.answers is not None:
            delivered, self._waiting = self._waiting, []
            for callback in delivered:
                callback(self.answers(), None)
        return 0

    def flush(self, timeout: float, /) -> int:
        return self.poll(timeout)


@pytest.fixture
def broker() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def publisher(broker: FakeProducer) -> TopicPublisher:
    return TopicPublisher("waits", lambda: encoder(STORE, WAIT), lambda: broker)


def publish(publisher: TopicPublisher, *rows: Scored) -> None:
    publisher.send(rows)
    publisher.wait()


def test_record_has_its_key_and_the_id_of_the_prediction(
    broker: FakeProducer, publisher: TopicPublisher
) -> None:
    publish(publisher, scored(3, 12.0))
    ((key, value, headers),) = broker.sent
    assert (key, headers["prediction_id"], headers["model"]) == (b"3", b"id-3", b"models:/m/1")
    assert decoded(value, STORE, WAIT) == {"store_id": 3, "wait_time": 12}
    assert publisher.error is None
    assert not publisher.has_work


def test_refused_record_is_sent_again(broker: FakeProducer, publisher: TopicPublisher) -> None:
    broker.answers = FakeError
    publish(publisher, scored(3, 12.0))
    assert "not enough replicas" in str(publisher.error)
    broker.answers = lambda: None
    publish(publisher, scored(4, 9.0))
    assert [key for key, *_ in broker.sent] == [b"3", b"3", b"4"]
    assert publisher.error is None


def test_only_the_newest_of_a_key_is_sent_to_a_broker_that_did_not_answer(
    broker: FakeProducer, publisher: TopicPublisher
) -> None:
    broker.answers = None
    publish(publisher, scored(3, 12.0))
    publish(publisher, scored(3, 13.0))
    publish(publisher, scored(3, 14.0))
    assert len(broker.sent) == 1
    assert "does not confirm" in str(publisher.error)
    broker.answers = lambda: None
    publish(publisher)
    waits = [decoded(value, STORE, WAIT)["wait_time"] for _, value, _ in broker.sent]
    assert waits == [12, 14]
    assert not publisher.has_work


def test_topic_without_a_usable_schema_is_reported(broker: FakeProducer) -> None:
    publisher = TopicPublisher("waits", lambda: encoder(WAIT), lambda: broker)
    publish(publisher, scored(3, 12.0))
    assert "no field `store_id`" in str(publisher.error)
    assert publisher.has_work
