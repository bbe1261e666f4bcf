"""What the driver tells the executors about a batch."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headgate.envelope.open_envelope import open_envelope
from headgate.envelope.opened import Envelope
from headgate.pipeline import Contract, Pipeline, Registry
from headgate.route.table_names import TableNames


@dataclass(frozen=True)
class StagingPlan:
    """Small, picklable, without secrets: those are read where they are used."""

    lake: str
    names: TableNames
    envelope: Envelope
    registry: Registry
    version: int
    known_tables: frozenset[str]
    max_tables: int
    max_record_bytes: int
    contract: Contract = field(default_factory=Contract)
    shapes: Mapping[str, bytes] = field(default_factory=dict)
    """The columns of tables that do not follow every schema, or that files had to be fitted to."""
    met: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The schemas that each table has met before."""
    only_tables: frozenset[str] | None = None
    """The tables that may be written, once it is known that not all can be."""

    @property
    def room(self) -> int:
        """How many tables may still be made."""
        return max(0, self.max_tables - len(self.known_tables))

    @classmethod
    def of(cls, pipeline: Pipeline, known_tables: frozenset[str] = frozenset()) -> StagingPlan:
        return cls(
            lake=pipeline.lake,
            names=TableNames.of(pipeline),
            envelope=open_envelope(pipeline.envelope),
            registry=pipeline.registry,
            version=0,
            known_tables=known_tables,
            max_tables=pipeline.max_tables,
            max_record_bytes=int(pipeline.max_record_bytes),
            contract=pipeline.contract,
        )

    def shape(self, table: str) -> pa.Schema | None:
        columns = self.shapes.get(table)
        return None if columns is None else pa.ipc.read_schema(pa.py_buffer(columns))

    def with_shapes(self, shapes: Mapping[str, pa.Schema]) -> StagingPlan:
        written = {table: shape.serialize().to_pybytes() for table, shape in shapes.items()}
        return replace(self, shapes={**self.shapes, **written})

    def new_file(self) -> str:
        return f"part-{self.version:09d}-{uuid.uuid4()}.parquet"

    def limited_to(self, new_tables: Sequence[str]) -> StagingPlan:
        return replace(self, only_tables=self.known_tables | frozenset(new_tables[: self.room]))

    def may_write(self, table: str, made: set[str]) -> bool:
        """Whether a task may write to this table, given those it has made itself."""
        if self.only_tables is not None:
            return table in self.only_tables
        return table in self.known_tables or table in made or len(made) < self.room
