"""Records of the pizza chain: four topics, Avro in Confluent's framing, several schema versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import chain
from random import Random
from typing import Any

import pyarrow as pa

from headgate.envelopes.confluent import frame_prefix
from headgate.lab import require_lab
from headgate.lab.destination import TOPIC_RECORDS
from headgate.lab.pizza.orders import OrderLine
from headgate.lab.pizza.world import Cancelled, Completed, Event, Ordered
from headgate.registry.registry import SchemaRegistry, SchemaText

WAIT_TIMES = "waittimes_avro"
ORDERS = "pizza_orders_avro"
CANCELLED = "pizza_orders_cancelled_avro"
COMPLETED = "pizza_orders_completed_avro"
TOPICS = (WAIT_TIMES, ORDERS, CANCELLED, COMPLETED)

_STALE_WAITS = (15, 20, 7, 23, 25, 20, 13, 10, 2, 6)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WaitTime:
    """The minutes that customers of a store are told to wait."""

    store: int
    minutes: int
    at: datetime


def stale_waits(stores: int, at: datetime) -> list[WaitTime]:
    """Return the estimates of an outdated model, one per store."""
    return [WaitTime(store, _stale_wait(store), at) for store in range(1, stores + 1)]


def _stale_wait(store: int) -> int:
    if store <= len(_STALE_WAITS):
        return _STALE_WAITS[store - 1]
    return Random(f"{store}/stale").randint(2, 25)


def _field(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


_DATE = {"type": "int", "logicalType": "date"}
_LINE_FIELDS = [
    _field("product_id", "int"),
    _field("category", "string"),
    _field("quantity", "int"),
    _field("unit_price", "double"),
    _field("net_price", "double"),
]
_LINE = {"type": "record", "name": "order_line", "fields": _LINE_FIELDS}
_ENDED = [
    _field("store_id", "int"),
    _field("store_order_id", "int"),
    _field("date", _DATE),
    _field("status", "string"),
]
_NAMES = {
    WAIT_TIMES: "WaitTimes",
    ORDERS: "pizza_orders",
    CANCELLED: "pizza_orders_cancelled",
    COMPLETED: "pizza_orders_completed",
}
_FIRST_FIELDS: dict[str, list[dict[str, Any]]] = {
    WAIT_TIMES: [_field("store_id", "int"), _field("wait_time", "int")],
    ORDERS: [
        _field("store_id", "int"),
        _field("store_order_id", "int"),
        _field("coupon_code", "int"),
        _field("date", _DATE),
        _field("status", "string"),
        _field("order_lines", {"type": "array", "items": _LINE}),
    ],
    CANCELLED: _ENDED,
    COMPLETED: _ENDED,
}
_EVENT_TIME = _optional("event_time", {"type": "long", "logicalType": "timestamp-millis"})
_LATER_FIELDS = {
    WAIT_TIMES: [[_EVENT_TIME, _optional("model", "string")]],
    ORDERS: [[_EVENT_TIME], [_optional("channel", "string")]],
    CANCELLED: [[_EVENT_TIME]],
    COMPLETED: [[_EVENT_TIME]],
}
"""The fields of versions 2, 3, …: all are optional, so that every version can read every other."""

VERSIONS = 1 + max(map(len, _LATER_FIELDS.values()))
"""Number of versions; topics other than that of the orders have one less."""


def schema(topic: str, version: int) -> dict[str, Any]:
    """Return the Avro schema of a topic, or its latest version if `version` is later."""
    fields = [*_FIRST_FIELDS[topic], *chain(*_LATER_FIELDS[topic][: version - 1])]
    return {"type": "record", "name": _NAMES[topic], "namespace": "pizza", "fields": fields}


Encode = Callable[[Mapping[str, object]], bytes]


class RecordEncoder:
    """Encodes records; registers a version, after those before it, when it is first needed."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._encoders: dict[tuple[str, int], Encode] = {}

    def encode(self, events: Iterable[tuple[Event | WaitTime, int]]) -> pa.Table:
        """Return records to send, from events and the schema versions to write them with.

        The key of a record is its store. Topics without such a version use their latest one.
        """
        topics, keys, values = [], [], []
        for event, version in events:
            topic, row = _record(event)
            topics.append(topic)
            keys.append(str(event.store).encode())
            values.append(self._encoder(topic, version)(row))
        return pa.table([topics, keys, values], schema=TOPIC_RECORDS)

    def _encoder(self, topic: str, version: int) -> Encode:
        if (topic, version) not in self._encoders:
            for earlier in range(1, version):
                self._register(topic, earlier)
            self._encoders[topic, version] = _framed(
                schema(topic, version), self._register(topic, version)
            )
        return self._encoders[topic, version]

    def _register(self, topic: str, version: int) -> int:
        text = SchemaText("AVRO", json.dumps(schema(topic, version)))
        return self._registry.register(f"{topic}-value", text)


def _framed(schema: Mapping[str, Any], schema_id: int) -> Encode:
    require_lab("fastavro")
    import fastavro

    parsed = fastavro.parse_schema(dict(schema))
    prefix = frame_prefix(schema_id)

    def encode(row: Mapping[str, object]) -> bytes:
        output = BytesIO()
        output.write(prefix)
        fastavro.schemaless_writer(output, parsed, row)
        return output.getvalue()

    return encode


def _record(event: Event | WaitTime) -> tuple[str, dict[str, object]]:
    """Return the topic of an event, and the fields of its latest version."""
    since = event.at - _EPOCH
    row: dict[str, object] = {
        "store_id": event.store,
        "date": since.days,
        "event_time": since // timedelta(milliseconds=1),
    }
    match event:
        case WaitTime():
            return WAIT_TIMES, row | {"wait_time": event.minutes}
        case Ordered():
            return ORDERS, row | {
                "store_order_id": event.number,
                "coupon_code": event.coupon,
                "status": "accepted",
                "order_lines": [_line(line) for line in event.lines],
                "channel": event.channel,
            }
        case Completed():
            return COMPLETED, row | {"store_order_id": event.number, "status": "completed"}
        case Cancelled():
            return CANCELLED, row | {"store_order_id": event.number, "status": "cancelled"}


def _line(line: OrderLine) -> dict[str, object]:
    return {field["name"]: getattr(line, field["name"]) for field in _LINE_FIELDS}
