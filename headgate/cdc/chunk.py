"""Rows in transit from the task that opened their file to the one that writes their table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from headgate.lake.staged import BlockedSchemaChange, ExpectationResult

CHUNK = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("rows", pa.binary()),
    ]
)
CHUNK_DDL = "table string, metadata string, rows binary"

POSITION = "_position in file"
"""Column of rows in transit, which no table has: no column name of a table contains spaces."""

_MAX_ROWS = 50_000
"""Keeps a message between processes small."""

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
"""Metadata is much the same in all rows; a row that crosses processes is copied many times."""


@dataclass(frozen=True)
class ChunkMetadata:
    """Where rows come from, and what was rejected beside them."""

    route: str | None = None
    lineages: tuple[str, ...] = ()
    blocked: tuple[BlockedSchemaChange, ...] = ()
    columns: tuple[str, ...] | None = None
    """Columns of the source table; None if the file has no schema."""
    error: tuple[str | None, ...] | None = None
    expectations: tuple[ExpectationResult, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ChunkMetadata:
        record = json.loads(text)
        blocked = tuple(
            BlockedSchemaChange(**{**change, "schema_ids": tuple(change["schema_ids"])})
            for change in record.pop("blocked")
        )
        error, columns = record.pop("error"), record.pop("columns")
        lineages = tuple(record.pop("lineages"))
        expectations = tuple(ExpectationResult(**result) for result in record.pop("expectations"))
        return cls(
            **record,
            lineages=lineages,
            blocked=blocked,
            columns=None if columns is None else tuple(columns),
            error=None if error is None else tuple(error),
            expectations=expectations,
        )


@dataclass(frozen=True)
class Chunk:
    """Rows of one table."""

    table: str
    rows: pa.Table
    metadata: ChunkMetadata = ChunkMetadata()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Serialize the rows in pieces; only the first carries all of the metadata."""
        rest = ChunkMetadata(self.metadata.route, self.metadata.lineages)
        for start in range(0, max(1, len(self.rows)), _MAX_ROWS):
            metadata = self.metadata if start == 0 else rest
            piece = self.rows.slice(start, _MAX_ROWS).combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece.schema, options=_COMPRESSED) as writer:
                writer.write_table(piece)
            columns = [
                pa.array([self.table]),
                pa.array([metadata.to_json()]),
                pa.array([sink.getvalue().to_pybytes()], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=CHUNK)


def read_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    """Deserialize what `Chunk.to_batches` yields."""
    for batch in batches:
        tables, metadata = batch["table"].to_pylist(), batch["metadata"].to_pylist()
        for at, (table, text) in enumerate(zip(tables, metadata, strict=True)):
            rows = pa.ipc.open_stream(batch["rows"][at].as_buffer()).read_all()
            yield Chunk(table, rows, ChunkMetadata.from_json(text))
