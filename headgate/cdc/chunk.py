"""Rows on their way from the task that opened their file to the one that writes their table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from headgate.lake.staged import BlockedSchemaChange, ExpectationResult

CHUNK = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("told", pa.string()),
        pa.field("rows", pa.binary()),
    ]
)
CHUNK_DDL = "table string, told string, rows binary"

_MOST_ROWS = 50_000


@dataclass(frozen=True)
class Told:
    """What is told of rows beside them."""

    route: str | None = None
    lineages: tuple[str, ...] = ()
    withheld: tuple[BlockedSchemaChange, ...] = ()
    columns: tuple[str, ...] | None = None
    """All that the source table had, where the file says so."""
    error: tuple[str | None, ...] | None = None
    expectations: tuple[ExpectationResult, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Told:
        record = json.loads(text)
        withheld = tuple(
            BlockedSchemaChange(**{**one, "schema_ids": tuple(one["schema_ids"])})
            for one in record.pop("withheld")
        )
        error, columns = record.pop("error"), record.pop("columns")
        lineages = tuple(record.pop("lineages"))
        expectations = tuple(ExpectationResult(**one) for one in record.pop("expectations"))
        return cls(
            **record,
            lineages=lineages,
            withheld=withheld,
            columns=None if columns is None else tuple(columns),
            error=None if error is None else tuple(error),
            expectations=expectations,
        )


@dataclass(frozen=True)
class Chunk:
    """Rows of one table."""

    table: str
    rows: pa.Table
    told: Told = Told()

    def packed(self) -> Iterator[pa.RecordBatch]:
        """In pieces that no message between processes is too small for."""
        for start in range(0, max(1, len(self.rows)), _MOST_ROWS):
            told = self.told if start == 0 else Told(self.told.route, self.told.lineages)
            piece = self.rows.slice(start, _MOST_ROWS).combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece.schema) as writer:
                writer.write_table(piece)
            columns = [
                pa.array([self.table]),
                pa.array([told.to_json()]),
                pa.array([sink.getvalue().to_pybytes()], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=CHUNK)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    for batch in batches:
        tables, told = batch["table"].to_pylist(), batch["told"].to_pylist()
        for at, (table, text) in enumerate(zip(tables, told, strict=True)):
            rows = pa.ipc.open_stream(batch["rows"][at].as_buffer()).read_all()
            yield Chunk(table, rows, Told.from_json(text))
