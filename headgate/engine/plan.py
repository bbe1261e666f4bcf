"""What the driver tells the executors about a batch, whatever its records are."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headgate.config import Contract
from headgate.engine.expectations import Rule
from headgate.lake.staged import StagedFile
from headgate.schema.fit import fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def contested_shapes(files: Iterable[StagedFile], plan: BatchPlan) -> dict[str, pa.Schema]:
    """For each new table that does not follow every schema: the columns of its oldest one.

    Each task takes the oldest schema that it meets; told the columns, all take the same.
    """
    new: dict[str, dict[int, pa.Schema]] = defaultdict(dict)
    for file in files:
        if file.table not in plan.shapes and plan.contract.for_table(file.table).strict:
            new[file.table].update(file.met)
    chosen = {}
    for table, schemas in new.items():
        oldest = schemas[min(schemas)] if schemas else None
        rules = plan.contract.for_table(table)
        if oldest and any(fit(one, oldest, rules).blocked for one in schemas.values()):
            chosen[table] = oldest
    return chosen


@dataclass(frozen=True)
class TableShape:
    """What is settled before the first file comes."""

    first_columns: pa.Schema
    """Columns that it has from the start, whether a file has them or not."""
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchPlan(ABC):
    """Small, picklable, without secrets: those are read where they are used."""

    lake: str
    version: int = 0
    known_tables: frozenset[str] = frozenset()
    max_tables: int
    contract: Contract = field(default_factory=Contract)
    expect: tuple[Rule, ...] = ()
    shapes: Mapping[str, bytes] = field(default_factory=dict)
    """The columns of tables that do not follow every schema, or that files had to be fitted to."""
    met: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The schemas that each table has met before."""
    only_tables: frozenset[str] | None = None
    """The tables that may be written, once it is known that not all can be."""
    began: float = 0
    """When the batch began, in milliseconds."""
    from_quarantine: bool = False
    """Whether the records are rows of the quarantine: each of them stays there or lands."""

    @property
    @abstractmethod
    def own_tables(self) -> Mapping[str, TableShape]:
        """Tables that are not of a route: what is put aside, what is kept as it came."""

    @property
    @abstractmethod
    def first_columns(self) -> pa.Schema:
        """What every table of a route has from the start."""

    @property
    @abstractmethod
    def quarantine(self) -> str: ...

    @property
    @abstractmethod
    def ledger(self) -> str: ...

    @property
    def bronze(self) -> str | None:
        """The table of records as they came, where there is one."""
        return None

    @abstractmethod
    def tables_in_lake(self) -> frozenset[str]:
        """Those of routes that are there already."""

    @abstractmethod
    def names_of_route(self, route: str) -> Collection[str]:
        """What a person may call a route, beside itself: the tables that are made of it."""

    @abstractmethod
    def forget(self) -> None:
        """What was learnt elsewhere may have changed since: ask anew."""

    def with_committed(self, files: Sequence[StagedFile]) -> Self:
        """Return the plan of batches after these files were committed."""
        return self

    def with_pending(self, files: Iterable[StagedFile]) -> Self:
        """Return the plan of a batch while these files wait for their tables."""
        return self

    @abstractmethod
    def job(self, rows: DataFrame) -> DataFrame:
        """Return the one Spark job of a batch: rows of the source in, a row per file out."""

    @abstractmethod
    def stage(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Records in, files out: the whole of a batch, in this process."""

    def reconsidered(self, files: Sequence[StagedFile]) -> Self | None:
        """Another plan, where tasks chose without knowing of each other: which tables there is
        room for, and what the columns of new ones are."""
        again = self
        if self.only_tables is None:
            new = sorted({file.table for file in files} - self.known_tables - set(self.own_tables))
            crowded = any("too_many_tables" in (file.reasons or ()) for file in files)
            if len(new) > self.room or (crowded and len(new) < self.room):
                again = again.limited_to(new)
        if chosen := contested_shapes(files, self):
            again = again.with_shapes(chosen)
        return None if again is self else again

    def table_shape(self, table: str) -> TableShape:
        return self.own_tables.get(table) or TableShape(self.first_columns)

    @property
    def room(self) -> int:
        """How many tables may still be made."""
        return max(0, self.max_tables - len(self.known_tables))

    def shape(self, table: str) -> pa.Schema | None:
        columns = self.shapes.get(table)
        return None if columns is None else pa.ipc.read_schema(pa.py_buffer(columns))

    def with_shapes(self, shapes: Mapping[str, pa.Schema]) -> Self:
        written = {table: shape.serialize().to_pybytes() for table, shape in shapes.items()}
        return replace(self, shapes={**self.shapes, **written})

    def new_file(self) -> str:
        return f"part-{self.version:09d}-{uuid.uuid4()}.parquet"

    def limited_to(self, new_tables: Sequence[str]) -> Self:
        return replace(self, only_tables=self.known_tables | frozenset(new_tables[: self.room]))

    def may_write(self, table: str, made: set[str]) -> bool:
        """Whether a task may write to this table, given those it has made itself."""
        if self.only_tables is not None:
            return table in self.only_tables
        return table in self.known_tables or table in made or len(made) < self.room
