"""Destinations of simulated records: a Kafka topic, or a Delta table with the same columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import TableNotFoundError

from headgate.errors import SourceError
from headgate.schema.origin import RECORD_COLUMNS

_ROW_GROUP = 50_000


class Destination(Protocol):
    """Receives records in order."""

    def send(self, values: pa.BinaryArray) -> None: ...

    def flush(self) -> None: ...


class KafkaDestination:
    """A topic, created if it is missing; each partition gets runs of consecutive records."""

    _RUN = 1_000

    def __init__(self, servers: str, topic: str, partitions: int = 4) -> None:
        from confluent_kafka import KafkaException, Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self._topic = topic
        self._sent = 0
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
        if topic in known:
            self._partitions = len(known[topic].partitions)
        else:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
            self._partitions = partitions
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

    def send(self, values: pa.BinaryArray) -> None:
        produce, poll, topic = self._producer.produce, self._producer.poll, self._topic
        for start in range(0, len(values), self._RUN):
            partition = (self._sent // self._RUN) % self._partitions
            run = values[start : start + self._RUN].to_pylist()
            for value in run:
                while True:
                    try:
                        produce(topic, value, partition=partition, on_delivery=self._delivered)
                        break
                    except BufferError:
                        poll(0.1)
            self._sent += len(run)
            poll(0)

    def flush(self) -> None:
        left = self._producer.flush(60) + self._failed
        if left:
            raise SourceError("source-missing", f"the broker did not accept {left} records")

    def _delivered(self, error: object, _: object) -> None:
        self._failed += error is not None


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
        now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        rows = {
            "value": values,
            "topic": pa.repeat(self._topic, count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(self._offset, self._offset + count), pa.int64()),
            "timestamp": pa.repeat(now, count),
            "key": pa.nulls(count, pa.binary()),
            "headers": pa.nulls(count, RECORD_COLUMNS.field("headers").type),
        }
        write_deltalake(
            self._path,
            pa.table(rows, schema=RECORD_COLUMNS),
            mode="append",
            # Several row groups, so that Spark can read one commit with several tasks.
            writer_properties=WriterProperties(max_row_group_size=_ROW_GROUP),
        )
        self._offset += count

    def flush(self) -> None:
        """Do nothing: every `send` is a commit."""
