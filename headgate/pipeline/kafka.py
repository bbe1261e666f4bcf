"""Topics of Kafka as the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from headgate.pipeline.declared import Declared
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.kafka_options import KafkaOptions
from headgate.pipeline.kafka_security import Security
from headgate.pipeline.kafka_start import Start
from headgate.pipeline.place import refuse_credentials
from headgate.pipeline.wording import listed, shown

_SERVER = re.compile(r"(?:\w+://)?(?:\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5}", re.ASCII)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def _check_servers(servers: str) -> str:
    for server in refuse_credentials(servers).split(","):
        if not _SERVER.fullmatch(server.strip()):
            raise InvalidPipeline(
                "bad-value",
                f"cannot be {shown(servers)}",
                "write `host:port`, with commas between several",
            )
    return servers


def _check_topics(topics: Sequence[str]) -> tuple[str, ...]:
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            raise InvalidPipeline(
                "bad-value",
                f"cannot have {shown(topic)}",
                "a topic's name has letters, digits, `.`, `_` and `-`; for more, use `pattern`",
            )
    twice = sorted({topic for topic in topics if topics.count(topic) > 1})
    if twice:
        raise InvalidPipeline("bad-value", f"has {listed(twice)} twice")
    return tuple(topics)


class Kafka(Declared):
    """Topics of Kafka."""

    servers: Annotated[str, AfterValidator(_check_servers)] = Field(examples=["localhost:9092"])
    """The brokers to ask first: `host:port`, with commas between several."""

    topics: Annotated[Sequence[str], AfterValidator(_check_topics)] = Field(
        default=(), examples=[["games"]]
    )
    """The topics to read, by name."""

    pattern: str | None = Field(default=None, examples=["games-.*"])
    """The topics to read, as a regular expression of Java; new ones are found while running."""

    start: Start = "earliest"
    """Where the first run begins; later ones go on where the last one ended."""

    batch: int = Field(default=1_000_000, strict=True, gt=0, lt=2**63)
    """The most records that one batch takes."""

    security: Security | None = None
    """How the connection is secured, and as whom it logs in."""

    options: KafkaOptions = Field(default_factory=dict)
    """Any other option of Spark's Kafka source."""

    @field_validator("pattern", mode="after")
    @classmethod
    def _topics_or_pattern(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if "topics" in info.data and bool(info.data["topics"]) == bool(pattern):
            raise InvalidPipeline("choose-one", "needs exactly one of `topics`, `pattern`")
        return pattern

    @field_validator("start", mode="after")
    @classmethod
    def _start_of_every_topic(cls, start: Start, info: ValidationInfo) -> Start:
        topics = set(info.data.get("topics", ()))
        if not isinstance(start, Mapping) or not topics:
            return start
        if unknown := sorted(start.keys() - topics):
            raise InvalidPipeline("bad-value", f"names {listed(unknown)}, not among `topics`")
        if left_out := sorted(topics - start.keys()):
            raise InvalidPipeline("bad-value", f"leaves out {listed(left_out)}")
        return start
