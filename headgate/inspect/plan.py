"""What would happen if the newest registered schemas came now; nothing is written."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pyarrow as pa

from headgate.config import Confluent, Kafka, Mode, Pipeline, Rules
from headgate.engine.land_table import Asked, fit_files
from headgate.formats.decoder import FIRST_MESSAGE, Refusal
from headgate.formats.decoders import Decoders
from headgate.inspect.ask_registry import asked_registry, side_by_side
from headgate.inspect.ledger import LedgerRows
from headgate.inspect.plan_gold import plan_gold
from headgate.inspect.planned import Plan, TablePlan, UnusableSchema
from headgate.inspect.schema import open_table
from headgate.inspect.schema_diff import can_rewrite
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedFile, written
from headgate.lake.tables import size_of
from headgate.registry.registry import SubjectVersion
from headgate.schema.changes import (
    CreateTable,
    Outcome,
    SameColumns,
    SchemaChange,
    SchemaHistory,
    TableHistory,
    WidenType,
)
from headgate.schema.fit import fit, with_outcome
from headgate.schema.names import is_nameable
from headgate.schema.origin import ORIGIN

_IN_THE_TABLE = (Outcome.APPLIED, Outcome.KEPT_APART)


@dataclass(frozen=True)
class KnownTable:
    """What the ledger tells of one table."""

    table: str
    route: str | None
    """None where nothing has landed in it yet."""
    history: TableHistory
    withheld: frozenset[tuple[int, str, str, str]]
    """What the contract has kept out of it: schema, kind of change, column and outcome."""

    @classmethod
    def unheard_of(cls, table: str) -> KnownTable:
        return cls(table, None, TableHistory(), frozenset())

    @property
    def met(self) -> set[int]:
        return self.history.schema_ids

    def asked_in_vain(self, schema_id: int) -> bool:
        """Whether a contract kept anything of that schema out of the table."""
        return any(one == schema_id for one, *_ in self.withheld)

    def was_told(self, schema_id: int, change: SchemaChange) -> bool:
        """Whether the ledger has just that already."""
        return (schema_id, change.kind, change.column, change.outcome.value) in self.withheld


def read_known_tables(ledger: LedgerRows) -> dict[str, KnownTable]:
    """By name; also those that the contract did not let come to be."""
    landed = ledger.query(
        f"""
        SELECT "table", max(route) AS route, detail FROM ledger
        WHERE kind = 'table' AND {ledger.silver_only} GROUP BY "table", detail
        """
    )
    told = ledger.query(
        f"""
        SELECT "table", detail FROM ledger
        WHERE kind = 'schema' AND {ledger.silver_only} ORDER BY version
        """
    )
    routes = {row["table"]: row["route"] for row in landed}
    histories = SchemaHistory.of(told).tables
    for row in landed:
        history = histories.setdefault(row["table"], TableHistory())
        history.schema_ids.update(json.loads(row["detail"])["schema_ids"])
    withheld: dict[str, set[tuple[int, str, str, str]]] = defaultdict(set)
    for row in told:
        detail = json.loads(row["detail"])
        if detail["outcome"] not in _IN_THE_TABLE:
            what = detail["change"], detail["column"], detail["outcome"]
            withheld[row["table"]].update((one, *what) for one in detail["schema_ids"])
    return {
        table: KnownTable(table, routes.get(table), history, frozenset(withheld[table]))
        for table, history in histories.items()
    }


_VALUE, _KEY = "-value", "-key"


@dataclass(frozen=True)
class Candidate:
    """A schema whose records a table would get."""

    version: SubjectVersion
    message: tuple[int, ...] = FIRST_MESSAGE


@dataclass(frozen=True)
class Placed:
    """Schemas by table, and those whose table is named by the records alone."""

    by_table: dict[str, list[Candidate]] = field(default_factory=lambda: defaultdict(list))
    elsewhere: list[SubjectVersion] = field(default_factory=list)


def place_subjects(
    pipeline: Pipeline,
    known: Mapping[str, KnownTable],
    newest: Sequence[SubjectVersion],
    subjects_of: Mapping[int, Sequence[str]],
    decoders: Decoders,
) -> Placed:
    """By name, where the envelope routes by topic or by record; else by what landed before."""
    placed = Placed()
    by_history = _by_history(pipeline, known, subjects_of)
    for version in newest:
        if not _is_read(pipeline, version.subject):
            continue
        candidates = _by_name(pipeline, known, version, decoders)
        if not candidates:
            tables = by_history.get(version.subject, ())
            candidates = [(table, Candidate(version)) for table in tables]
        if not candidates:
            placed.elsewhere.append(version)
        for table, candidate in candidates:
            placed.by_table[table].append(candidate)
    return placed


def _by_history(
    pipeline: Pipeline, known: Mapping[str, KnownTable], subjects_of: Mapping[int, Sequence[str]]
) -> dict[str, list[str]]:
    """The tables that have met a schema of a subject.

    One schema may be registered under many subjects; where one of them is called like the table,
    the others are those of other tables.
    """
    names = TableNames.of(pipeline)
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for table in known.values():
        for schema_id in table.met:
            subjects = subjects_of.get(schema_id, ())
            own = [
                subject
                for subject in subjects
                if table.table in {names.silver_for(each) for each in _routes(subject)}
            ]
            for subject in own or subjects:
                found[subject][table.table] = None
    return {subject: sorted(tables) for subject, tables in found.items()}


def _routes(subject: str) -> Iterable[str]:
    return filter(is_nameable, {subject, subject.removesuffix(_VALUE)})


def _by_name(
    pipeline: Pipeline,
    known: Mapping[str, KnownTable],
    version: SubjectVersion,
    decoders: Decoders,
) -> list[tuple[str, Candidate]]:
    envelope, names = pipeline.envelope, TableNames.of(pipeline)
    if not isinstance(envelope, Confluent):
        return []
    if envelope.route == "record":
        return _by_record(pipeline, known, version, decoders)
    topic = version.subject.removesuffix(_VALUE)
    if topic == version.subject or not is_nameable(topic):
        return []
    return [(names.silver_for(topic), Candidate(version))]


def _by_record(
    pipeline: Pipeline,
    known: Mapping[str, KnownTable],
    version: SubjectVersion,
    decoders: Decoders,
) -> list[tuple[str, Candidate]]:
    """The first message of a schema is a record; a further one, where there is its table."""
    found: list[tuple[str, Candidate]] = []
    for index in count():
        decoder = decoders.decoder(version.schema_id, (index,))
        if isinstance(decoder, Refusal):
            break
        table = TableNames.of(pipeline).silver_for(decoder.record_name)
        if index == 0 or table in known:
            found.append((table, Candidate(version, (index,))))
        text = decoders.text(version.schema_id)
        if isinstance(text, Refusal) or text.schema_type != "PROTOBUF":
            break
    return found


def _is_read(pipeline: Pipeline, subject: str) -> bool:
    """Whether the pipeline may meet schemas of that name: keys are not opened, and a topic that
    is not read has no records."""
    if not isinstance(pipeline.envelope, Confluent):
        return True
    source, topic = pipeline.source, subject.removesuffix(_VALUE)
    if subject.endswith(_KEY):
        return False
    if topic == subject or not isinstance(source, Kafka):
        return True
    if source.pattern is None:
        return topic in source.topics
    try:
        return re.fullmatch(source.pattern, topic) is not None
    except re.error:  # a pattern that only Java understands
        return True


@dataclass(frozen=True)
class PlannedColumns:
    """What would be new, and what would be withheld as it was before."""

    changes: tuple[Asked, ...] = ()
    as_before: tuple[Asked, ...] = ()
    columns: tuple[str, ...] = ()
    """Those that the table would have."""

    @property
    def widens(self) -> bool:
        return any(
            isinstance(one.change, WidenType) and one.change.outcome is Outcome.APPLIED
            for one in self.changes
        )


def plan_table(
    known: KnownTable,
    columns: pa.Schema | None,
    schemas: Mapping[int, pa.Schema],
    rules: Rules,
    may_widen: bool = True,
) -> PlannedColumns:
    """By the very functions that land; `columns` is None where there is no such table yet."""
    if columns is None and rules.tables is not Mode.EVOLVE:
        return _told_apart(known, _without_table(known.table, schemas, rules))
    history = known.history if columns is not None else TableHistory()
    new = {key: schemas[key] for key in sorted(schemas.keys() - history.schema_ids)}
    shape = columns if columns is not None else schemas[min(schemas)]
    withheld = [
        Asked(change, (key,))
        for key, schema in new.items()
        for change in fit(schema, shape, rules).blocked
    ]
    refused = {one.schema_ids[0] for one in withheld if one.change.outcome is Outcome.REFUSED}
    landing = {key: schema for key, schema in new.items() if key not in refused}
    fitted = fit_files(
        known.table, _unwritten(known.table, landing), columns, ORIGIN, history, rules, may_widen
    )
    asked = [*fitted.asked, *withheld] if landing else withheld
    for key in sorted(schemas.keys() - new.keys()):
        again = fit(schemas[key], fitted.schema, rules, may_widen)
        asked += [Asked(one, (key,)) for one in again.changes if one.decided_by is not None]
    there = columns is not None or bool(landing)
    return _told_apart(known, asked, fitted.schema.names if there else ())


def _without_table(table: str, schemas: Mapping[int, pa.Schema], rules: Rules) -> list[Asked]:
    return [
        Asked(with_outcome(CreateTable(table, len(schema)), rules), (key,))
        for key, schema in sorted(schemas.items())
    ]


def _unwritten(table: str, schemas: Mapping[int, pa.Schema]) -> list[StagedFile]:
    """A file as records of these schemas would bring it, as far as columns are concerned."""
    columns = ORIGIN.serialize().to_pybytes()
    texts = {str(key): written(schema) for key, schema in schemas.items()}
    return [StagedFile(table, "", 0, 0, "", columns, None, tuple(schemas), new_schemas=texts)]


def _told_apart(
    known: KnownTable, asked: Sequence[Asked], columns: Iterable[str] = ()
) -> PlannedColumns:
    """Each schema is told of once: what the ledger has already is nothing new."""
    worth = [one for one in asked if not isinstance(one.change, SameColumns)]
    before = [
        one for one in worth if all(known.was_told(key, one.change) for key in one.schema_ids)
    ]
    new = tuple(one for one in worth if one not in before)
    return PlannedColumns(new, tuple(before), tuple(columns))


def read_plan(pipeline: Pipeline) -> Plan:
    """Change files bring their schemas along: there, only derived tables can be planned."""
    ledger = LedgerRows(pipeline)
    if pipeline.lands_changes:
        return Plan(pipeline.name, (), (), (), plan_gold(pipeline, ledger))
    known = read_known_tables(ledger)
    with asked_registry(pipeline) as registry:
        newest = registry.latest_versions()
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
