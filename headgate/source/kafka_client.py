"""The same broker through librdkafka: quick answers to small questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headgate.errors import SourceError
from headgate.pipeline import Kafka
from headgate.source.kafka import text

_AT_ONCE = 5.0


def client_settings(source: Kafka) -> dict[str, Any]:
    """The pipeline's broker and credentials in librdkafka's words."""
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
    """The source's topics that the broker has, with their numbers of partitions."""
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


class Behind:
    """How many records a topic has beyond some offsets; asked once a batch."""

    def __init__(self, source: Kafka) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(client_settings(source))

    def records(self, offsets: Mapping[str, Mapping[str, int]]) -> int | None:
        """None where the broker does not say so at once: nobody waits for a figure."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        asked = {
            TopicPartition(topic, int(partition)): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic, partitions in offsets.items()
            for partition in partitions
        }
        read = sum(offset for partitions in offsets.values() for offset in partitions.values())
        try:
            newest = self._admin.list_offsets(asked, request_timeout=_AT_ONCE).values()
            return max(0, sum(int(one.result(_AT_ONCE).offset) for one in newest) - read)
        except (KafkaException, TimeoutError, ValueError):
            return None


def require_topics(source: Kafka) -> None:
    """A clear error now rather than a long wait in Spark."""
    missing = [topic for topic in source.topics if topic not in topics_found(source)]
    if missing:
        raise SourceError(
            "source-missing",
            f"there is no topic {', '.join(missing)} at {source.servers}",
            hint="check `topics`; headgate simulate makes a topic and fills it",
        )
