"""What would happen if the newest registered schemas came now; nothing is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headgate.inspect.ask_registry import asked_registry, side_by_side
from headgate.inspect.known_tables import KnownTable, read_known_tables
from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.place_subjects import Candidate, place_subjects
from headgate.inspect.plan_gold import plan_gold
from headgate.inspect.plan_table import plan_table
from headgate.inspect.planned import Plan, TablePlan, UnusableSchema
from headgate.inspect.rewriting import can_rewrite
from headgate.inspect.table_schema import open_table
from headgate.land.commit_with_delta_rs import size_of
from headgate.land.fit_files import Asked
from headgate.pipeline import ChangePipeline, Pipeline
from headgate.schema.change import CreateTable, Outcome
from headgate.schema.decoder import Refusal
from headgate.schema.decoders import Decoders
from headgate.schema.registry import SubjectVersion


def read_plan(pipeline: Pipeline | ChangePipeline) -> Plan:
    """Change files bring their schemas along: there, only derived tables can be planned."""
    ledger = LedgerRows(pipeline)
    if isinstance(pipeline, ChangePipeline):
        return Plan(pipeline.name, (), (), (), plan_gold(pipeline, ledger))
    known = read_known_tables(ledger)
    with asked_registry(pipeline) as registry:
        newest = registry.all_newest()
        met = sorted({key for table in known.values() for key in table.met})
        subjects_of = side_by_side(registry.subjects_of, met)
        decoders = Decoders(registry)
        decoders.fetch(one.schema_id for one in newest)
        placed = place_subjects(pipeline, known, newest, subjects_of, decoders)
        planning = _Planning(pipeline, known, decoders)
        names = sorted({*known, *placed.by_table})
        tables = side_by_side(
            lambda table: planning.table(table, placed.by_table.get(table, ())), names
        )
        unusable = planning.unusable(placed.by_table, placed.elsewhere)
    refused = {one.schema for one in unusable}
    within = _within(pipeline.max_tables, tables.values())
    return Plan(
        pipeline=pipeline.name,
        tables=within,
        unusable=unusable,
        without_table=tuple(one for one in placed.elsewhere if one not in refused),
        derived=plan_gold(pipeline, ledger, within),
    )


@dataclass(frozen=True)
class _Planning:
    """What all tables have in common."""

    pipeline: Pipeline
    known: Mapping[str, KnownTable]
    decoders: Decoders

    def table(self, table: str, candidates: Sequence[Candidate]) -> TablePlan | None:
        """None for a table that is not there and that nothing could make."""
        known = self.known.get(table) or KnownTable.unheard_of(table)
        exists = Path(self.pipeline.lake, table, "_delta_log").is_dir()
        plan = TablePlan(table, known.route, exists, tuple(one.version for one in candidates))
        schemas = self._usable(known if exists else KnownTable.unheard_of(table), candidates)
        if not schemas:
            return plan if exists else None
        rules = self.pipeline.contract.for_table(table)
        opened = open_table(self.pipeline, table) if exists else None
        columns = None if opened is None else pa.schema(opened.schema())
        planned, rewritten = plan_table(known, columns, schemas, rules), 0
        if opened is not None and planned.widens:
            rewritten = size_of(opened)
            if not can_rewrite(self.pipeline, table, rewritten):
                planned, rewritten = plan_table(known, columns, schemas, rules, False), 0
        return replace(
            plan,
            changes=planned.changes,
            as_before=planned.as_before,
            rewritten_bytes=rewritten,
            columns=planned.columns,
        )

    def _usable(self, known: KnownTable, candidates: Iterable[Candidate]) -> dict[int, pa.Schema]:
        """The columns of all schemas that may ask something of the table."""
        found = {}
        for one in candidates:
            key = one.version.schema_id
            if key not in known.met or known.asked_in_vain(key):
                decoder = self.decoders.decoder(key, one.message)
                if not isinstance(decoder, Refusal):
                    found[key] = decoder.schema
        return found

    def unusable(
        self, by_table: Mapping[str, Sequence[Candidate]], elsewhere: Sequence[SubjectVersion]
    ) -> tuple[UnusableSchema, ...]:
        tables: dict[SubjectVersion, list[str]] = defaultdict(list)
        for table, candidates in sorted(by_table.items()):
            for one in candidates:
                tables[one.version].append(table)
        found = []
        for version in sorted({*tables, *elsewhere}, key=str):
            decoder = self.decoders.decoder(version.schema_id)
            if isinstance(decoder, Refusal):
                reason, detail = decoder.reason.value, decoder.detail
                found.append(UnusableSchema(version, tuple(tables[version]), reason, detail))
        return tuple(found)


def _within(most: int, plans: Iterable[TablePlan | None]) -> tuple[TablePlan, ...]:
    """Records of tables that would pass `max_tables` are quarantined."""
    tables = [one for one in plans if one is not None]
    room = most - sum(one.exists for one in tables)
    found = []
    for table in tables:
        made = [one for one in table.changes if _makes_table(one)]
        if made and room <= 0:
            beyond = [replace(one.change, outcome=Outcome.QUARANTINED) for one in made]
            asked = tuple(Asked(one, made[0].schema_ids) for one in beyond)
            table = replace(table, changes=asked)
        room -= bool(made)
        found.append(table)
    return tuple(found)


def _makes_table(asked: Asked) -> bool:
    return isinstance(asked.change, CreateTable) and asked.change.outcome is Outcome.APPLIED
