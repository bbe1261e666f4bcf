"""The plan of a batch: what tasks need to know to stage records of any kind."""

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
from headgate.engine.follow_up import TableChanged
from headgate.engine.task_results import RESULT_DDL
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import staged_prefix
from headgate.schema.fit import fit
from headgate.schema.origin import ORIGIN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def conflicting_schemas(files: Iterable[StagedFile], plan: BatchPlan) -> dict[str, pa.Schema]:
    """Return columns for new tables with a strict contract where tasks chose different ones.

    Each task takes the columns of the oldest schema among its own records. With the columns in the
    plan, which are those of the oldest schema of the batch, all tasks use the same.
    """
    new: dict[str, dict[int, pa.Schema]] = defaultdict(dict)
    for file in files:
        if file.table not in plan.shapes and plan.contract.for_table(file.table).strict:
            new[file.table].update(file.schemas_by_id)
    chosen = {}
    for table, schemas in new.items():
        oldest = schemas[min(schemas)] if schemas else None
        rules = plan.contract.for_table(table)
        if oldest and any(fit(one, oldest, rules).blocked for one in schemas.values()):
            chosen[table] = oldest
    return chosen


@dataclass(frozen=True)
class TableShape:
    """The initial columns and the partitioning of a table."""

    first_columns: pa.Schema
    """Columns of the table from its creation, even if no file has them."""
    partition_by: tuple[str, ...] = ()
    own_columns: frozenset[str] = ORIGIN_COLUMNS
    """Names of all columns that Headgate adds to the source's; the source never drops them."""
    is_compacted: bool = False
    """Whether every batch adds a small file, so that Headgate compacts the table."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan(ABC):
    """The plan of a batch, sent to the executors.

    It is small and picklable, and has no secrets: those are read where they are used.
    """

    lake: str
    version: int = 0
    writer: str = ""
    """Part of the names of staged files, different for each pipeline of a lake."""
    known_tables: frozenset[str] = frozenset()
    max_tables: int
    contract: Contract = field(default_factory=Contract)
    expect: tuple[Rule, ...] = ()
    shapes: Mapping[str, bytes] = field(default_factory=dict)
    """Columns of tables with a strict contract, and of those whose files were refitted, as IPC."""
    seen_schema_ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Schemas of earlier records of each table."""
    only_tables: frozenset[str] | None = None
    """The only tables that may be written, if `max_tables` does not allow all of them."""
    began: float = 0
    """Start of the batch, in milliseconds since the epoch."""
    from_quarantine: bool = False
    """Whether the records come from the quarantine: each of them lands or stays there."""

    @property
    @abstractmethod
    def own_tables(self) -> Mapping[str, TableShape]:
        """Tables of the pipeline itself, such as the quarantine and bronze."""

    @property
    @abstractmethod
    def first_columns(self) -> pa.Schema:
        """Columns of every route's table from its creation."""

    @property
    @abstractmethod
    def quarantine(self) -> str: ...

    @property
    @abstractmethod
    def ledger(self) -> str: ...

    @property
    def bronze(self) -> str | None:
        """Table of raw payloads, if the pipeline has one."""
        return None

    @abstractmethod
    def tables_in_lake(self) -> frozenset[str]:
        """Return the existing tables of routes."""

    @abstractmethod
    def names_of_route(self, route: str) -> Collection[str]:
        """Return other names by which a user may refer to a route: those of its tables."""

    @abstractmethod
    def forget(self) -> None:
        """Drop cached schemas, so that the registry is queried again."""

    def with_committed(self, tables: Sequence[TableChanged]) -> Self:
        """Return the plan of batches after files were committed to these tables."""
        return self

    def source_of(self, table: str) -> object | None:
        """Return what is known of the source of a table, for follow-ups."""
        return None

    def with_pending(self, files: Iterable[StagedFile]) -> Self:
        """Return the plan of a batch while these files are pending."""
        return self

    def job(self, rows: DataFrame, tasks: int) -> DataFrame:
        """Return the one Spark job of a batch, from rows of the source to a row per staged file."""
        return rows.mapInArrow(self.stage, RESULT_DDL)

    @abstractmethod
    def stage(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage records in this process, and return a row per file."""

    def replan(self, files: Sequence[StagedFile]) -> Self | None:
        """Return a new plan if tasks made choices that conflict; None if the files can land.

        Tasks do not know of each other when they choose which tables to create, and with which
        columns.
        """
        plan = self
        if self.only_tables is None:
            new = sorted({file.table for file in files} - self.known_tables - set(self.own_tables))
            over_limit = any("too_many_tables" in (file.reasons or ()) for file in files)
            if len(new) > self.remaining_tables or (
                over_limit and len(new) < self.remaining_tables
            ):
                plan = plan.limited_to(new)
        if chosen := conflicting_schemas(files, self):
            plan = plan.with_shapes(chosen)
        return None if plan is self else plan

    def table_shape(self, table: str) -> TableShape:
        return self.own_tables.get(table) or TableShape(self.first_columns)

    @property
    def remaining_tables(self) -> int:
        """Number of tables that may still be created."""
        return max(0, self.max_tables - len(self.known_tables))

    def shape(self, table: str) -> pa.Schema | None:
        columns = self.shapes.get(table)
        return None if columns is None else pa.ipc.read_schema(pa.py_buffer(columns))

    def with_shapes(self, shapes: Mapping[str, pa.Schema]) -> Self:
        encoded = {table: shape.serialize().to_pybytes() for table, shape in shapes.items()}
        return replace(self, shapes={**self.shapes, **encoded})

    def new_file(self) -> str:
        return f"{staged_prefix(self.writer, self.version)}{uuid.uuid4()}.parquet"

    def limited_to(self, new_tables: Sequence[str]) -> Self:
        allowed = new_tables[: self.remaining_tables]
        return replace(self, only_tables=self.known_tables | frozenset(allowed))

    def may_write(self, table: str, created: set[str]) -> bool:
        """Whether a task may write to a table, given the tables that it has created so far."""
        if self.only_tables is not None:
            return table in self.only_tables
        return (
            table in self.known_tables or table in created or len(created) < self.remaining_tables
        )
