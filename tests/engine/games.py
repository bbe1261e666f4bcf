"""A lake of games for tests of the engine: small schemas, and single steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate
from headgate.engine.batch import BatchLander
from headgate.engine.plan import BatchPlan
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.run import batch_plan
from headgate.schema.origin import RECORD_COLUMNS
from headgate.sources.batch import Extent
from headgate.testing import InProcessLake

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


class GamesLake(InProcessLake):
    """A lake whose registry has the schemas above; arguments are keys of the pipeline."""

    def __init__(self, folder: Path, **declared: Any) -> None:
        keys: dict[str, Any] = {
            "name": "games",
            "source": headgate.Delta(path=str(folder / "inbox")),
            "registry": str(folder / "schemas"),
            "envelope": wrapper(),
            "lake": str(folder / "lake"),
            "max_tables": 100,
            "max_record_bytes": headgate.Size(1 << 20),
        }
        super().__init__(headgate.Pipeline(**{**keys, **declared}), folder)
        for text in SCHEMAS:
            self.register("event", text)

    def declare(self, **changed: Any) -> None:
        """Change keys of the pipeline for the following runs."""
        self.pipeline = self.pipeline.model_copy(update=changed)

    @property
    def plan(self) -> BatchPlan:
        return batch_plan(self.pipeline)

    def start(self) -> BatchLander:
        """Start a run, with state that is read from the lake."""
        lander = self.lander()
        lander.land_pending()
        return lander

    def tables(self) -> list[str]:
        return sorted(log.parent.name for log in self.path.glob("*/_delta_log"))

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        return super().rows(table, *columns) if table in self.tables() else []

    def offsets(self) -> dict[str, list[int]]:
        """Return the offsets of records by table."""
        tables = [table for table in self.tables() if table != self.pipeline.ledger]
        return {table: [row["_offset"] for row in self.rows(table)] for table in tables}


def wrapper(**payload_messages: str) -> headgate.Wrapper:
    """Return the envelope of games, with the messages of some routes."""
    return headgate.Wrapper(
        message="wrapper",
        route="game_name",
        schema_id="schema_id",
        payload="payload",
        payload_message=payload_messages,
    )


def extent(batch: int) -> Extent:
    return Extent(batch, {"games": batch}, {"games": batch + 1})
