"""Records framed by Confluent's own serializers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from pyspark.sql import SparkSession

from headgate.config import Confluent, Kafka, PipelineConfig, Registry
from headgate.engine.runner import RunOptions
from headgate.formats.protobuf.descriptors import compile_proto
from headgate.lab.services import Services
from headgate.run import run_pipeline
from tests.readers import by_deltalake

ORDER = """{"type": "record", "name": "Order", "fields": [
  {"name": "store_id", "type": "int"},
  {"name": "date", "type": {"type": "int", "logicalType": "date"}},
  {"name": "status", "type": ["null", "string"], "default": null},
  {"name": "order_lines", "type": {"type": "array", "items": {"type": "record", "name": "Line",
    "fields": [{"name": "product_id", "type": "int"}, {"name": "unit_price", "type": "double"}]}}}
]}"""

SHAPES = """syntax = "proto3";
package shapes;
message Point { int32 x = 1; int32 y = 2; }
message Circle { Point middle = 1; uint64 radius = 2; message Mark { string text = 1; } }
"""


@pytest.fixture
def client(services: Services) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": services.registry}) as client:
        yield client


def _send(servers: str, topic: str, records: list[tuple[bytes | None, list[Any] | None]]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for value, headers in records:
        producer.produce(topic, value, headers=headers)
    producer.flush(30)


def _pipeline(services: Services, topic: str, lake: Path, route: str) -> PipelineConfig:
    return PipelineConfig(
        name="framed",
        source=Kafka(servers=services.servers, topics=[topic]),
        registry=Registry(url=services.registry),
        envelope=Confluent(route=route),
        lake=str(lake),
    )


def test_avro_records_land_in_a_table_per_topic(
    spark: SparkSession,
    services: Services,
    client: SchemaRegistryClient,
    topic: str,
    tmp_path: Path,
) -> None:
    serialize = AvroSerializer(client, ORDER)
    lines = [{"product_id": 7, "unit_price": 9.5}]
    order = {"store_id": 2, "date": 20_000, "status": "placed", "order_lines": lines}
    value = serialize(order, SerializationContext(topic, MessageField.VALUE))
    _send(services.servers, topic, [(value, [("trace", b"1")]), (value + b"x", None)])
    pipeline = _pipeline(services, topic, tmp_path / "lake", "topic")

    ended = run_pipeline(pipeline, RunOptions(once=True))

    (table,) = ended.tables
    assert table.startswith("silver_games_")
    (row,) = by_deltalake(str(Path(pipeline.lake, table))).to_pylist()
    assert (row["store_id"], row["status"], row["order_lines"]) == (2, "placed", lines)
    assert row["_headers"] == [{"key": "trace", "value": b"1"}]
    (bad,) = by_deltalake(str(Path(pipeline.lake, "quarantine"))).to_pylist()
    assert (bad["reason"], bad["value"]) == ("payload_undecodable", value + b"x")


def test_protobuf_records_land_in_a_table_per_message_type(
    spark: SparkSession,
    services: Services,
    client: SchemaRegistryClient,
    topic: str,
    tmp_path: Path,
) -> None:
    pool = DescriptorPool()
    for file in compile_proto({"shapes.proto": SHAPES}, "shapes.proto").file:
        pool.Add(file)
    made = message_factory.GetMessageClass
    point = made(pool.FindMessageTypeByName("shapes.Point"))
    circle = made(pool.FindMessageTypeByName("shapes.Circle"))
    mark = made(pool.FindMessageTypeByName("shapes.Circle.Mark"))
    settings = {"use.deprecated.format": False}
    context = SerializationContext(topic, MessageField.VALUE)
    values = [
        ProtobufSerializer(kind, client, settings)(message, context)
        for kind, message in (
            (point, point(x=1, y=-2)),
            (circle, circle(middle=point(x=3), radius=2**64 - 1)),
            (mark, mark(text="here")),
        )
    ]
    _send(services.servers, topic, [(value, None) for value in values])
    pipeline = _pipeline(services, topic, tmp_path / "lake", "record")

    ended = run_pipeline(pipeline, RunOptions(once=True))

    assert len(ended.tables) == 3
    rows = {
        table.split("__")[0]: by_deltalake(str(Path(pipeline.lake, table))).to_pylist()[0]
        for table in ended.tables
    }
    assert (rows["silver_shapes_point"]["x"], rows["silver_shapes_point"]["y"]) == (1, -2)
    assert rows["silver_shapes_circle"]["radius"] == 2**64 - 1
    assert rows["silver_shapes_circle"]["middle"] == {"x": 3, "y": 0}
    assert rows["silver_shapes_circle_mark"]["text"] == "here"


def test_schema_id_in_a_header_is_found(
    spark: SparkSession,
    services: Services,
    client: SchemaRegistryClient,
    topic: str,
    tmp_path: Path,
) -> None:
    framed = AvroSerializer(client, ORDER)
    order: dict[str, Any] = {"store_id": 2, "date": 20_000, "status": None, "order_lines": []}
    value = framed(order, SerializationContext(topic, MessageField.VALUE))
    _send(services.servers, topic, [(value[5:], [("__value_schema_id", value[:5])])])
    pipeline = _pipeline(services, topic, tmp_path / "lake", "topic")

    assert run_pipeline(pipeline, RunOptions(once=True)).rows == 1
