from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import headgate
from headgate.formats.avro.decoder import AvroDecoder
from headgate.lab.pizza.orders import OrderLine
from headgate.lab.pizza.records import (
    CANCELLED,
    COMPLETED,
    ORDERS,
    TOPICS,
    VERSIONS,
    WAIT_TIMES,
    RecordEncoder,
    WaitTime,
    schema,
    stale_waits,
)
from headgate.lab.pizza.world import Cancelled, Completed, Event, Ordered, PizzaPlan, world
from headgate.registry.folder import FolderRegistry
from headgate.testing import InProcessLake, Record

AT = datetime(2026, 1, 10, 19, 30, 0, 123_000, UTC)
LINE = OrderLine(1, "pizza", 2, 8.5, 17.0)
EVENTS: list[Event | WaitTime] = [
    WaitTime(1, 15, AT),
    Ordered(1, 7, AT, (LINE,), 1_000, "app"),
    Completed(1, 7, AT, 12.5),
    Cancelled(2, 3, AT, 1.5),
]


def _encoded(folder: Path, version: int) -> pa.Table:
    encoder = RecordEncoder(FolderRegistry(folder))
    return encoder.encode([(event, version) for event in EVENTS])


def _decoded(records: pa.Table, registry: FolderRegistry) -> list[dict[str, Any]]:
    rows = []
    for value in records["value"].to_pylist():
        assert value[0] == 0
        text = registry.fetch(int.from_bytes(value[1:5], "big"))
        decoded = AvroDecoder.parse(text).decode(pa.array([value[5:]], pa.binary()))
        assert decoded.bad == {}
        rows += decoded.columns.to_pylist()
    return rows


def test_stale_waits_are_those_of_the_first_ten_stores() -> None:
    waits = [each.minutes for each in stale_waits(12, AT)]
    assert waits[:10] == [15, 20, 7, 23, 25, 20, 13, 10, 2, 6]
    assert waits == [each.minutes for each in stale_waits(12, AT)]
    assert all(2 <= wait <= 25 for wait in waits)


def test_records_go_to_the_topics_of_their_events_with_the_store_as_key(tmp_path: Path) -> None:
    records = _encoded(tmp_path, 2)
    assert records["topic"].to_pylist() == [WAIT_TIMES, ORDERS, COMPLETED, CANCELLED]
    assert records["key"].to_pylist() == [b"1", b"1", b"1", b"2"]


def test_records_decode_to_their_events(tmp_path: Path) -> None:
    wait, order, completed, cancelled = _decoded(_encoded(tmp_path, 3), FolderRegistry(tmp_path))
    day = AT.date()
    assert wait == {"store_id": 1, "wait_time": 15, "event_time": AT, "model": None}
    assert order == {
        "store_id": 1,
        "store_order_id": 7,
        "coupon_code": 1_000,
        "date": day,
        "status": "accepted",
        "order_lines": [asdict(LINE)],
        "event_time": AT,
        "channel": "app",
    }
    ended = {"store_id": 1, "store_order_id": 7, "date": day, "event_time": AT}
    assert completed == ended | {"status": "completed"}
    assert cancelled == ended | {"store_id": 2, "store_order_id": 3, "status": "cancelled"}


def test_first_version_has_no_event_times(tmp_path: Path) -> None:
    rows = _decoded(_encoded(tmp_path, 1), FolderRegistry(tmp_path))
    assert [list(row) for row in rows] == [
        ["store_id", "wait_time"],
        ["store_id", "store_order_id", "coupon_code", "date", "status", "order_lines"],
        ["store_id", "store_order_id", "date", "status"],
        ["store_id", "store_order_id", "date", "status"],
    ]


def test_versions_are_registered_one_after_the_other(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    encoder = RecordEncoder(registry)
    for version, expected in ((1, 1), (3, 3), (2, 3)):
        encoder.encode([(EVENTS[1], version)])
        assert registry.latest(f"{ORDERS}-value").version == expected
    encoder.encode([(EVENTS[2], 3)])
    assert registry.latest(f"{COMPLETED}-value").version == 2


@pytest.mark.parametrize("topic", TOPICS)
def test_every_version_reads_every_other(topic: str, tmp_path: Path) -> None:
    versions = [schema(topic, version) for version in range(1, VERSIONS + 1)]
    for (number, written), read in product(enumerate(versions, start=1), versions):
        records = _encoded(tmp_path, number)
        (value,) = [row["value"] for row in records.to_pylist() if row["topic"] == topic]
        row = fastavro.schemaless_reader(BytesIO(value[5:]), written, read)
        assert isinstance(row, dict)
        names = [field["name"] for field in read["fields"]]
        assert list(row) == names
        known = {field["name"] for field in written["fields"]}
        known -= {"model"}  # which no simulated wait has
        assert all((row[name] is None) == (name not in known) for name in names)


def test_a_day_lands_while_its_schemas_change(tmp_path: Path) -> None:
    pipeline = headgate.Pipeline(
        name="pizza",
        source=headgate.Delta(path=str(tmp_path / "inbox")),
        registry=str(tmp_path / "schemas"),
        envelope="confluent",
        lake=str(tmp_path / "lake"),
    )
    lake = InProcessLake(pipeline, tmp_path)
    events = list(world(PizzaPlan(stores=2, seed=4, days=0.6)))
    noon = events[0].at + timedelta(hours=12)
    encoder = RecordEncoder(lake.registry)
    records = encoder.encode((event, 1 if event.at < noon else 3) for event in events)
    result = lake.land(
        Record(row["value"], key=row["key"], topic=row["topic"]) for row in records.to_pylist()
    )
    assert (result.rows, result.quarantined) == (len(events), {})
    orders = lake.rows(f"silver_{ORDERS}", "store_id", "store_order_id", "event_time", "channel")
    assert orders == [
        {
            "store_id": event.store,
            "store_order_id": event.number,
            "event_time": None if event.at < noon else event.at,
            "channel": None if event.at < noon else event.channel,
        }
        for event in events
        if isinstance(event, Ordered)
    ]
