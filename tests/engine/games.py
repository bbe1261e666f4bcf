"""A whole pipeline without Spark: records in memory, the same staging, the same lander."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headgate.config import Contract, Expectation, Registry
from headgate.engine.batch import BatchLander
from headgate.engine.events import Event
from headgate.engine.expectations import rules_of
from headgate.engine.plan import BatchPlan
from headgate.engine.record_plan import RecordPlan
from headgate.engine.task_results import decode_results, task_results
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.lake.commit import Committer
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedBatchNote, StagedFile
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText
from headgate.schema.origin import RECORD_COLUMNS
from headgate.sources.batch import Extent

ENVELOPE = WrapperEnvelope("wrapper", "game_name", "schema_id", "payload")
HEAD = 'syntax = "proto3"; message event '
SCHEMAS = [
    HEAD + "{ int32 n = 1; }",
    HEAD + "{ int32 n = 1; string name = 2; }",
    HEAD + "{ string n = 1; }",
    HEAD + "{ int32 n = 1; string Name = 2; }",
    "nonsense",
    HEAD + "{ int64 n = 1; }",
]
"""Ids 1 to 6: the first, a column more, another type, a case twin, one that does not compile, a
larger type."""
PLAIN, WIDER, RETYPED, TWIN, BROKEN, LARGER, UNKNOWN = 1, 2, 3, 4, 5, 6, 7


def record(route: str | None, n: int, schema_id: int | None = PLAIN) -> bytes:
    """A wrapped event."""
    text = str(n).encode()
    payload = b"\x0a" + bytes([len(text)]) + text if schema_id == RETYPED else b"\x08" + varint(n)
    if schema_id in (WIDER, TWIN):
        payload += b"\x12\x01x"
    fields = {"game_name": route, "schema_id": schema_id, "payload": payload}
    known = {name: value for name, value in fields.items() if value is not None}
    value: bytes = ENVELOPE.decoder.message(**known).SerializeToString()
    return value


def wrapped(route: str, schema_id: int, payload: bytes) -> bytes:
    """A wrapped payload of any schema."""
    message = ENVELOPE.decoder.message(game_name=route, schema_id=schema_id, payload=payload)
    value: bytes = message.SerializeToString()
    return value


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def records(values: Sequence[bytes | None], first_offset: int = 0) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "value": values,
            "topic": ["games"] * count,
            "partition": [0] * count,
            "offset": range(first_offset, first_offset + count),
            "timestamp": [0] * count,
            "key": [None] * count,
            "headers": [None] * count,
        },
        schema=RECORD_COLUMNS,
    )


def staged_by(*tasks: pa.RecordBatch) -> Callable[[BatchPlan], list[StagedFile]]:
    """Return a function that stages a batch, with one task per part of its records."""

    def run(plan: BatchPlan) -> list[StagedFile]:
        return decode_results(row for task in tasks for row in task_results(plan.stage([task])))

    return run


@dataclass
class Pipeline:
    """A lake, a folder of schemas, and successive runs."""

    folder: Path
    names: TableNames = field(
        default_factory=lambda: TableNames("silver_{route}", "quarantine", "ledger")
    )
    max_tables: int = 100
    contract: Contract = field(default_factory=Contract)
    envelope: WrapperEnvelope = ENVELOPE
    expect: Mapping[str, Mapping[str, Expectation]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schemas = FolderRegistry(self.folder / "schemas")
        for text in SCHEMAS:
            self.schemas.register("event", SchemaText("PROTOBUF", text))
        self.lake = self.folder / "lake"
        self.ledger = Ledger(str(self.lake), self.names.ledger, "games")
        self.committer: Committer = DeltaRsCommitter(str(self.lake))

    @property
    def plan(self) -> RecordPlan:
        return RecordPlan(
            lake=str(self.lake),
            names=self.names,
            envelope=self.envelope,
            registry=Registry(folder=str(self.schemas.folder)),
            version=0,
            known_tables=frozenset(),
            max_tables=self.max_tables,
            max_record_bytes=1 << 20,
            contract=self.contract,
            expect=rules_of(self.expect),
        )

    def run(self) -> BatchLander:
        """Start a run, with state that is read from the lake."""
        progress = self.ledger.progress()
        if progress is None:
            self.ledger.start("query", 0)
        lander = BatchLander(
            ledger=self.ledger,
            note=StagedBatchNote(str(self.lake), "games"),
            committer=self.committer,
            plan=self.plan,
            listener=self.events.append,
            landed=progress.landed if progress else None,
            pending=progress.pending if progress else (),
            known_tables={one for one in self.tables() if one.startswith("silver_")},
            history=self.ledger.snapshot().schema_history(),
        )
        lander.land_pending()
        return lander

    def tables(self) -> list[str]:
        return sorted(log.parent.name for log in self.lake.glob("*/_delta_log"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        if not (self.lake / table / "_delta_log").exists():
            return []
        return list(DeltaTable(self.lake / table).to_pyarrow_table().sort_by("_offset").to_pylist())

    def offsets(self) -> dict[str, list[int]]:
        """Return the offsets of records by table."""
        tables = [table for table in self.tables() if table != self.names.ledger]
        return {table: [row["_offset"] for row in self.rows(table)] for table in tables}


def extent(batch: int) -> Extent:
    return Extent(batch, {"games": batch}, {"games": batch + 1})
