"""Maintenance of a pipeline's tables: in the background of a run, and all at once on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from time import monotonic
from typing import ClassVar
from zlib import crc32

from headgate.cdc.key import TableKey
from headgate.cdc.source_tables import known_sources
from headgate.config import PipelineConfig
from headgate.config.gold import as_pattern
from headgate.config.maintain import Maintain
from headgate.engine.events import Listener, MaintenanceFailed, TablesMaintained
from headgate.engine.follow_up import Followed, TableChanged
from headgate.engine.session import pipeline_session
from headgate.errors import first_line
from headgate.gold.declared import declared_gold
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Committer
from headgate.lake.expire import Expired, delete_expired, expired_versions
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.maintain import Unfinished, Upkeep, maintain_table, upkeep_of
from headgate.lake.names import TOMBSTONES, ChangeTables
from headgate.lake.orphans import orphans_of_notes
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import writer_of
from headgate.lake.storage import delete_files
from headgate.lake.streams import app_id

_COMPACTED_EVERY = 16
"""Versions of a table from one look at its files to the next."""
_EXPIRED_EVERY = 128
"""Versions of a table from one look at its log to the next."""
_FEWEST = 8
"""Files of a similar size that are worth combining."""
_ROUND = 1.0
"""Seconds that maintenance takes after a batch, but for the table that it has begun."""
_MAX_WORKERS = 2


class Keys:
    """Which tables are merged by key: merges keep their files few, and sorted by key."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        self._pipeline = pipeline

    def has(self, table: Snapshot) -> bool:
        if table.table.startswith(TOMBSTONES):
            return True
        if any(re.fullmatch(pattern, table.table) for pattern in self._merged_gold):
            return True
        if self._names is None or self._names.kind_of(table.table) in (None, "log"):
            return False
        return bool(TableKey.from_schema(table.schema))

    @cached_property
    def _merged_gold(self) -> list[str]:
        queries, _ = declared_gold(self._pipeline, "")
        return [as_pattern(one.name) for one in queries if one.update_mode == "merge"]

    @cached_property
    def _names(self) -> ChangeTables | None:
        return ChangeTables.of(self._pipeline) if self._pipeline.lands_changes else None


class MaintainFollowUp:
    """Maintains tables in the background of a run, as they need it.

    A table is looked at after a number of versions; those of one batch take turns.
    """

    while_idle: ClassVar = True
    of_all_tables: ClassVar = True

    def __init__(
        self, pipeline: PipelineConfig, policy: Maintain, committer: Committer, listener: Listener
    ) -> None:
        self._lake = pipeline.lake
        self._policy = policy
        self._committer = committer
        self._listener = listener
        self._keys = Keys(pipeline)
        self._seen: dict[str, int] = {}
        self._due: dict[str, bool] = {}
        """Tables to look at; true if their log is due, too."""
        self._errors: dict[str, str] = {}
        self._has_key: dict[str, bool] = {}
        """As far as known: a merged table may get its key later."""

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        for one in changed:
            self._see(one)
        began = monotonic()
        done: list[Upkeep] = []
        while self._due and monotonic() - began < _ROUND:
            table = next(iter(self._due))
            done.append(self._maintain(table, self._due.pop(table)))
        needed = [one for one in done if one.is_needed]
        if needed:
            self._listener(
                TablesMaintained(
                    len(needed),
                    sum(one.compacted.files for one in needed),
                    sum(one.compacted.into for one in needed),
                    sum(one.deleted for one in needed),
                    monotonic() - began,
                )
            )
        return Followed()

    def _see(self, table: TableChanged) -> None:
        if table.version is None:
            return
        # Each table has another shift: those of one batch are not all due at once.
        shift = crc32(table.table.encode())
        now = table.version + shift
        before = self._seen.get(table.table, table.version - 1) + shift
        self._seen[table.table] = table.version
        if now // _COMPACTED_EVERY > before // _COMPACTED_EVERY:
            is_expiring = now // _EXPIRED_EVERY > before // _EXPIRED_EVERY
            self._due[table.table] = self._due.get(table.table, False) or is_expiring

    def _maintain(self, name: str, is_expiring: bool) -> Upkeep:
        try:
            upkeep = self._looked_at(name, is_expiring)
        except Exception as error:  # of any kind: rows must land
            upkeep = Upkeep(name, error=first_line(error))
            if self._errors.get(name) != upkeep.error:
                self._listener(MaintenanceFailed(name, upkeep.error or ""))
        self._errors[name] = upkeep.error or ""
        return upkeep

    def _looked_at(self, name: str, is_expiring: bool) -> Upkeep:
        expired = Expired()
        if is_expiring or name not in self._has_key:
            table = Snapshot.newest(self._lake, name)
            if table is None:
                return Upkeep(name)
            self._has_key[name] = self._keys.has(table)
            if is_expiring:
                expired = self._expired(table)
        if not self._has_key[name]:
            compacted = self._committer.compact(name, self._policy.file_size, _FEWEST)
            return Upkeep(name, compacted, expired)
        deleted_rows = Snapshot.newest(self._lake, f"{TOMBSTONES}{name}") if is_expiring else None
        if deleted_rows is not None:
            self._expired(deleted_rows)
        return Upkeep(name, expired=expired)

    def _expired(self, table: Snapshot) -> Expired:
        expired = expired_versions(table, self._policy.keep, self._policy.max_versions)
        delete_expired(table, expired)
        return expired


def maintain(
    pipeline: PipelineConfig,
    patterns: Sequence[str] = ("*",),
    *,
    dry_run: bool = False,
    at_most: timedelta | None = None,
    on_table: Callable[[Upkeep], None] = lambda _: None,
) -> list[Upkeep]:
    """Maintain tables by name or pattern, or with `dry_run`, return what that would do.

    Tables that are left when the time is up are not in the result. The pipeline may be running.
    """
    policy = pipeline.maintain or Maintain()
    committer = choose_committer(pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake)
    ends = None if at_most is None else monotonic() + at_most.total_seconds()
    staged = _unfinished(pipeline)
    keys = Keys(pipeline)

    def upkeep(name: str) -> Upkeep | None:
        if ends is not None and monotonic() > ends:
            return None
        try:
            table = Snapshot.open(pipeline.lake, name)
            if table is None:
                return None
            compacts = not keys.has(table)
            if dry_run:
                return upkeep_of(table, policy, staged, compacts)
            return maintain_table(committer, table, policy, staged, compacts)
        except Exception as error:  # of any kind: other tables are maintained
            return Upkeep(name, error=first_line(error))

    names = [
        name
        for name in owned_tables(pipeline)
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    done = []
    with ThreadPoolExecutor(_MAX_WORKERS, "maintain") as pool:
        for one in pool.map(upkeep, names):
            if one is not None:
                on_table(one)
                done.append(one)
    notes = orphans_of_notes(pipeline.lake, staged.pending)
    if notes:
        if not dry_run:
            delete_files(f"{pipeline.lake}/_staged", [file.path for file in notes])
        done.append(Upkeep("_staged", orphans=tuple(notes)))
        on_table(done[-1])
    return done


def owned_tables(pipeline: PipelineConfig) -> list[str]:
    """Return the tables that a pipeline has written, as its ledger records them."""
    ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    tables = {*ledger.tables(), *pipeline.own_tables.values()}
    if pipeline.lands_changes:
        tables |= {one.tombstones for one in known_sources(pipeline)}
    return sorted(tables)


def _unfinished(pipeline: PipelineConfig) -> Unfinished:
    ledgers = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name).each
    landed = {writer_of(app_id(ledger.name)): ledger.landed for ledger in ledgers}
    pending = (row.entry.staged_file for ledger in ledgers for row in ledger.pending())
    return Unfinished(
        {writer: version for writer, version in landed.items() if version is not None},
        frozenset(f"{file.table}/{file.path}" for file in pending),
    )
