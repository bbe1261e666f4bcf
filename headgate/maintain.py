"""Maintenance of a pipeline's tables: in the background of a run, and all at once on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.maintain import (
    MaintenancePolicy,
    MaintenanceResult,
    apply_plan,
    maintain_table,
    plan_maintenance,
)
from headgate.lake.names import TOMBSTONES, ChangeTables
from headgate.lake.orphans import orphans_of_notes
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import delete_files
from headgate.lake.writers import LakeWriters, StagedFiles

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
        self._policy = MaintenancePolicy.of(policy, fewest=_FEWEST)
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
        done: list[MaintenanceResult] = []
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

    def _maintain(self, name: str, is_expiring: bool) -> MaintenanceResult:
        try:
            done = self._looked_at(name, is_expiring)
        except Exception as error:  # of any kind: rows must land
            done = MaintenanceResult(name, error=first_line(error))
        if done.error is not None and self._errors.get(name) != done.error:
            self._listener(MaintenanceFailed(name, done.error))
        self._errors[name] = done.error or ""
        return done

    def _looked_at(self, name: str, is_expiring: bool) -> MaintenanceResult:
        is_kept_few = self._has_key.get(name, False)
        table = None if is_kept_few and not is_expiring else Snapshot.newest(self._lake, name)
        if table is None:
            return MaintenanceResult(name)
        if is_expiring or name not in self._has_key:
            self._has_key[name] = self._keys.has(table)
        policy = self._policy if is_expiring else self._policy.without_expiry
        if not self._has_key[name]:
            return maintain_table(self._committer, table, policy)
        done = maintain_table(self._committer, table, policy.without_compaction)
        deleted_rows = Snapshot.newest(self._lake, f"{TOMBSTONES}{name}") if is_expiring else None
        if deleted_rows is not None:
            maintain_table(self._committer, deleted_rows, policy.without_compaction)
        return done


def maintain(
    pipeline: PipelineConfig,
    patterns: Sequence[str] = ("*",),
    *,
    dry_run: bool = False,
    at_most: timedelta | None = None,
    on_table: Callable[[MaintenanceResult], None] = lambda _: None,
) -> list[MaintenanceResult]:
    """Maintain tables by name or pattern, or with `dry_run`, return what that would do.

    Tables that are left when the time is up are not in the result. The pipeline may be running.
    """
    policy = MaintenancePolicy.of(pipeline.maintain or Maintain())
    committer = choose_committer(pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake)
    ends = None if at_most is None else monotonic() + at_most.total_seconds()
    staged = LakeWriters.of(pipeline.lake, pipeline.ledger).staged()
    keys = Keys(pipeline)

    def result_for(name: str) -> MaintenanceResult | None:
        if ends is not None and monotonic() > ends:
            return None
        try:
            table = Snapshot.open(pipeline.lake, name)
            if table is None:
                return None
            wanted = policy.without_compaction if keys.has(table) else policy
            plan = plan_maintenance(table, wanted, staged, committer.engine(table, "compact"))
            return plan.expected if dry_run else apply_plan(committer, plan)
        except Exception as error:  # of any kind: other tables are maintained
            return MaintenanceResult(name, error=first_line(error))

    names = [
        name
        for name in owned_tables(pipeline)
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    done = []
    with ThreadPoolExecutor(_MAX_WORKERS, "maintain") as pool:
        for one in pool.map(result_for, names):
            if one is not None:
                on_table(one)
                done.append(one)
    notes = _notes(pipeline.lake, staged, dry_run)
    if notes.is_needed or notes.left or notes.error:
        on_table(notes)
        done.append(notes)
    return done


def _notes(lake: str, staged: StagedFiles, dry_run: bool) -> MaintenanceResult:
    """Delete what is left beside the tables."""
    folder = "_staged"
    orphans = orphans_of_notes(lake, staged)
    result = MaintenanceResult(folder, deletions=orphans.deletions, left=orphans.left)
    if not dry_run:
        try:
            delete_files(f"{lake}/{folder}", [file.path for file in orphans.deletions])
        except Exception as error:  # of any kind: the tables are maintained
            return replace(result, deletions=(), error=first_line(error))
    return result


def owned_tables(pipeline: PipelineConfig) -> list[str]:
    """Return the tables that a pipeline has written, as its ledger records them."""
    ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
    tables = {*ledger.tables(), *pipeline.own_tables.values()}
    if pipeline.lands_changes:
        tables |= {one.tombstones for one in known_sources(pipeline)}
    return sorted(tables)
