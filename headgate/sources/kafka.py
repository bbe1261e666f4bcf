"""Kafka topics as a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headgate.config import Kafka, Secret
from headgate.errors import SourceError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def stream_topics(spark: SparkSession, source: Kafka, start: Any = None) -> DataFrame:
    """Read the topics from `source.start`, or from given offsets."""
    options = {
        **_options(source),
        **(_start(source) if start is None else {"startingOffsets": json.dumps(start)}),
        "maxOffsetsPerTrigger": str(source.batch),
        # Use all cores, even if the topic has fewer partitions.
        "minPartitions": str(spark.sparkContext.defaultParallelism),
    }
    return _columns(spark.readStream.format("kafka").options(**options).load())


def records_between(start: Mapping[str, Any] | None, end: Mapping[str, Any] | None) -> int | None:
    """Return the number of records between two sets of offsets."""
    if end is None:
        return None
    begun = start or {}
    return sum(
        int(offset) - max(0, int(begun.get(topic, {}).get(partition, 0)))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )


def _columns(frame: DataFrame) -> DataFrame:
    return frame.select("value", "topic", "partition", "offset", "timestamp", "key", "headers")


def _options(source: Kafka) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": source.servers,
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        # Kafka's defaults suit consumers that wait for records; here the batch already exists.
        # Each partition's consumer buffers what it fetches, so larger values cost memory.
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": str(2 << 20),
        # A batch reads what the broker has. While a consumer waits for more, which is what it asks
        # for ahead, it does not get what it needs; by default it waits for half a second.
        "kafka.fetch.max.wait.ms": "10",
        **{key: text(value) for key, value in source.options.items()},
        **_security(source),
    }
    if source.pattern:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    return options


def _start(source: Kafka) -> dict[str, str]:
    if isinstance(source.start, str):
        return {"startingOffsets": source.start}
    if isinstance(source.start, datetime):
        return {
            "startingTimestamp": str(int(source.start.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    by_topic = {
        topic: {str(partition): offset for partition, offset in offsets.items()}
        for topic, offsets in source.start.items()
    }
    return {"startingOffsets": json.dumps(by_topic)}


def _security(source: Kafka) -> dict[str, str]:
    wanted = source.security
    if wanted is None:
        return {}
    options: dict[str, str] = {"kafka.security.protocol": wanted.protocol}
    if wanted.mechanism and wanted.username and wanted.password:
        module = _LOGIN_MODULES[wanted.mechanism]
        user, password = quoted(text(wanted.username)), quoted(wanted.password.resolve())
        options["kafka.sasl.mechanism"] = wanted.mechanism
        options["kafka.sasl.jaas.config"] = (
            f"{module} required username={user} password={password};"
        )
    if wanted.ca:
        options["kafka.ssl.truststore.type"] = "PEM"
        # Not by its path: executors may be on other machines.
        options["kafka.ssl.truststore.certificates"] = _read(wanted.ca)
    if wanted.certificate and wanted.key:
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = _read(wanted.certificate)
        options["kafka.ssl.keystore.key"] = _read(wanted.key)
    if wanted.key_password:
        options["kafka.ssl.key.password"] = wanted.key_password.resolve()
    return options


def text(value: str | Secret) -> str:
    return value.resolve() if isinstance(value, Secret) else value


def quoted(value: str) -> str:
    """Quote a value for a JAAS configuration.

    A line break would end the value, and the error would have what follows it.
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _read(path: str) -> str:
    # Bundles of certificates may have comments in any encoding.
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


_LAG_TIMEOUT_SECONDS = 5.0
IDS_TIMEOUT_SECONDS = 30.0
_EARLIEST = -2


def client_settings(source: Kafka) -> dict[str, Any]:
    """Return the broker and credentials as settings of librdkafka."""
    settings: dict[str, Any] = {"bootstrap.servers": source.servers, "log_level": 0}
    wanted = source.security
    if wanted is None:
        return settings
    settings["security.protocol"] = wanted.protocol
    if wanted.mechanism and wanted.username and wanted.password:
        settings["sasl.mechanism"] = wanted.mechanism
        settings["sasl.username"] = text(wanted.username)
        settings["sasl.password"] = wanted.password.resolve()
    for key, value in (
        ("ssl.ca.location", wanted.ca),
        ("ssl.certificate.location", wanted.certificate),
        ("ssl.key.location", wanted.key),
        ("ssl.key.password", wanted.key_password and wanted.key_password.resolve()),
    ):
        if value:
            settings[key] = value
    return settings


def topics_found(source: Kafka, seconds: float = 10) -> dict[str, int]:
    """Return the source's topics that exist on the broker, with their partition counts."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        known = AdminClient(client_settings(source)).list_topics(timeout=seconds).topics
    except KafkaException as error:
        raise SourceError(
            "source-missing",
            f"no broker answers at {source.servers} ({error.args[0].str()})",
            hint="check `servers` and `security`; headgate up starts a broker on this machine",
        ) from None
    if source.pattern:
        wanted = [name for name in known if re.fullmatch(source.pattern, name)]
    else:
        wanted = [name for name in source.topics if name in known]
    return {name: len(known[name].partitions) for name in wanted}


def delete_topics(source: Kafka, topics: Sequence[str]) -> None:
    """Delete topics with all their records."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(client_settings(source))  # kept, because its end would cancel requests
    for topic, deleted in admin.delete_topics(list(topics)).items():
        try:
            deleted.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise SourceError(
                    "source-missing", f"topic {topic} cannot be deleted: {error.args[0].str()}"
                ) from None


class Topics:
    """The topics of a source, as its brokers know them: their ids, and where they end."""

    def __init__(self, source: Kafka) -> None:
        from confluent_kafka.admin import AdminClient

        self._servers = source.servers
        self._admin = AdminClient(client_settings(source))

    def ids(self, topics: Collection[str], seconds: float = IDS_TIMEOUT_SECONDS) -> dict[str, str]:
        """Return the ids of topics; of old brokers, which report none, it is empty.

        A topic that is created again has another id. Raises if a topic does not exist.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        if not topics:
            return {}
        ids: dict[str, str] = {}
        described = self._admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=seconds
        )
        for topic, future in described.items():
            try:
                found = future.result(2 * seconds).topic_id
            except (KafkaException, TimeoutError) as error:
                code = error.args[0].code() if isinstance(error, KafkaException) else None
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise SourceError(
                        "source-missing",
                        f"topic {topic} at {self._servers} no longer exists",
                        hint="check `source`",
                    ) from None
                raise SourceError(
                    "source-missing",
                    f"the broker did not say which topic {topic} is ({first_line(error)})",
                    hint="check the broker and the network, then run again to retry the batch",
                ) from None
            if found.get_most_significant_bits() or found.get_least_significant_bits():
                ids[topic] = str(found)
        return ids

    def lag(self, offsets: Mapping[str, Mapping[str, int]]) -> int | None:
        """Return the number of records beyond some offsets.

        None if the broker is slow: landing must not wait for a metric.
        """
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        latest = {
            TopicPartition(topic, int(partition)): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic, partitions in offsets.items()
            for partition in partitions
        }
        read = sum(offset for partitions in offsets.values() for offset in partitions.values())
        try:
            newest = self._admin.list_offsets(latest, request_timeout=_LAG_TIMEOUT_SECONDS).values()
            return max(
                0, sum(int(one.result(_LAG_TIMEOUT_SECONDS).offset) for one in newest) - read
            )
        except (KafkaException, TimeoutError, ValueError):
            return None


def require_topics(source: Kafka) -> dict[str, int]:
    """Return the topics with their partition counts.

    Raises if one is missing, instead of letting Spark retry until it times out.
    """
    found = topics_found(source)
    missing = [topic for topic in source.topics if topic not in found]
    if missing:
        raise SourceError(
            "source-missing",
            f"no topic {', '.join(missing)} at {source.servers}",
            hint="check `topics`; headgate simulate creates and fills one",
        )
    return found


def offsets_from(ended_at: Mapping[str, Any], partitions: Mapping[str, int]) -> dict[str, Any]:
    """Return where to continue in every partition that there is now.

    That is where batches have ended, or the beginning of a partition that they did not read. Spark
    refuses offsets of other partitions, and those of only some.
    """
    return {
        topic: {
            str(number): ended_at.get(topic, {}).get(str(number), _EARLIEST)
            for number in range(count)
        }
        for topic, count in partitions.items()
    }
