"""Expiry of old versions: their entries in the log, and the files that only they have.

Each entry says which files its commit has removed. Once all versions before a checkpoint are given
up, these files belong to no version, so neither the table nor its folder has to be searched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from time import time
from urllib.parse import unquote

from headgate.lake.log import LOG, read_entries, versions_of_entries
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import delete_files, find_files

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_OF_VERSION = re.compile(r"\.?(\d{20})\..+")


@dataclass(frozen=True)
class Expired:
    """What old versions of a table have left: all of it can be deleted."""

    versions: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()
    """Paths of data files."""
    log_files: tuple[str, ...] = ()
    """Paths of entries and checkpoints, the oldest first."""


def expired_versions(table: Snapshot, keep: timedelta, max_versions: int | None = None) -> Expired:
    """Return what can be deleted if versions are kept for a time, or only a number of them.

    The oldest version that stays is one with a checkpoint, from which it can be read.
    """
    log = {file.path: file for file in find_files(f"{table.url}/{LOG}", below=False)}
    versions = versions_of_entries(log)
    expires = time() - keep.total_seconds()
    too_many = versions[-1] - max_versions + 1 if versions and max_versions else -1
    # With a version, those before it went out of use.
    unused = [
        version
        for version in versions
        if version <= too_many or log[f"{version:020d}.json"].modified < expires
    ]
    checkpoints = {int(match[1]) for name in log if (match := _CHECKPOINT.fullmatch(name))}
    oldest = max(checkpoints.intersection(unused), default=0)
    gone = [version for version in versions if version < oldest]
    if not gone:
        return Expired()
    removed: dict[str, int] = {}
    for entry in read_entries(table.url, (*gone, oldest)):
        changes = entry.change_files if entry.version < oldest else ()
        for file in (*entry.removed_files, *changes):
            removed[unquote(file["path"])] = file.get("size") or 0
    # A restored version has files again that were removed once.
    files = [path for path in removed if path not in table.sizes and _is_inside(path)]
    of_gone = sorted(
        name for name in log if (match := _OF_VERSION.fullmatch(name)) and int(match[1]) < oldest
    )
    size = sum(removed[path] for path in files) + sum(log[name].size for name in of_gone)
    return Expired(len(gone), size, tuple(files), tuple(f"{LOG}/{name}" for name in of_gone))


def delete_expired(table: Snapshot, expired: Expired) -> None:
    """Delete what old versions have left: files first, so that a crash leaves none behind."""
    delete_files(table.url, expired.files)
    delete_files(table.url, expired.log_files)


def _is_inside(path: str) -> bool:
    """Whether a path of the log is that of a file in the table's folder."""
    return not path.startswith("/") and "://" not in path and ".." not in path.split("/")
