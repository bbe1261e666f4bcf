"""Destinations of simulated records: Kafka topics, or a Delta table with the same columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import TableNotFoundError

from headgate.errors import SourceError
from headgate.schema.origin import RECORD_COLUMNS

_ROW_GROUP = 50_000


TOPIC_RECORDS = pa.schema([RECORD_COLUMNS.field(name) for name in ("topic", "key", "value")])
"""The columns of records for several topics."""


class Destination(Protocol):
    """Receives the records of one topic, in order."""

    def send(self, values: pa.BinaryArray) -> None: ...

    def flush(self) -> None: ...


class TopicsDestination(Protocol):
    """Receives the records of several topics, in order; they have the columns TOPIC_RECORDS."""

    def send(self, records: pa.Table) -> None: ...

    def flush(self) -> None: ...


class _Producer:
    """A connection to a broker; topics are created if they are missing."""

    def __init__(self, servers: str, topics: Sequence[str], partitions: int) -> None:
        from confluent_kafka import KafkaException, Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self._failed = 0
        quiet: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        admin = AdminClient(quiet)
        try:
            known = admin.list_topics(timeout=30).topics
        except KafkaException as error:
            raise SourceError(
                "source-missing",
                f"no broker responds at {servers} ({error.args[0].str()})",
                hint="headgate up starts a local broker",
            ) from None
        self.partitions = {
            topic: len(known[topic].partitions) if topic in known else partitions
            for topic in topics
        }
        new = [NewTopic(topic, partitions, 1) for topic in topics if topic not in known]
        if new:
            for created in admin.create_topics(new).values():
                created.result(30)
        self._producer = Producer(
            {
                **quiet,
                "linger.ms": 50,
                "batch.size": 1 << 20,
                "compression.type": "lz4",
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1 << 18,
            }
        )

    def produce(self, topic: str, value: bytes | None, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, on_delivery=self._delivered, **more)
                return
            except BufferError:
                self._producer.poll(0.1)

    def poll(self) -> None:
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(60) + self._failed
        if left:
            raise SourceError("source-missing", f"the broker did not accept {left} records")

    def _delivered(self, error: object, _: object) -> None:
        self._failed += error is not None


class KafkaDestination:
    """A topic, created if it is missing; each partition gets runs of consecutive records."""

    _RUN = 1_000

    def __init__(self, servers: str, topic: str, partitions: int = 4) -> None:
        self._topic = topic
        self._sent = 0
        self._producer = _Producer(servers, [topic], partitions)
        self._partitions = self._producer.partitions[topic]

    def send(self, values: pa.BinaryArray) -> None:
        produce, topic = self._producer.produce, self._topic
        for start in range(0, len(values), self._RUN):
            partition = (self._sent // self._RUN) % self._partitions
            run = values[start : start + self._RUN].to_pylist()
            for value in run:
                produce(topic, value, partition=partition)
            self._sent += len(run)
            self._producer.poll()

    def flush(self) -> None:
        self._producer.flush()


class KafkaTopics:
    """Topics, created with one partition if they are missing; else keys choose the partition."""

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self._producer = _Producer(servers, topics, partitions=1)

    def send(self, records: pa.Table) -> None:
        for topic, key, value in zip(*(column.to_pylist() for column in records), strict=True):
            self._producer.produce(topic, value, key=key)
        self._producer.poll()

    def flush(self) -> None:
        self._producer.flush()


class DeltaDestination:
    """A Delta table with the columns of Kafka records."""

    def __init__(self, path: str, topic: str) -> None:
        self._path = path
        self._topic = topic
        try:
            self._offset = DeltaTable(path).count()
        except TableNotFoundError:
            self._offset = 0

    def send(self, values: pa.BinaryArray) -> None:
        count = len(values)
        topics = pa.repeat(self._topic, count)
        offsets = pa.array(range(self._offset, self._offset + count), pa.int64())
        _append(self._path, values, topics, offsets, pa.nulls(count, pa.binary()))
        self._offset += count

    def flush(self) -> None:
        """Do nothing: every `send` is a commit."""


class DeltaTopics:
    """A Delta table with the columns of Kafka records; each topic has its own offsets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offsets: Counter[str] = Counter()
        with suppress(TableNotFoundError):
            topics = DeltaTable(path).to_pyarrow_table(columns=["topic"])["topic"]
            self._offsets.update(topics.to_pylist())

    def send(self, records: pa.Table) -> None:
        offsets = []
        for topic in records["topic"].to_pylist():
            offsets.append(self._offsets[topic])
            self._offsets[topic] += 1
        topics, keys, values = records.columns
        _append(self._path, values, topics, pa.array(offsets, pa.int64()), keys)

    def flush(self) -> None:
        """Do nothing: every `send` is a commit."""


def _append(
    path: str, values: pa.Array, topics: pa.Array, offsets: pa.Array, keys: pa.Array
) -> None:
    count = len(values)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    rows = {
        "value": values,
        "topic": topics,
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": offsets,
        "timestamp": pa.repeat(now, count),
        "key": keys,
        "headers": pa.nulls(count, RECORD_COLUMNS.field("headers").type),
    }
    write_deltalake(
        path,
        pa.table(rows, schema=RECORD_COLUMNS),
        mode="append",
        # Several row groups, so that Spark can read one commit with several tasks.
        writer_properties=WriterProperties(max_row_group_size=_ROW_GROUP),
    )
