"""A small lake of records in Confluent's framing, landed in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from headgate.config import Confluent, Kafka, Pipeline
from headgate.engine.batch import BatchLander
from headgate.engine.plan import BatchPlan
from headgate.engine.record_plan import RecordPlan
from headgate.engine.task_results import decode_results, task_results
from headgate.envelopes.open import open_envelope
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText
from headgate.schema.origin import RECORD_COLUMNS
from headgate.sources.batch import Extent

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
        self._batches = 0

    def register(self, subject: str, schema: SchemaText) -> int:
        return self.registry.register(subject, schema)

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline(
            name="shop",
            source=self.source,
            envelope=Confluent(route=self.route),
            lake=str(self.folder / "lake"),
            **{"registry": str(self.folder / "schemas"), **self.declared},
        )

    def land(self, records: Sequence[Framed]) -> None:
        """One batch, by the contract that was declared at the first."""
        batch, self._batches = self._batches, self._batches + 1
        self._lander.land(Extent(batch, {}, {}), lambda plan: _staged(plan, records))

    @cached_property
    def _lander(self) -> BatchLander:
        pipeline = self.pipeline
        ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
        ledger.start("query", 0)
        plan = RecordPlan(
            lake=pipeline.lake,
            names=TableNames(pipeline.silver, pipeline.quarantine_table, pipeline.ledger),
            envelope=open_envelope(pipeline.envelope),
            registry=pipeline.schema_registry,
            version=0,
            known_tables=frozenset(),
            max_tables=pipeline.max_tables,
            max_record_bytes=int(pipeline.max_record_bytes),
            contract=pipeline.contract,
        )
        note = StagedBatchNote(pipeline.lake, pipeline.name)
        return BatchLander(ledger, note, DeltaRsCommitter(pipeline.lake), plan, lambda _: None)


def _staged(plan: BatchPlan, records: Sequence[Framed]) -> list[StagedFile]:
    count = len(records)
    columns = {
        "value": [b"\0" + schema.to_bytes(4, "big") + payload for _, schema, payload in records],
        "topic": [topic for topic, _, _ in records],
        "partition": [0] * count,
        "offset": range(count),
        "timestamp": [0] * count,
        "key": [None] * count,
        "headers": [None] * count,
    }
    told = plan.stage([pa.record_batch(columns, schema=RECORD_COLUMNS)])
    return decode_results(task_results(told))
