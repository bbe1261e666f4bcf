"""What the driver tells the executors about a batch of a stream's records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.config import Pipeline, Registry
from headgate.engine.expectations import rules_of
from headgate.engine.plan import BatchPlan, TableShape
from headgate.engine.quarantined import QUARANTINE
from headgate.envelopes.open import open_envelope
from headgate.envelopes.opened import Envelope
from headgate.lake.names import TableNames
from headgate.schema.origin import ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BRONZE = pa.schema([pa.field("route", pa.string()), pa.field("payload", pa.binary()), *ORIGIN])


@dataclass(frozen=True, kw_only=True)
class StagingPlan(BatchPlan):
    """How records are opened, decoded and routed."""

    names: TableNames
    envelope: Envelope
    registry: Registry
    max_record_bytes: int

    @classmethod
    def of(cls, pipeline: Pipeline, known_tables: frozenset[str] = frozenset()) -> StagingPlan:
        return cls(
            lake=pipeline.lake,
            names=TableNames.of(pipeline),
            envelope=open_envelope(pipeline.envelope),
            registry=pipeline.schema_registry,
            known_tables=known_tables,
            max_tables=pipeline.max_tables,
            max_record_bytes=int(pipeline.max_record_bytes),
            contract=pipeline.contract,
            expect=rules_of(pipeline.expect),
        )

    @property
    def own_tables(self) -> Mapping[str, TableShape]:
        own = {self.names.quarantine: TableShape(QUARANTINE)}
        if self.names.bronze:
            own[self.names.bronze] = TableShape(_BRONZE, ("route",))
        return own

    @property
    def first_columns(self) -> pa.Schema:
        return ORIGIN

    @property
    def quarantine(self) -> str:
        return self.names.quarantine

    @property
    def ledger(self) -> str:
        return self.names.ledger

    @property
    def bronze(self) -> str | None:
        return self.names.bronze

    def tables_in_lake(self) -> frozenset[str]:
        return frozenset(self.names.silver_in(self.lake))

    def names_of_route(self, route: str) -> Collection[str]:
        return (self.names.silver_for(route),)

    def forget(self) -> None:
        from headgate.engine.stage import forget_schemas

        forget_schemas(self.registry)

    def job(self, rows: DataFrame) -> DataFrame:
        from headgate.engine.stage import STAGED_DDL

        return rows.mapInArrow(self.stage, STAGED_DDL)

    def stage(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.engine.stage import stage

        return stage(self, records)
