"""Which tables the newest registered schemas belong to, and what they would change there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from headgate.config import Confluent, Kafka, Mode, PipelineConfig, Rules
from headgate.engine.land_table import RequestedChange, fit_files
from headgate.engine.plan import TableShape
from headgate.formats.decoder import MessageChoice, Refusal
from headgate.formats.decoders import Decoders
from headgate.inspect.schema_diff import payload_message
from headgate.lake.ledger_entries import Kind, SchemaEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot, record_change
from headgate.lake.names import TableNames
from headgate.lake.staged import StagedFile, encode_schema
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
    """A table according to the ledger."""

    table: str
    route: str | None
    """None if nothing has landed in it yet."""
    history: TableHistory
    blocked: frozenset[tuple[int, str, str, str]]
    """Changes blocked by the contract: schema, kind of change, column and outcome."""

    @classmethod
    def unknown(cls, table: str) -> KnownTable:
        return cls(table, None, TableHistory(), frozenset())

    @property
    def met(self) -> set[int]:
        return self.history.schema_ids

    def was_blocked(self, schema_id: int) -> bool:
        """Return whether the contract blocked any change of that schema."""
        return any(one == schema_id for one, *_ in self.blocked)

    def is_recorded(self, schema_id: int, change: SchemaChange) -> bool:
        """Return whether the ledger has this change as blocked."""
        return (schema_id, change.kind, change.column, change.outcome.value) in self.blocked


def read_known_tables(pipeline: PipelineConfig, ledger: LedgerSnapshot) -> dict[str, KnownTable]:
    """Return the tables by name, also those that the contract did not allow to be created."""
    own = set(pipeline.own_tables.values())
    routes = {table: one.route for table, one in ledger.tables(Kind.TABLE).items()}
    history = SchemaHistory()
    for table, schema_ids in ledger.schema_ids().items():
        history.record(table, schema_ids)
    blocked: dict[str, set[tuple[int, str, str, str]]] = defaultdict(set)
    for row in ledger.entries(SchemaEntry):
        entry = row.entry
        record_change(history, entry)
        if entry.outcome not in _IN_THE_TABLE:
            what = entry.change, entry.column, entry.outcome
            blocked[entry.table].update((one, *what) for one in entry.schema_ids)
    return {
        table: KnownTable(
            table, routes.get(table), history.of_table(table), frozenset(blocked[table])
        )
        for table in sorted({*routes, *history.tables} - own)
    }


_VALUE, _KEY = "-value", "-key"


@dataclass(frozen=True)
class Candidate:
    """A schema whose records would land in a table."""

    version: SubjectVersion
    message: MessageChoice


@dataclass(frozen=True)
class PlacedSchemas:
    """Schemas by table, and those whose table only their records name."""

    by_table: dict[str, list[Candidate]] = field(default_factory=lambda: defaultdict(list))
    elsewhere: list[Candidate] = field(default_factory=list)


def place_subjects(
    pipeline: PipelineConfig,
    known: Mapping[str, KnownTable],
    newest: Sequence[SubjectVersion],
    subjects_of: Mapping[int, Sequence[str]],
    decoders: Decoders,
) -> PlacedSchemas:
    """Assign schemas to tables: by name if the envelope routes by topic or record, else by what
    landed before."""
    placed = PlacedSchemas()
    by_history = _by_history(pipeline, known, subjects_of)
    for version in newest:
        if not _is_read(pipeline, version.subject):
            continue
        candidates = _by_name(pipeline, known, version, decoders)
        if not candidates:
            for table in by_history.get(version.subject, ()):
                route = known[table].route
                message = payload_message(pipeline, [route] if route else [version.subject])
                candidates.append((table, Candidate(version, message)))
        if not candidates:
            message = payload_message(pipeline, [version.subject])
            placed.elsewhere.append(Candidate(version, message))
        for table, candidate in candidates:
            placed.by_table[table].append(candidate)
    return placed


def _by_history(
    pipeline: PipelineConfig,
    known: Mapping[str, KnownTable],
    subjects_of: Mapping[int, Sequence[str]],
) -> dict[str, list[str]]:
    """Return the tables that have met a schema of a subject.

    A schema may be registered under many subjects; if one of them has the name of the table, the
    others belong to other tables.
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
    pipeline: PipelineConfig,
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
    return [(names.silver_for(topic), Candidate(version, payload_message(pipeline, [topic])))]


def _by_record(
    pipeline: PipelineConfig,
    known: Mapping[str, KnownTable],
    version: SubjectVersion,
    decoders: Decoders,
) -> list[tuple[str, Candidate]]:
    """Assign the first message of a schema, and any other whose table exists."""
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


def _is_read(pipeline: PipelineConfig, subject: str) -> bool:
    """Return whether the pipeline may meet schemas of a subject: keys are not decoded, and topics
    outside the source are not read."""
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
    except re.error:  # a pattern that only Java can compile
        return True


@dataclass(frozen=True)
class PlannedColumns:
    """Changes that would be new, and those that would be blocked again."""

    changes: tuple[RequestedChange, ...] = ()
    as_before: tuple[RequestedChange, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns that the table would have."""

    @property
    def widens(self) -> bool:
        return any(
            isinstance(one.change, WidenType) and one.change.outcome is Outcome.APPLIED
            for one in self.changes
        )


def plan_columns(
    known: KnownTable,
    columns: pa.Schema | None,
    schemas: Mapping[int, pa.Schema],
    rules: Rules,
    may_widen: bool = True,
) -> PlannedColumns:
    """Plan with the functions that land; `columns` is None if the table does not exist yet."""
    if columns is None and rules.tables is not Mode.EVOLVE:
        return _only_new(known, _without_table(known.table, schemas, rules))
    history = known.history if columns is not None else TableHistory()
    new = {key: schemas[key] for key in sorted(schemas.keys() - history.schema_ids)}
    shape = columns if columns is not None else schemas[min(schemas)]
    withheld = [
        RequestedChange(change, (key,))
        for key, schema in new.items()
        for change in fit(schema, shape, rules).blocked
    ]
    refused = {one.schema_ids[0] for one in withheld if one.change.outcome is Outcome.REFUSED}
    landing = {key: schema for key, schema in new.items() if key not in refused}
    fitted = fit_files(
        known.table,
        _unwritten(known.table, landing),
        columns,
        TableShape(ORIGIN),
        history,
        rules,
        may_widen,
    )
    asked = [*fitted.changes, *withheld] if landing else withheld
    for key in sorted(schemas.keys() - new.keys()):
        again = fit(schemas[key], fitted.schema, rules, may_widen)
        asked += [
            RequestedChange(one, (key,)) for one in again.changes if one.decided_by is not None
        ]
    there = columns is not None or bool(landing)
    return _only_new(known, asked, fitted.schema.names if there else ())


def _without_table(
    table: str, schemas: Mapping[int, pa.Schema], rules: Rules
) -> list[RequestedChange]:
    return [
        RequestedChange(with_outcome(CreateTable(table, len(schema)), rules), (key,))
        for key, schema in sorted(schemas.items())
    ]


def _unwritten(table: str, schemas: Mapping[int, pa.Schema]) -> list[StagedFile]:
    """Return a staged file with the columns that records of these schemas would have."""
    columns = ORIGIN.serialize().to_pybytes()
    texts = {str(key): encode_schema(schema) for key, schema in schemas.items()}
    return [StagedFile(table, "", 0, 0, "", columns, None, tuple(schemas), new_schemas=texts)]


def _only_new(
    known: KnownTable, asked: Sequence[RequestedChange], columns: Iterable[str] = ()
) -> PlannedColumns:
    """Separate what the ledger has already, because each schema is reported once."""
    worth = [one for one in asked if not isinstance(one.change, SameColumns)]
    before = [
        one for one in worth if all(known.is_recorded(key, one.change) for key in one.schema_ids)
    ]
    new = tuple(one for one in worth if one not in before)
    return PlannedColumns(new, tuple(before), tuple(columns))
