"""A small lake of records in Confluent's framing, landed in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import headgate
from headgate.config import Kafka
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText
from headgate.testing import InProcessLake, Record

Framed = tuple[str, int, bytes]
"""Topic, schema id and payload with its message index before it; zeros are a record of defaults."""


def proto(*messages: str) -> SchemaText:
    text = " ".join(f"message {message}" for message in messages)
    return SchemaText("PROTOBUF", f'syntax = "proto3"; package shop; {text}')


@dataclass
class FramedLake:
    """A pipeline of topics, and what a run of it would have landed."""

    folder: Path
    route: Literal["topic", "record"] = "topic"
    declared: dict[str, Any] = field(default_factory=dict)
    source: Kafka = field(default_factory=lambda: Kafka(servers="x:9092", pattern=".*"))

    def __post_init__(self) -> None:
        self.registry = FolderRegistry(self.folder / "schemas")

    def register(self, subject: str, schema: SchemaText) -> int:
        return self.registry.register(subject, schema)

    @property
    def pipeline(self) -> headgate.Pipeline:
        return headgate.Pipeline(
            name="shop",
            source=self.source,
            envelope=headgate.Confluent(route=self.route),
            lake=str(self.folder / "lake"),
            **{"registry": str(self.folder / "schemas"), **self.declared},
        )

    def land(self, records: Sequence[Framed]) -> None:
        """One batch, by the contract that was declared at the first."""
        self._landing.land(
            Record(b"\0" + schema.to_bytes(4, "big") + payload, topic=topic)
            for topic, schema, payload in records
        )

    @cached_property
    def _landing(self) -> InProcessLake:
        return InProcessLake(self.pipeline, self.folder)
