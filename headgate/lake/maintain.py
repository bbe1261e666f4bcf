"""Maintenance of a table: a plan, which says what can be done and why, and what carries it out.

The plan is the same for a dry run, on request and in the background of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import count
from typing import Self

from headgate.config.maintain import Maintain
from headgate.errors import first_line
from headgate.lake.commit import Committer, Engine
from headgate.lake.compact import Compacted, files_to_combine
from headgate.lake.deletion import Deletion, Left
from headgate.lake.expire import Expired, expired_versions
from headgate.lake.log import LOG, LogEntry
from headgate.lake.log_files import TableLog, UnknownFiles
from headgate.lake.orphans import orphans_of_table, unfinished
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import delete_files, find_files
from headgate.lake.tables import NotWritable
from headgate.lake.writers import StagedFiles


@dataclass(frozen=True)
class MaintenancePolicy:
    """What to do to a table."""

    file_size: int | None = None
    """Size up to which files are combined; None to leave them as they are."""
    fewest: int = 2
    """Files of a similar size that are worth combining."""
    keep: timedelta | None = None
    """How long versions are kept; None to keep all of them."""
    max_versions: int | None = None

    @classmethod
    def of(cls, declared: Maintain, *, fewest: int = 2) -> Self:
        return cls(int(declared.file_size), fewest, declared.keep, declared.max_versions)

    @property
    def without_compaction(self) -> MaintenancePolicy:
        return replace(self, file_size=None)

    @property
    def without_expiry(self) -> MaintenancePolicy:
        return replace(self, keep=None)


@dataclass(frozen=True)
class Compaction:
    """Files to combine."""

    table: Snapshot = field(repr=False)
    size: int
    fewest: int
    engine: Engine

    @cached_property
    def expected(self) -> Compacted:
        """What would be combined now; of tables that only Spark can compact, all small files."""
        if self.engine == "delta-rs":
            return Compacted.of(files_to_combine(self.table, self.size, self.fewest))
        small = [size for size in self.table.sizes.values() if size < self.size]
        if len(small) < max(2, self.fewest):
            return Compacted()
        return Compacted(len(small), sum(small), -(-sum(small) // self.size))


@dataclass(frozen=True)
class MaintenancePlan:
    """What can be done to a table, as far as it was read up to a version."""

    table: str
    url: str
    version: int
    deletions: tuple[Deletion, ...] = ()
    """In the order in which they have to go."""
    versions: int = 0
    """Number of versions that expire with them."""
    compaction: Compaction | None = None
    left: tuple[Left, ...] = ()
    """What is not deleted, though it looks unused."""

    @property
    def expected(self) -> MaintenanceResult:
        """The result if all goes well."""
        compaction = self.compaction
        return MaintenanceResult(
            self.table,
            Compacted() if compaction is None else compaction.expected,
            self.versions,
            self.deletions,
            self.left,
            None if compaction is None else compaction.engine,
        )


@dataclass(frozen=True)
class MaintenanceResult:
    """What maintenance has done to a table, or would do."""

    table: str
    compacted: Compacted = field(default_factory=Compacted)
    versions: int = 0
    """Number of versions that have expired."""
    deletions: tuple[Deletion, ...] = ()
    left: tuple[Left, ...] = ()
    engine: Engine | None = None
    """What combines the table's files: Spark by its `OPTIMIZE`."""
    error: str | None = None

    @property
    def is_needed(self) -> bool:
        return bool(self.compacted.files or self.versions or self.deletions)

    @property
    def deleted(self) -> int:
        """Number of files, also of the log."""
        return len(self.deletions)

    @property
    def freed(self) -> int:
        """Bytes of these files."""
        return sum(file.size for file in self.deletions)


def plan_maintenance(
    table: Snapshot,
    policy: MaintenancePolicy,
    staged: StagedFiles | None = None,
    engine: Engine = "delta-rs",
) -> MaintenancePlan:
    """Return what can be done to a table; orphans are looked for if it is known what is staged.

    Nothing is deleted of a table whose log does not say for sure which files its versions need.
    """
    plan = MaintenancePlan(table.table, table.url, table.version)
    if policy.file_size is not None:
        compaction = Compaction(table, policy.file_size, policy.fewest, engine)
        plan = replace(plan, compaction=compaction)
    if policy.keep is None and staged is None:
        return plan
    # The files first: what is committed after they are listed is in the log then.
    found = [] if staged is None else find_files(table.url)
    log = TableLog.of(table)
    if log.obstacle is not None:
        return replace(plan, left=(_left_to_spark(log.obstacle),))
    left: list[Left] = []
    expired = Expired()
    deletions: list[Deletion] = []
    try:
        if policy.keep is not None:
            expired = expired_versions(log, policy.keep, policy.max_versions)
        if staged is not None:
            orphans = orphans_of_table(log, found, staged)
            deletions += orphans.deletions
            left += orphans.left
    except UnknownFiles as error:
        left.append(_left_to_spark(str(error)))
    if staged is not None:
        deletions += unfinished([file for file in found if file.path.startswith(f"{LOG}/")])
    return replace(
        plan,
        deletions=(*deletions, *expired.deletions),
        versions=expired.versions,
        left=tuple(left),
    )


def _left_to_spark(why: str) -> Left:
    return Left("unused files and versions", f"{why}: left to VACUUM of Spark")


def apply_plan(committer: Committer, plan: MaintenancePlan) -> MaintenanceResult:
    """Carry out a plan. A part that fails is left for the next time, and does not keep the rest."""
    compaction = plan.compaction
    engine = None if compaction is None else compaction.engine
    result = MaintenanceResult(plan.table, left=plan.left, engine=engine)
    try:
        deletions = tuple(_still_unused(plan))
        of_log = [file.path for file in deletions if file.path.startswith(f"{LOG}/")]
        others = [file.path for file in deletions if not file.path.startswith(f"{LOG}/")]
        for paths in filter(None, (others, of_log)):
            delete_files(plan.url, paths)
        result = replace(result, deletions=deletions, versions=plan.versions)
    except Exception as error:  # of any kind: the batch before it is complete
        result = replace(result, error=first_line(error))
    if compaction is None:
        return result
    try:
        compacted = committer.compact(plan.table, compaction.size, compaction.fewest)
        return replace(result, compacted=compacted)
    except NotWritable as error:
        return replace(result, left=(*result.left, Left("small files", str(error))))
    except Exception as error:
        return replace(result, error=result.error or first_line(error))


def _still_unused(plan: MaintenancePlan) -> Iterator[Deletion]:
    """Yield the files that no commit has brought back since the plan was made, as RESTORE does."""
    named: set[str] = set()
    if plan.deletions:
        with suppress(FileNotFoundError):
            for version in count(plan.version + 1):
                named.update(LogEntry.read(plan.url, version).paths)
    yield from (file for file in plan.deletions if file.path not in named)


def maintain_table(
    committer: Committer,
    table: Snapshot,
    policy: MaintenancePolicy,
    staged: StagedFiles | None = None,
) -> MaintenanceResult:
    """Plan the maintenance of a table and carry it out. Never raises: the result has the error."""
    try:
        plan = plan_maintenance(table, policy, staged, committer.engine(table, "compact"))
    except Exception as error:  # of any kind: other tables are maintained, and rows must land
        return MaintenanceResult(table.table, error=first_line(error))
    return apply_plan(committer, plan)
