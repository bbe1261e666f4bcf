"""Maintenance of one table: delete what no version needs, and combine its small files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headgate.config.maintain import Maintain
from headgate.lake.commit import Committer
from headgate.lake.compact import Compacted, files_to_combine
from headgate.lake.expire import Expired, delete_expired, expired_versions
from headgate.lake.files import FoundFile
from headgate.lake.orphans import orphans_of_table
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import delete_files


@dataclass(frozen=True)
class Upkeep:
    """What maintenance does to a table, or would do."""

    table: str
    compacted: Compacted = field(default_factory=Compacted)
    expired: Expired = field(default_factory=Expired)
    orphans: tuple[FoundFile, ...] = ()
    error: str | None = None

    @property
    def is_needed(self) -> bool:
        return bool(self.compacted.files or self.expired.versions or self.orphans)

    @property
    def deleted(self) -> int:
        """Number of files, also of the log."""
        return len(self.expired.files) + len(self.expired.log_files) + len(self.orphans)

    @property
    def freed(self) -> int:
        """Bytes of these files."""
        return self.expired.bytes + sum(file.size for file in self.orphans)


@dataclass(frozen=True)
class Unfinished:
    """Staged files that may still be committed."""

    landed: Mapping[str, int] = field(default_factory=dict)
    """The newest complete batch, by the writer of its files."""
    pending: Collection[str] = ()
    """Paths, below the lake, of files that could not be committed yet."""


def upkeep_of(table: Snapshot, policy: Maintain, staged: Unfinished, compacts: bool) -> Upkeep:
    """Return what maintenance would do to a table now."""
    expired = expired_versions(table, policy.keep, policy.max_versions)
    orphans = orphans_of_table(table, staged.landed, staged.pending)
    groups = files_to_combine(table, policy.file_size) if compacts else ()
    return Upkeep(table.table, Compacted.of(groups), expired, tuple(orphans))


def maintain_table(
    committer: Committer, table: Snapshot, policy: Maintain, staged: Unfinished, compacts: bool
) -> Upkeep:
    """Do all that can be done for a table."""
    expired = expired_versions(table, policy.keep, policy.max_versions)
    delete_expired(table, expired)
    orphans = orphans_of_table(table, staged.landed, staged.pending)
    delete_files(table.url, [file.path for file in orphans])
    compacted = committer.compact(table.table, policy.file_size) if compacts else Compacted()
    return Upkeep(table.table, compacted, expired, tuple(orphans))
