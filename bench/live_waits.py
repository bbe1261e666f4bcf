"""From an order to the new wait of its store: Kafka to Kafka, through landing and a model."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from rich.table import Table

import headgate
from headgate.engine.events import BatchLanded, Event, Predicted, PredictionFailed
from headgate.lab.destination import KafkaTopics
from headgate.lab.pizza.records import (
    COMPLETED,
    ORDERS,
    TOPICS,
    WAIT_TIMES,
    RecordEncoder,
    WaitTime,
    schema,
    stale_waits,
)
from headgate.lab.pizza.world import Cancelled, Completed, Ordered
from headgate.lab.services import Services
from headgate.models.estimator import Estimator
from headgate.models.features import parse_features
from headgate.models.registry import ModelRegistry
from headgate.registry.http import HttpRegistry, HttpRegistrySettings
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal

_STORES = 10
_VERSION = 2
_COMPLETED_AFTER = 20.0
_WARM_UP = 30.0
_TICK = 0.02

_FEATURES = (files("headgate") / "examples" / "pizza" / "features.sql").read_text("utf-8")


@dataclass
class Live:
    """Seconds from orders to waits, and seconds that the parts of a batch took."""

    orders_per_second: float
    seconds: Sequence[float]
    missing: int
    """Orders without a new wait."""
    rows_in_window: int
    parts: dict[str, float] = field(default_factory=dict)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def live_waits(
    services: Services, folder: Path, rate: float, seconds: float, say: Callable[[str], None]
) -> Live:
    """Send orders at a steady rate while a run lands them, and compare the times of records."""
    pipeline = _pipeline(services, folder)
    say("Training a small model")
    _register_model(pipeline)
    _prepare(services)
    stop, events = StopSignal(), _Events()
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:

        def send() -> None:
            events.running.wait()
            say(f"{rate:g} orders per second for {seconds:g} s")
            apart.submit(
                send_orders, services.servers, services.registry, rate, seconds
            ).exception()
            time.sleep(5)
            stop.request()

        threading.Thread(target=send, daemon=True).start()
        run_pipeline(pipeline, None, events, stop)
    for failed in events.failed:
        say(failed.text)
    return _compared(services, rate, events)


def live_table(live: Live) -> Table:
    table = Table(
        title=f"An order to its store's new wait in {WAIT_TIMES}, {live.orders_per_second:g} "
        f"orders per second, {_STORES} stores, {live.rows_in_window:,} rows in the window"
    )
    for heading in ("orders", "p50", "p95", "longest", "without", *live.parts):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{len(live.seconds):,}",
        f"{live.percentile(0.5):.2f} s",
        f"{live.percentile(0.95):.2f} s",
        f"{max(live.seconds):.2f} s",
        f"{live.missing:,}",
        *(f"{part:.2f} s" for part in live.parts.values()),
    )
    return table


class _Events:
    """What the batches of a run took."""

    def __init__(self) -> None:
        self.landed: list[BatchLanded] = []
        self.predicted: list[Predicted] = []
        self.failed: list[PredictionFailed] = []
        self.running = threading.Event()

    def __call__(self, event: Event) -> None:
        match event:
            case BatchLanded():
                self.landed.append(event)
                self.running.set()
            case Predicted():
                self.predicted.append(event)
            case PredictionFailed():
                self.failed.append(event)


def _pipeline(services: Services, folder: Path) -> headgate.Pipeline:
    return headgate.Pipeline(
        name="pizza",
        source=headgate.Kafka(servers=services.servers, topics=list(TOPICS), start="earliest"),
        registry=headgate.Registry(url=services.registry),
        envelope=headgate.Confluent(),
        lake=str(folder / "lake"),
        trigger=headgate.Duration(milliseconds=100),
        predict={
            "wait_times": headgate.Predict(
                features=_FEATURES,
                key="store_id",
                time="event_time",
                window=headgate.Duration(hours=4),
                fallback=f"SELECT store_id, wait_time FROM {WAIT_TIMES}",
                to=headgate.PredictTo(topic=WAIT_TIMES),
            )
        },
    )


def _register_model(pipeline: headgate.Pipeline) -> None:
    """Register a model over made-up numbers: what it predicts does not matter here."""
    import numpy as np
    import pandas as pd
    from threadpoolctl import threadpool_limits

    names = parse_features(_FEATURES, "store_id", "event_time", timedelta(hours=4)).names
    values = np.random.default_rng(0).uniform(0, 500, (5_000, len(names)))
    frame = pd.DataFrame(values, columns=list(names))
    frame.insert(0, "store_id", np.arange(len(frame)) % _STORES + 1)
    waits = frame["open_orders"] - frame["completed_30"] + frame["orders_10"] / 100
    with threadpool_limits(1):
        model = Estimator.train(frame, "store_id", waits.to_numpy())
    registry = ModelRegistry.of(pipeline)
    version = registry.register("pizza-wait_times", model, {}, {}, [])
    registry.promote(version.name, version.version)


def _prepare(services: Services) -> None:
    """Send the waits of an outdated model, and a first order: the topics must exist."""
    now = datetime.now(UTC)
    with closing(HttpRegistry(HttpRegistrySettings(services.registry))) as registry:
        encoder = RecordEncoder(registry)
        topics = KafkaTopics(services.servers, TOPICS)
        events: list[Ordered | Completed | Cancelled | WaitTime] = [
            *stale_waits(_STORES, now),
            Ordered(1, 0, now, (), 0, "web"),
            Completed(1, 0, now, 1.0),
            Cancelled(1, 0, now, 1.0),
        ]
        topics.send(encoder.encode([(event, _VERSION) for event in events]))
        topics.flush()


def send_orders(
    servers: str, registry_url: str, rate: float, seconds: float, complete: bool = True
) -> None:
    """Send orders at a steady rate, and their completion after a while."""
    with closing(HttpRegistry(HttpRegistrySettings(registry_url))) as registry:
        encoder = RecordEncoder(registry)
        topics = KafkaTopics(servers, [ORDERS, COMPLETED])
        began, sent, completed = time.monotonic(), 0, 0
        while (passed := time.monotonic() - began) < seconds:
            now = datetime.now(UTC)
            events: list[tuple[Ordered | Completed, int]] = []
            for number in range(sent + 1, int(passed * rate) + 1):
                order = Ordered(number % _STORES + 1, number, now, (), 0, "web")
                events.append((order, _VERSION))
                sent = number
            due = int(max(0.0, passed - _COMPLETED_AFTER) * rate) if complete else 0
            for number in range(completed + 1, due + 1):
                wait = _COMPLETED_AFTER / 60
                events.append((Completed(number % _STORES + 1, number, now, wait), _VERSION))
                completed = number
            if events:
                topics.send(encoder.encode(events))
                topics.flush()
            time.sleep(_TICK)


def _compared(services: Services, rate: float, events: _Events) -> Live:
    """Find for each order the first wait of its store that is based on it."""
    _, *orders = _times(services, ORDERS)
    waits = _times(services, WAIT_TIMES)
    start = min(sent for _, sent, _ in orders) + _WARM_UP
    by_store: dict[bytes, list[tuple[float, float]]] = {}
    for key, sent, at in waits:
        by_store.setdefault(key, []).append((at, sent))
    found, missing = [], 0
    for key, sent, at in orders:
        if sent < start:
            continue
        first = next((wait for seen, wait in by_store.get(key, ()) if seen >= at), None)
        if first is None:
            missing += 1
        else:
            found.append(first - sent)
    landed = [one for one in events.landed if one.rows][2:]
    predicted = events.predicted[2:]
    parts = {
        "staging": statistics.median(one.staging_seconds for one in landed),
        "commit": statistics.median(one.commit_seconds for one in landed),
        "features and score": statistics.median(one.scoring_seconds for one in predicted),
        "write and publish": statistics.median(
            one.seconds - one.scoring_seconds for one in predicted
        ),
    }
    # A record waits in the topic until the batch before has ended and Spark has planned the next.
    parts = {"wait for the batch": statistics.median(found) - sum(parts.values()), **parts}
    return Live(rate, found, missing, len(orders), parts)


def _times(services: Services, topic: str) -> list[tuple[bytes, float, float]]:
    """Return key, time of sending and event time of all records, in order."""
    parsed = fastavro.parse_schema(dict(schema(topic, _VERSION)))
    consumer = Consumer({"bootstrap.servers": services.servers, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while messages := consumer.consume(10_000, timeout=5):
        for message in messages:
            value = message.value()
            assert value is not None
            row = fastavro.schemaless_reader(BytesIO(value[5:]), parsed, None)
            assert isinstance(row, dict)
            event_time = row["event_time"]
            key = message.key()
            assert isinstance(event_time, datetime)
            assert key is not None
            found.append((key, message.timestamp()[1] / 1000, event_time.timestamp()))
    consumer.close()
    return found
