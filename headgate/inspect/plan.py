"""What would happen if records of the newest registered schemas came now; nothing is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.config import PipelineConfig
from headgate.engine.land_table import RequestedChange
from headgate.formats.decoder import Refusal
from headgate.formats.decoders import Decoders
from headgate.inspect.ledger import open_ledger
from headgate.inspect.plan_gold import ComingTable, DerivedPlan, GoldStep, plan_gold
from headgate.inspect.plan_schemas import (
    Candidate,
    KnownTable,
    place_subjects,
    plan_columns,
    read_known_tables,
)
from headgate.inspect.schema import open_table
from headgate.inspect.schema_diff import REGISTRY_TIMEOUT, can_rewrite, change_record
from headgate.inspect.status import GrantsStatus, read_grants
from headgate.inspect.tables import map_parallel
from headgate.lake.tables import is_table, table_url
from headgate.notebook import ResultView
from headgate.registry.open import opened_registry
from headgate.registry.registry import SubjectVersion
from headgate.schema.changes import CreateTable, Outcome


@dataclass(frozen=True)
class UnusableSchema:
    """A schema that cannot decode any record, so that all of them would be quarantined."""

    schema: SubjectVersion
    tables: tuple[str, ...]
    """Tables that they would land in, as far as is known."""
    reason: str
    detail: str


@dataclass(frozen=True)
class TablePlan:
    """One table, and what the newest schemas would change in it."""

    table: str
    route: str | None
    exists: bool
    schemas: tuple[SubjectVersion, ...]
    """The newest of its subjects; empty if the registry no longer has them."""
    changes: tuple[RequestedChange, ...] = ()
    as_before: tuple[RequestedChange, ...] = ()
    """Changes that the contract would block again; the ledger has them already."""
    rewritten_bytes: int = 0
    """Size of the files that would be rewritten to widen columns."""
    columns: tuple[str, ...] = ()
    """Columns that it would have; empty if no schema asks for a change."""

    @property
    def is_created(self) -> bool:
        return any(
            isinstance(one.change, CreateTable) and one.change.outcome is Outcome.APPLIED
            for one in self.changes
        )

    def as_record(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in vars(self).items() if name != "columns"},
            "changes": [asked_record(one) for one in self.changes],
            "as_before": [asked_record(one) for one in self.as_before],
        }


@dataclass(frozen=True)
class PlanSummary:
    """The plan in numbers."""

    tables: int
    created: int
    changed: int
    kept_apart: int
    """Columns."""
    discarded: int
    """Fields whose values would be discarded."""
    quarantined: int
    """Fields and tables whose records would be quarantined."""
    refused: int
    """Schemas whose records would all be quarantined."""
    as_before: int
    derived_made: int = 0
    derived_rebuilt: int = 0


@dataclass(frozen=True)
class PipelinePlan(ResultView):
    """What would happen if records of the newest registered schemas came now."""

    pipeline: str
    tables: tuple[TablePlan, ...]
    unusable: tuple[UnusableSchema, ...]
    without_table: tuple[SubjectVersion, ...]
    """Schemas that no table has met, and whose table only their records name."""
    derived: tuple[DerivedPlan, ...] = ()
    """The declarations of `gold`."""
    grants: GrantsStatus | None = None
    """What is granted, as recorded or as the catalog says; None if nothing is or was declared."""

    @property
    def summary(self) -> PlanSummary:
        outcomes = [one.change.outcome for one in self._asked()]
        refused = {
            key
            for one in self._asked()
            if one.change.outcome is Outcome.REFUSED
            for key in one.schema_ids
        } | {one.schema.schema_id for one in self.unusable}
        return PlanSummary(
            tables=sum(one.exists for one in self.tables),
            created=sum(one.is_created for one in self.tables),
            changed=sum(one.exists and _is_changed(one) for one in self.tables),
            kept_apart=outcomes.count(Outcome.KEPT_APART),
            discarded=outcomes.count(Outcome.DISCARDED),
            quarantined=outcomes.count(Outcome.QUARANTINED),
            refused=len(refused),
            as_before=sum(len(one.as_before) for one in self.tables),
            derived_made=self._derived_to(GoldStep.MAKE),
            derived_rebuilt=self._derived_to(GoldStep.REBUILD),
        )

    @property
    def all_lands_as_it_is(self) -> bool:
        """Whether nothing would be refused, quarantined, discarded or kept apart."""
        applied = all(one.change.outcome is Outcome.APPLIED for one in self._asked())
        return applied and not self.unusable

    def as_record(self) -> dict[str, Any]:
        tables = [one.as_record() for one in self.tables]
        derived = [one.as_record() for one in self.derived]
        summary = asdict(self.summary)
        return {**vars(self), "summary": summary, "tables": tables, "derived": derived}

    def _derived_to(self, step: GoldStep) -> int:
        return sum(len(one.those_to(step)) for one in self.derived)

    def _asked(self) -> Iterator[RequestedChange]:
        for table in self.tables:
            yield from table.changes


def asked_record(asked: RequestedChange) -> dict[str, Any]:
    return {**change_record(asked.change), "schema_ids": list(asked.schema_ids)}


def _is_changed(table: TablePlan) -> bool:
    return any(one.change.outcome in (Outcome.APPLIED, Outcome.KEPT_APART) for one in table.changes)


def read_plan(pipeline: PipelineConfig, online: bool = False) -> PipelinePlan:
    """Plan tables and derived tables; change files carry their schemas, so that only derived
    tables can be planned for them. With `online`, ask the catalog about its grants, too."""
    ledger = open_ledger(pipeline)
    if pipeline.lands_changes:
        derived = plan_gold(pipeline, ledger.everything)
        return PipelinePlan(pipeline.name, (), (), (), derived, read_grants(pipeline, online))
    known = read_known_tables(pipeline, ledger.stream)
    with opened_registry(pipeline.schema_registry, REGISTRY_TIMEOUT) as registry:
        newest = registry.latest_versions()
        met = sorted({key for table in known.values() for key in table.met})
        subjects_of = map_parallel(registry.subjects_of, met)
        decoders = Decoders(registry)
        decoders.fetch(one.schema_id for one in newest)
        placed = place_subjects(pipeline, known, newest, subjects_of, decoders)
        planner = _SchemaPlanner(pipeline, known, decoders)
        names = sorted({*known, *placed.by_table})
        tables = map_parallel(
            lambda table: planner.table(table, placed.by_table.get(table, ())), names
        )
        unusable = planner.unusable(placed.by_table, placed.elsewhere)
    refused = {one.schema for one in unusable}
    within = _within(pipeline.max_tables, tables.values())
    coming = [ComingTable(one.table, one.route, one.columns, one.is_created) for one in within]
    return PipelinePlan(
        pipeline=pipeline.name,
        tables=within,
        unusable=unusable,
        without_table=tuple(one.version for one in placed.elsewhere if one.version not in refused),
        derived=plan_gold(pipeline, ledger.everything, coming),
        grants=read_grants(pipeline, online),
    )


@dataclass(frozen=True)
class _SchemaPlanner:
    """Plans the tables of one pipeline."""

    pipeline: PipelineConfig
    known: Mapping[str, KnownTable]
    decoders: Decoders

    def table(self, table: str, candidates: Sequence[Candidate]) -> TablePlan | None:
        """Return None for a table that does not exist and that no schema could create."""
        known = self.known.get(table) or KnownTable.unknown(table)
        exists = is_table(table_url(self.pipeline.lake, table))
        plan = TablePlan(table, known.route, exists, tuple(one.version for one in candidates))
        schemas = self._usable(known if exists else KnownTable.unknown(table), candidates)
        if not schemas:
            return plan if exists else None
        rules = self.pipeline.contract.for_table(table)
        opened = open_table(self.pipeline, table) if exists else None
        columns = None if opened is None else opened.schema
        planned, rewritten = plan_columns(known, columns, schemas, rules), 0
        if opened is not None and planned.widens:
            rewritten = opened.bytes
            if not can_rewrite(self.pipeline, table, rewritten):
                planned, rewritten = plan_columns(known, columns, schemas, rules, False), 0
        return replace(
            plan,
            changes=planned.changes,
            as_before=planned.as_before,
            rewritten_bytes=rewritten,
            columns=planned.columns,
        )

    def _usable(self, known: KnownTable, candidates: Iterable[Candidate]) -> dict[int, pa.Schema]:
        """Return the columns of all schemas that may ask for a change of the table."""
        found = {}
        for one in candidates:
            key = one.version.schema_id
            if key not in known.met or known.was_blocked(key):
                decoder = self.decoders.decoder(key, one.message)
                if not isinstance(decoder, Refusal):
                    found[key] = decoder.schema
        return found

    def unusable(
        self, by_table: Mapping[str, Sequence[Candidate]], elsewhere: Sequence[Candidate]
    ) -> tuple[UnusableSchema, ...]:
        tables: dict[Candidate, list[str]] = defaultdict(list)
        for table, candidates in sorted(by_table.items()):
            for one in candidates:
                tables[one].append(table)
        found = []
        for one in sorted({*tables, *elsewhere}, key=str):
            decoder = self.decoders.decoder(one.version.schema_id, one.message)
            if isinstance(decoder, Refusal):
                reason, detail = decoder.reason.value, decoder.detail
                found.append(UnusableSchema(one.version, tuple(tables[one]), reason, detail))
        return tuple(found)


def _within(most: int, plans: Iterable[TablePlan | None]) -> tuple[TablePlan, ...]:
    """Mark new tables beyond `max_tables` as quarantined, as their records would be."""
    tables = [one for one in plans if one is not None]
    room = most - sum(one.exists for one in tables)
    found = []
    for table in tables:
        made = [one for one in table.changes if _makes_table(one)]
        if made and room <= 0:
            beyond = [replace(one.change, outcome=Outcome.QUARANTINED) for one in made]
            asked = tuple(RequestedChange(one, made[0].schema_ids) for one in beyond)
            table = replace(table, changes=asked)
        room -= bool(made)
        found.append(table)
    return tuple(found)


def _makes_table(asked: RequestedChange) -> bool:
    return isinstance(asked.change, CreateTable) and asked.change.outcome is Outcome.APPLIED
