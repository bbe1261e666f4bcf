"""Which tables the schemas of a subject go to, as far as that can be told without a record."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from headgate.inspect.known_tables import KnownTable
from headgate.pipeline import Confluent, Kafka, Pipeline
from headgate.route.safe_name import is_nameable
from headgate.route.table_names import TableNames
from headgate.schema.decoder import FIRST_MESSAGE, Refusal
from headgate.schema.decoders import Decoders
from headgate.schema.registry import SubjectVersion

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
        if isinstance(text, Refusal) or text.kind != "PROTOBUF":
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
