"""Removal of a pipeline: everything that it owns, listed first, then deleted.

The ledger goes last: what it records can be removed by another attempt if one is cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from headgate.catalog.open import open_catalog
from headgate.catalog.recorded import Recorded
from headgate.catalog.register import drop_entries
from headgate.config import Catalog, Kafka, PipelineConfig
from headgate.config.location import is_remote
from headgate.config.pipeline import FILES_TABLE
from headgate.engine.session import pipeline_session
from headgate.lake.layout import lock_all
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.storage import MAX_REQUESTS, delete_files, delete_folder, find_files
from headgate.lake.tables import table_url
from headgate.maintain import owned_tables
from headgate.registry.open import open_registry
from headgate.sources.kafka import delete_topics, topics_found


class Kind(StrEnum):
    """What a pipeline owns."""

    ENTRY = "catalog entry"
    TABLE = "table"
    CHECKPOINT = "checkpoint"
    NOTE = "note"
    TOPIC = "topic"
    SUBJECT = "subject"
    SOURCE = "source"

    @property
    def is_of_source(self) -> bool:
        """Whether it is what the pipeline reads, rather than what it has written."""
        return self in (Kind.TOPIC, Kind.SUBJECT, Kind.SOURCE)


@dataclass(frozen=True)
class Owned:
    """One thing that a pipeline owns."""

    kind: Kind
    name: str
    where: str
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Ownership:
    """All that a pipeline owns, in the order in which it is removed."""

    everything: tuple[Owned, ...]
    shared_with: tuple[str, ...] = ()
    """Other pipelines in the same ledger: it stays, and so does the quarantine."""

    def of(self, *kinds: Kind) -> list[Owned]:
        return [one for one in self.everything if one.kind in kinds]


def owned_by(pipeline: PipelineConfig, with_source: bool = False) -> Ownership:
    """Return what a pipeline owns; with its topics and subjects, or the folder that it reads."""
    ledger = LedgerSnapshot.open(pipeline.lake, pipeline.ledger, pipeline.name)
    own = {*ledger.streams, f"{pipeline.name}:replay"}
    others = tuple(name for name in ledger.all_names() if name not in own)
    tables = owned_tables(pipeline)
    may_be_shared = (FILES_TABLE, pipeline.quarantine_table, pipeline.ledger)
    last = [name for name in may_be_shared if name in tables]
    landed = [name for name in tables if name not in last]
    found = [
        *_entries(pipeline, pipeline.catalog),
        *_folders(Kind.TABLE, [(name, table_url(pipeline.lake, name)) for name in landed]),
        *_folders(Kind.CHECKPOINT, _checkpoints(pipeline, ledger)),
        *_notes(pipeline, own),
    ]
    if not others:
        found += _folders(Kind.TABLE, [(name, table_url(pipeline.lake, name)) for name in last])
    if with_source:
        found += _source(pipeline)
    return Ownership(tuple(found), others)


def remove(
    pipeline: PipelineConfig,
    owned: Sequence[Owned],
    on_removed: Callable[[Owned], None] = lambda _: None,
) -> None:
    """Remove what was chosen. Raises if the pipeline is running."""
    with lock_all(pipeline):
        entries = [one for one in owned if one.kind is Kind.ENTRY]
        if entries and pipeline.catalog is not None:
            _drop(pipeline, pipeline.catalog, entries)
        for one in entries:
            on_removed(one)
        notes = [one.name for one in owned if one.kind is Kind.NOTE]
        for one in owned:
            if one.kind in (Kind.TABLE, Kind.CHECKPOINT, Kind.SOURCE):
                delete_folder(one.where)
            elif one.kind is Kind.TOPIC and isinstance(pipeline.source, Kafka):
                delete_topics(pipeline.source, [one.name])
            elif one.kind is Kind.SUBJECT:
                with closing(open_registry(pipeline.schema_registry)) as registry:
                    registry.delete(one.name)
            if one.kind is not Kind.ENTRY:
                on_removed(one)
    # After the locks are given back, which are notes, too.
    delete_files(f"{pipeline.lake}/_staged", notes)
    folders = [f"{pipeline.lake}/_staged", f"{pipeline.lake}/_checkpoints", pipeline.lake]
    if pipeline.registry is not None and pipeline.registry.folder is not None:
        folders.append(pipeline.registry.folder)
    for folder in folders:
        if not is_remote(folder) and not find_files(folder):
            delete_folder(folder)


def _entries(pipeline: PipelineConfig, catalog: Catalog | None) -> list[Owned]:
    if catalog is None:
        return []
    registered = sorted(Recorded.of(pipeline, catalog).registered)
    return [Owned(Kind.ENTRY, name, catalog.name_of(name)) for name in registered]


def _drop(pipeline: PipelineConfig, catalog: Catalog, entries: Sequence[Owned]) -> None:
    with open_catalog(pipeline_session(pipeline), catalog) as opened:
        drop_entries(opened, pipeline.lake, [one.name for one in entries])


def _folders(kind: Kind, folders: Sequence[tuple[str, str]]) -> list[Owned]:
    """Return folders that exist, with the number and the size of their files."""

    def measured(folder: tuple[str, str]) -> Owned:
        name, where = folder
        files = find_files(where)
        return Owned(kind, name, where, len(files), sum(file.size for file in files))

    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        return [one for one in pool.map(measured, folders) if one.files]


def _checkpoints(pipeline: PipelineConfig, ledger: LedgerSnapshot) -> list[tuple[str, str]]:
    suffixes = [stream.removeprefix(pipeline.name) for stream in ledger.streams]
    return [(f"{pipeline.name}{one}", f"{pipeline.checkpoint}{one}") for one in suffixes]


def _notes(pipeline: PipelineConfig, streams: set[str]) -> Iterator[Owned]:
    """Yield notes of staged batches, locks, and links to files that are pending."""
    folder = f"{pipeline.lake}/_staged"
    own = {*streams, f"{pipeline.name}.layout", f"{pipeline.name}.replay"}
    tables = set(owned_tables(pipeline))
    for file in find_files(folder):
        first, _, rest = file.path.partition("/")
        is_note = not rest and any(first.startswith(f"{name}.") for name in own)
        is_pending = first == "pending" and rest.partition("/")[0] in tables
        if is_note or is_pending:
            yield Owned(Kind.NOTE, file.path, f"{folder}/{file.path}", 1, file.size)


def _source(pipeline: PipelineConfig) -> Iterator[Owned]:
    source = pipeline.source
    if not isinstance(source, Kafka):
        yield from _folders(Kind.SOURCE, [(source.path, source.path)])
    else:
        for topic in sorted(topics_found(source)):
            yield Owned(Kind.TOPIC, topic, source.servers)
    if pipeline.registry is not None:
        with closing(open_registry(pipeline.registry)) as registry:
            ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
            ids = {one for known in ledger.schema_ids().values() for one in known}
            subjects = {name for one in ids for name in registry.subjects_of(one)}
        where = pipeline.registry.url or str(pipeline.registry.folder)
        yield from (Owned(Kind.SUBJECT, subject, where) for subject in sorted(subjects))
