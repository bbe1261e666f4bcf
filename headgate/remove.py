"""Removal of a pipeline: everything that it owns, listed first, then deleted.

A table that anybody else has written to is left: other pipelines are known by the ledgers of the
lake, and by the marks of their transactions in the table itself. The ledger goes last: what it
records can be removed by another attempt if one is cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from headgate.catalog.open import open_catalog
from headgate.catalog.recorded import Recorded
from headgate.catalog.register import drop_entries
from headgate.config import Catalog, Kafka, PipelineConfig
from headgate.config.pipeline import FILES_TABLE
from headgate.engine.session import pipeline_session
from headgate.lake.layout import lock_all
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.run_lock import run_lock
from headgate.lake.staged_files import StagedName, writer_of
from headgate.lake.storage import (
    MAX_REQUESTS,
    delete_empty_folder,
    delete_files,
    delete_folder,
    find_files,
)
from headgate.lake.streams import app_id, pipeline_of, replay_name
from headgate.lake.tables import CatalogManaged, TableError, open_table, table_url
from headgate.lake.writers import LakeWriters, apps_in
from headgate.maintain import owned_tables
from headgate.quarantine.lander import name_of_files
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
class Shared:
    """Something that stays, because others use it, too."""

    kind: Kind
    name: str
    why: str


@dataclass(frozen=True)
class Ownership:
    """All that a pipeline owns, in the order in which it is removed."""

    everything: tuple[Owned, ...]
    shared_with: tuple[str, ...] = ()
    """Other pipelines in the same ledger: it stays, and so does the quarantine."""
    left: tuple[Shared, ...] = ()
    """What it has written together with others."""

    def of(self, *kinds: Kind) -> list[Owned]:
        return [one for one in self.everything if one.kind in kinds]


def owned_by(pipeline: PipelineConfig, with_source: bool = False) -> Ownership:
    """Return what a pipeline owns; with its topics and subjects, or the folder that it reads."""
    ledger = LedgerSnapshot.open(pipeline.lake, pipeline.ledger, pipeline.name)
    own = {*ledger.streams, replay_name(pipeline.name)}
    others = tuple(name for name in ledger.all_names() if name not in own)
    tables = owned_tables(pipeline)
    shared = _shared(pipeline, tables)
    may_be_shared = (FILES_TABLE, pipeline.quarantine_table, pipeline.ledger)
    if others:
        why = f"{others[0]} has the same ledger"
        shared |= {name: shared.get(name, why) for name in may_be_shared if name in tables}
    of_pipeline = [name for name in tables if name not in shared]
    last = [name for name in may_be_shared if name in of_pipeline]
    landed = [name for name in of_pipeline if name not in last]
    found = [
        *(one for one in _entries(pipeline, pipeline.catalog) if one.name not in shared),
        *_folders(Kind.TABLE, [(name, table_url(pipeline.lake, name)) for name in landed]),
        *_folders(Kind.CHECKPOINT, _checkpoints(pipeline, ledger)),
        *_notes(pipeline, own),
        *_folders(Kind.TABLE, [(name, table_url(pipeline.lake, name)) for name in last]),
    ]
    if with_source:
        found += _source(pipeline)
    left = tuple(Shared(Kind.TABLE, name, why) for name, why in sorted(shared.items()))
    return Ownership(tuple(found), others, left)


def _shared(pipeline: PipelineConfig, tables: Sequence[str]) -> dict[str, str]:
    """Return which tables others have written to, and who they are."""
    writers = LakeWriters.of(pipeline.lake, pipeline.ledger)

    def users(table: str) -> list[str]:
        found = writers.users_of(table, pipeline.ledger, pipeline.name)
        try:
            open_table(table_url(pipeline.lake, table))
        except CatalogManaged:
            return [*found, "the catalog that manages it"]
        except TableError:
            pass  # damaged, and maybe removed for that
        try:
            apps = apps_in(table_url(pipeline.lake, table))
        except (ValueError, KeyError, OSError, pa.ArrowException):
            return [*found, "somebody, as far as can be known: its log cannot be read"]
        return found or sorted(map(_user, {app for app in apps if not _is_own(app, pipeline)}))

    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        found = dict(zip(tables, pool.map(users, tables), strict=True))
    return {table: f"{names[0]} writes to it, too" for table, names in found.items() if names}


def _is_own(app: str, pipeline: PipelineConfig) -> bool:
    return app.startswith(app_id("")) and pipeline_of(app.removeprefix(app_id(""))) == pipeline.name


def _user(app: str) -> str:
    prefix = app_id("")
    if app.startswith(prefix):
        return f"pipeline {pipeline_of(app.removeprefix(prefix))}"
    return f"the application {app}"


def remove(
    pipeline: PipelineConfig,
    owned: Sequence[Owned],
    on_removed: Callable[[Owned], None] = lambda _: None,
) -> list[Owned]:
    """Remove what was chosen, and return it without what others use by now.

    Raises if the pipeline is running.
    """
    replays = run_lock(pipeline.lake, name_of_files(pipeline.name), pipeline.name)
    with replays, lock_all(pipeline):
        shared = _shared(pipeline, [one.name for one in owned if one.kind is Kind.TABLE])
        owned = [
            one
            for one in owned
            if one.kind not in (Kind.TABLE, Kind.ENTRY) or one.name not in shared
        ]
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
        delete_empty_folder(folder)
    return owned


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
    own = {*streams, f"{pipeline.name}.layout", name_of_files(pipeline.name)}
    writers = {writer_of(app_id(name)) for name in streams}
    for file in find_files(folder):
        first, _, rest = file.path.partition("/")
        is_note = not rest and any(first.startswith(f"{name}.") for name in own)
        staged = StagedName.of(rest.rpartition("/")[2]) if first == "pending" else None
        if is_note or (staged is not None and staged.writer in writers):
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
