"""Maintenance of one table, as the product does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from headgate.config.maintain import Maintain
from headgate.config.units import Duration
from headgate.lake.commit import Committer
from headgate.lake.maintain import Unfinished, maintain_table
from headgate.lake.snapshot import Snapshot


def maintain_one(
    committer: Committer,
    table: str,
    *,
    keep: timedelta,
    landed: Mapping[str, int],
    pending: Collection[str],
    compacts: bool,
) -> None:
    """Delete what no version needs, and combine small files."""
    found = Snapshot.open(committer.lake, table)
    if found is None:
        return
    policy = Maintain.model_construct(
        file_size=Maintain().file_size, keep=Duration(days=min(keep.days, 30)), max_versions=1000
    )
    maintain_table(committer, found, policy, Unfinished(landed, pending), compacts)
