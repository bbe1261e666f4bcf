"""Who writes to a lake: the pipelines of all its ledgers, and the files that they may commit."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Self

from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.log import LOG, read_entries, versions_of_entries
from headgate.lake.log_files import read_actions
from headgate.lake.run_lock import read_holder
from headgate.lake.staged import StagedBatchNote
from headgate.lake.staged_files import writer_of
from headgate.lake.storage import MAX_REQUESTS, find_files
from headgate.lake.streams import app_id, pipeline_of
from headgate.lake.tables import TableError, open_table, table_url, tables_in

_OF_LEDGERS = {"pipeline", "kind", "version", "batch", "table_version", "staged_file", "source_end"}
"""Columns by which a table is known to be a ledger."""


@dataclass(frozen=True)
class Writer:
    """A stream, or the replays of a pipeline, which stages files and commits them."""

    landed: int | None
    """Its newest complete batch."""
    is_running: bool


@dataclass(frozen=True)
class StagedFiles:
    """Which staged files may still be committed."""

    writers: Mapping[str, Writer] = field(default_factory=dict)
    """By what the names of their files begin with."""
    pending: frozenset[str] = frozenset()
    """Paths, below the lake, of files that wait for their table or for the rest of their batch."""


@dataclass(frozen=True)
class LakeWriters:
    """All pipelines that have a ledger in a lake."""

    lake: str
    ledgers: Mapping[str, LedgerSnapshot]
    """By name, each read for all of its pipelines, streams and replays."""

    @classmethod
    def of(cls, lake: str, ledger: str) -> Self:
        """Read the ledgers of a lake: a known one, and every other table with its columns."""
        tables = tables_in(lake)
        with ThreadPoolExecutor(MAX_REQUESTS, "ledgers") as pool:
            are_ledgers = pool.map(lambda name: name == ledger or _is_ledger(lake, name), tables)
            found = [LedgerSnapshot.open(lake, name) for name in compress(tables, are_ledgers)]
        return cls(lake, {one.table: one.of(*one.all_names()) for one in found})

    def staged(self) -> StagedFiles:
        """Return which staged files any of the pipelines may still commit."""
        found: dict[str, list[Writer]] = defaultdict(list)
        pending = set(self._noted())
        for ledger in self.ledgers.values():
            for stream in ledger.each:
                writer = writer_of(app_id(stream.name))
                found[writer].append(Writer(stream.landed, self._is_running(stream.name)))
                files = (row.entry.staged_file for row in stream.pending())
                pending.update(f"{file.table}/{file.path}" for file in files)
        writers = {writer: _together(known) for writer, known in found.items()}
        return StagedFiles(writers, frozenset(pending))

    def users_of(self, table: str, ledger: str, pipeline: str) -> list[str]:
        """Return the pipelines, but for one, that a ledger has rows of a table of."""
        users = [
            (name, pipeline_of(stream))
            for name, tables in self._streams_by_table.items()
            for stream in tables.get(table, ())
        ]
        return sorted(
            {
                f"pipeline {user}" + (f" of {name}" if name != ledger else "")
                for name, user in users
                if (name, user) != (ledger, pipeline)
            }
        )

    @cached_property
    def _streams_by_table(self) -> Mapping[str, Mapping[str, set[str]]]:
        return {name: ledger.streams_by_table() for name, ledger in self.ledgers.items()}

    def _is_running(self, stream: str) -> bool:
        holder = read_holder(self.lake, stream.replace(":", "."))
        return holder is not None and holder.is_alive

    def _noted(self) -> Iterator[str]:
        """Yield the files of staged batches, which the next run commits, whenever that is."""
        for note in find_files(f"{self.lake}/_staged", below=False):
            if note.path.endswith(".json"):
                name = note.path.removesuffix(".json")
                with suppress(ValueError, KeyError, TypeError):  # a note of something else
                    staged = StagedBatchNote(self.lake, name).read()
                    files = staged.files if staged else ()
                    yield from (f"{file.table}/{file.path}" for file in files)


def _together(writers: list[Writer]) -> Writer:
    """Return what holds for pipelines of one name in several ledgers, whose files have one name."""
    landed = [writer.landed for writer in writers if writer.landed is not None]
    oldest = min(landed) if len(landed) == len(writers) else None
    return Writer(oldest, any(writer.is_running for writer in writers))


def _is_ledger(lake: str, table: str) -> bool:
    try:
        opened = open_table(table_url(lake, table))
    except (TableError, OSError):  # not one that a pipeline uses now
        return False
    return opened is not None and _OF_LEDGERS.issubset(one.name for one in opened.schema().fields)


def apps_in(url: str) -> set[str]:
    """Return all applications that have marked their transactions in a table."""
    names = [file.path for file in find_files(f"{url}/{LOG}", below=False)]
    checkpoints = {name: int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))}
    newest = max(checkpoints.values(), default=-1)
    apps: set[str] = set()
    for name in (name for name, version in checkpoints.items() if version == newest):
        apps.update(mark["appId"] for mark in read_actions(f"{url}/{LOG}/{name}", "txn"))
    for entry in read_entries(url, (one for one in versions_of_entries(names) if one > newest)):
        apps.update(entry.marks)
    return apps


_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(?:parquet|json)")
