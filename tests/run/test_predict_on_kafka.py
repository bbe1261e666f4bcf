"""Orders of a topic become predictions in another, by a model of a real registry."""

from __future__ import annotations

import json
import threading
import uuid
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from headgate.config import Confluent, Duration, Kafka, PipelineConfig, Predict, PredictTo, Registry
from headgate.engine.events import Predicted, PredictionFailed
from headgate.engine.runner import RunOptions
from headgate.lab.pizza.records import WAIT_TIMES, schema
from headgate.lab.services import Services
from headgate.models.registry import ModelRegistry
from headgate.registry.open import open_registry
from headgate.registry.registry import SchemaText
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal
from tests.readers import by_deltalake
from tests.run.conftest import Told

ORDER = {
    "type": "record",
    "name": "pizza_order",
    "fields": [{"name": "store_id", "type": "int"}, {"name": "pizzas", "type": "int"}],
}


def five_minutes_each() -> Any:
    """Return the model of a kitchen with one cook."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.pyfunc.model import PythonModel

        class FiveMinutesEach(PythonModel):
            # MLflow takes type hints for a signature.
            def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
                return model_input["pizzas"] * 5.2

    return FiveMinutesEach()


class Topics:
    """Two topics of a real broker, and the schemas of their records."""

    def __init__(self, services: Services) -> None:
        self.services = services
        name = uuid.uuid4().hex[:8]
        self.orders, self.waits = f"orders_{name}", f"waits_{name}"
        registry = open_registry(Registry(url=services.registry))
        self.order_id = registry.register(
            f"{self.orders}-value", SchemaText("AVRO", json.dumps(ORDER))
        )
        self.wait_schema = schema(WAIT_TIMES, 2)
        registry.register(f"{self.waits}-value", SchemaText("AVRO", json.dumps(self.wait_schema)))
        registry.close()
        admin = AdminClient({"bootstrap.servers": services.servers})
        for created in admin.create_topics(
            [NewTopic(topic, 1, 1) for topic in (self.orders, self.waits)]
        ).values():
            created.result(30)

    def order(self, store: int, pizzas: int) -> None:
        output = BytesIO()
        output.write(b"\0" + self.order_id.to_bytes(4, "big"))
        row = {"store_id": store, "pizzas": pizzas}
        fastavro.schemaless_writer(output, fastavro.parse_schema(ORDER), row)
        producer = Producer({"bootstrap.servers": self.services.servers})
        producer.produce(self.orders, output.getvalue(), key=str(store).encode())
        assert producer.flush(30) == 0

    def published(self, count: int) -> list[Message[bytes, bytes]]:
        settings = {"bootstrap.servers": self.services.servers, "group.id": "waits"}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(self.waits, 0, OFFSET_BEGINNING)])
        messages = consumer.consume(count, timeout=60)
        consumer.close()
        return messages

    def decoded(self, message: Message[bytes, bytes]) -> dict[str, Any]:
        value = message.value()
        assert value is not None
        assert value[:1] == b"\0"
        parsed = fastavro.parse_schema(dict(self.wait_schema))
        row = fastavro.schemaless_reader(BytesIO(value[5:]), parsed, None)
        assert isinstance(row, dict)
        return row


@pytest.fixture
def topics(services: Services) -> Topics:
    return Topics(services)


def test_orders_become_wait_times_in_a_topic(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    pipeline = PipelineConfig(
        name="shop",
        source=Kafka(servers=topics.services.servers, topics=[topics.orders, topics.waits]),
        registry=Registry(url=topics.services.registry),
        envelope=Confluent(),
        lake=str(tmp_path / "lake"),
        predict={
            "waits": Predict(
                features=f"SELECT sum(pizzas) AS pizzas FROM {topics.orders}",
                key="store_id",
                window=Duration(hours=1),
                to=PredictTo(topic=topics.waits),
            )
        },
    )
    models = ModelRegistry.of(pipeline)
    models.register("shop-waits", five_minutes_each(), {}, {"mae": 1.0}, [])
    models.promote("shop-waits", 1)
    told, stop = Told(), StopSignal()
    options = RunOptions(trigger_milliseconds=200)
    topics.order(1, 1)
    run = threading.Thread(target=run_pipeline, args=(pipeline, options, told, stop))
    run.start()
    try:
        told.wait_for(lambda: len(told.of(Predicted)) == 1)
        topics.order(2, 2)
        told.wait_for(lambda: len(told.of(Predicted)) == 2)
        topics.order(1, 3)
        told.wait_for(lambda: len(told.of(Predicted)) == 3)
        published = topics.published(3)
    finally:
        stop.request()
        run.join(120)
    assert not told.of(PredictionFailed)
    rows = [topics.decoded(message) for message in published]
    assert [(row["store_id"], row["wait_time"]) for row in rows] == [(1, 5), (2, 10), (1, 21)]
    scores = by_deltalake(f"{pipeline.lake}/waits").to_pylist()
    ids = {row["prediction_id"] for row in scores}
    assert {row["prediction"] for row in scores} == {5.2, 10.4, 20.8}
    assert {row["model"] for row in scores} == {"models:/shop-waits/1"}
    headers = [dict(message.headers() or ()) for message in published]
    assert {each["prediction_id"] for each in headers} == {each.encode() for each in ids}
    assert [message.key() for message in published] == [b"1", b"2", b"1"]
