"""The Kafka source: topics, start offsets, security and options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from headgate.config.location import LocalFile, reject_credentials
from headgate.config.model import ConfigModel
from headgate.config.secrets import Secret, Username, settings_checked_by
from headgate.config.units import parse_timestamp
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

# Spark's own; everything else is Kafka's and starts with `kafka.`.
_SPARK_OPTIONS = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsetsByTimestampStrategy",
)

_OWNED: Mapping[str, str] = {
    "assign": "name the topics under `topics`",
    "subscribe": "name the topics under `topics`",
    "subscribepattern": "write it as `pattern`",
    "startingoffsets": "write it as `start`",
    "startingoffsetsbytimestamp": "write it as `start`",
    "startingtimestamp": "write it as `start`",
    "kafka.auto.offset.reset": "write it as `start`",
    "endingoffsets": "a run ends when it is caught up or stopped",
    "endingoffsetsbytimestamp": "a run ends when it is caught up or stopped",
    "endingtimestamp": "a run ends when it is caught up or stopped",
    "maxoffsetspertrigger": "write it as `batch`",
    "kafka.bootstrap.servers": "write it as `servers`",
    "kafka.security.protocol": "write it as `security: {protocol: …}`",
    "kafka.sasl.mechanism": "write it as `security: {mechanism: …}`",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint",
    "failondataloss": "lost records always stop a run, so that no loss goes unnoticed",
    "includeheaders": "headers are always read",
}

# These name classes, commands, files or addresses that the client would load, run or call.
_INSECURE = re.compile(
    r"kafka\.(?:"
    r"sasl\.jaas\.config"
    r"|sasl\.oauthbearer\..*(?:url|file)"
    r"|sasl\.kerberos\.kinit\.cmd"
    r"|(?:.*\.)?(?:class|classes|providers|reporters|(?:de)?serializer)"
    r"|partition\.assignment\.strategy"
    r")"
)

_LOGIN = "to log in, write `security: {mechanism: …, username: …, password: …}`"


def check_kafka_option(key: str) -> None:
    # Spark option names are case-insensitive.
    lower = key.lower()
    if hint := _OWNED.get(lower):
        raise InvalidPipeline("bad-value", "is not an option: Headgate sets it itself", hint)
    if _INSECURE.fullmatch(lower):
        raise InvalidPipeline(
            "insecure-option",
            "is not allowed: it can run code, read files or call other servers",
            _LOGIN if ".sasl." in lower else None,
        )
    if not lower.startswith("kafka.") and key not in _SPARK_OPTIONS:
        kafka_hint = f"Kafka's own options start with `kafka.`: `kafka.{key}`"
        raise InvalidPipeline(
            "unknown-key",
            "is not an option of Spark's Kafka source",
            kafka_hint if "." in key else did_you_mean(key, _SPARK_OPTIONS) or kafka_hint,
        )


KafkaOptions = Annotated[Mapping[str, str | Secret], settings_checked_by(check_kafka_option)]


class Security(ConfigModel):
    """Encryption and authentication of the connection to Kafka."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        examples=["SASL_SSL"]
    )
    """Security protocol of the brokers. The `SASL_` protocols require a login."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL mechanism. Required with the `SASL_` protocols."""

    username: Username | None = None
    """User name, or a reference such as `env:KAFKA_USER`."""

    password: Secret | None = None
    """Reference to the password, such as `env:NAME` or `file:/path`."""

    ca: LocalFile | None = None
    """CA certificates for verifying the brokers (PEM)."""

    certificate: LocalFile | None = None
    """Client certificate for mutual TLS (PEM)."""

    key: LocalFile | None = None
    """Private key of the client certificate (PEM)."""

    key_password: Secret | None = None
    """Reference to the password of the private key."""

    @field_validator("mechanism", "username", "password", mode="after")
    @classmethod
    def _required_with_sasl(cls, value: object, info: ValidationInfo) -> object:
        protocol = info.data.get("protocol")
        if protocol is None:
            return value
        if protocol.startswith("SASL_") and value is None:
            raise InvalidPipeline("missing-key", f"is missing, but `{protocol}` needs it")
        if not protocol.startswith("SASL_") and value is not None:
            raise InvalidPipeline(
                "bad-value",
                f"has no effect with `{protocol}`",
                f"to log in, write `protocol: SASL_{protocol}`",
            )
        return value

    @field_validator("ca", "certificate", "key", "key_password", mode="after")
    @classmethod
    def _requires_encryption(cls, value: object, info: ValidationInfo) -> object:
        protocol = info.data.get("protocol")
        if value is not None and protocol is not None and not protocol.endswith("SSL"):
            raise InvalidPipeline(
                "bad-value", f"has no effect with `{protocol}`", "it needs `SSL` or `SASL_SSL`"
            )
        return value

    @field_validator("key", mode="after")
    @classmethod
    def _requires_certificate(cls, key: str | None, info: ValidationInfo) -> str | None:
        if "certificate" in info.data and (key is None) != (info.data["certificate"] is None):
            raise InvalidPipeline("missing-key", "must be given together with `certificate`")
        return key


_HINT = 'use `earliest`, `latest`, a time such as "2026-11-01 12:00:00", or offsets'
_OFFSETS_HINT = "write offsets by topic and partition: `{games: {0: 12, 1: -2}}`"

Offsets = Mapping[str, Mapping[int, int]]


def _read_start(value: object) -> str | datetime | Offsets:
    match value:
        case "earliest" | "latest":
            return str(value)
        case date() | str():
            return _read_time(value)
        case Mapping():
            return {_read_topic(topic): _read_partitions(each) for topic, each in value.items()}
        case _:
            raise InvalidPipeline("wrong-type", f"cannot be {shown(value)}", _HINT)


def _read_time(written: date | str) -> datetime:
    if timestamp := parse_timestamp(written):
        return timestamp
    question = did_you_mean(str(written), ("earliest", "latest"))
    raise InvalidPipeline("bad-value", f"cannot be {shown(written)}", question or _HINT)


def _read_topic(topic: object) -> str:
    if isinstance(topic, str):
        return topic
    raise InvalidPipeline("wrong-type", f"needs topics, not {shown(topic)}", _OFFSETS_HINT)


def _read_partitions(written: object) -> Mapping[int, int]:
    if not isinstance(written, Mapping) or not written:
        raise InvalidPipeline("wrong-type", "needs partitions under each topic", _OFFSETS_HINT)
    for partition, offset in written.items():
        if type(partition) is not int or type(offset) is not int:
            raise InvalidPipeline("wrong-type", "needs whole numbers as offsets", _OFFSETS_HINT)
        if partition < 0 or offset < -2:
            raise InvalidPipeline(
                "bad-value",
                f"cannot start partition {partition} at {offset}",
                "offsets count from 0; -2 means the earliest and -1 the latest",
            )
    return dict(written)


Start = Annotated[
    Literal["earliest", "latest"] | datetime | Offsets,
    BeforeValidator(_read_start, json_schema_input_type=str | dict[str, dict[str, int]]),
]
"""`earliest`, `latest`, a timestamp (UTC unless it has an offset), or offsets by partition.

In offsets, -2 means the earliest record and -1 the latest.
"""

_SERVER = re.compile(r"(?:\w+://)?(?:\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5}", re.ASCII)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def _check_servers(servers: str) -> str:
    for server in reject_credentials(servers).split(","):
        if not _SERVER.fullmatch(server.strip()):
            raise InvalidPipeline(
                "bad-value",
                f"cannot be {shown(servers)}",
                "write `host:port`, separated by commas",
            )
    return servers


def check_topic(topic: str) -> str:
    """Validate the name of a topic."""
    if not _TOPIC.fullmatch(topic):
        raise InvalidPipeline(
            "bad-value",
            f"cannot have {shown(topic)}",
            "topic names have letters, digits, `.`, `_` and `-`; `pattern` matches several",
        )
    return topic


def _check_topics(topics: Sequence[str]) -> tuple[str, ...]:
    for topic in topics:
        check_topic(topic)
    duplicates = sorted({topic for topic in topics if topics.count(topic) > 1})
    if duplicates:
        raise InvalidPipeline("bad-value", f"has duplicates: {listed(duplicates)}")
    return tuple(topics)


class Kafka(ConfigModel):
    """Kafka topics to read."""

    servers: Annotated[str, AfterValidator(_check_servers)] = Field(examples=["localhost:9092"])
    """Bootstrap servers: `host:port`, separated by commas."""

    topics: Annotated[Sequence[str], AfterValidator(_check_topics)] = Field(
        default=(), examples=[["games"]]
    )
    """Topics to read, by name."""

    pattern: str | None = Field(default=None, examples=["games-.*"])
    """Topics to read, as a Java regular expression. New topics are picked up while running."""

    start: Start = "earliest"
    """Where the first run starts: `earliest`, `latest`, a timestamp, or offsets by topic and
    partition. Later runs continue where the last one ended."""

    batch: int = Field(default=1_000_000, strict=True, gt=0, lt=2**63)
    """Maximum number of records per batch."""

    security: Security | None = None
    """Encryption and authentication of the connection."""

    options: KafkaOptions = Field(default_factory=dict)
    """Further options of Spark's Kafka source."""

    @field_validator("pattern", mode="after")
    @classmethod
    def _topics_or_pattern(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if "topics" in info.data and bool(info.data["topics"]) == bool(pattern):
            raise InvalidPipeline("choose-one", "needs exactly one of `topics`, `pattern`")
        return pattern

    @field_validator("start", mode="after")
    @classmethod
    def _start_covers_topics(cls, start: Start, info: ValidationInfo) -> Start:
        topics = set(info.data.get("topics", ()))
        if not isinstance(start, Mapping) or not topics:
            return start
        if unknown := sorted(start.keys() - topics):
            raise InvalidPipeline("bad-value", f"names {listed(unknown)}, not in `topics`")
        if left_out := sorted(topics - start.keys()):
            raise InvalidPipeline("bad-value", f"leaves out {listed(left_out)}")
        return start
