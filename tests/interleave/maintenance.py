"""Maintenance of one table, as the product does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from headgate.lake.commit import Committer
from headgate.lake.maintain import MaintenancePolicy, MaintenanceResult, maintain_table
from headgate.lake.snapshot import Snapshot
from headgate.lake.writers import StagedFiles, Writer

FILE_SIZE = 1 << 20
"""Larger than all files of these tests: every compaction combines all of them."""
MAX_VERSIONS = 1000


def maintain_one(
    committer: Committer,
    table: str,
    *,
    keep: timedelta,
    landed: Mapping[str, int],
    pending: Collection[str],
    compacts: bool,
) -> MaintenanceResult | None:
    """Delete what no version needs, and combine small files."""
    found = Snapshot.open(committer.lake, table)
    if found is None:
        return None
    policy = MaintenancePolicy(
        file_size=FILE_SIZE if compacts else None, keep=keep, max_versions=MAX_VERSIONS
    )
    writers = {writer: Writer(batch, is_running=True) for writer, batch in landed.items()}
    return maintain_table(committer, found, policy, StagedFiles(writers, frozenset(pending)))
