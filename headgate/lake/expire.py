"""Expiry of old versions: their entries in the log, and the files that only they have.

Each entry says which files its commit has removed. Once all versions before a checkpoint are given
up, these files belong to no version, unless a later commit has brought them back: a deletion vector
replaces the entry of a file, RESTORE has files again that were removed once. So a file goes only if
no entry that is kept names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from time import time
from urllib.parse import unquote

from headgate.lake.deletion import Deletion, FileKind
from headgate.lake.log import LOG, read_entries, vector_path
from headgate.lake.log_files import TableLog

_OF_VERSION = re.compile(r"(\d{20})\.(?:json|checkpoint\.parquet)")
_COMPACTED = re.compile(r"\d{20}\.(\d{20})\.compacted\.json")


@dataclass(frozen=True)
class Expired:
    """Versions that are given up, and all that can be deleted then."""

    versions: int = 0
    deletions: tuple[Deletion, ...] = ()
    """Files of the table first, then those of the log, the oldest first: a crash in between leaves
    nothing behind that the next expiry does not find."""


def expired_versions(log: TableLog, keep: timedelta, max_versions: int | None = None) -> Expired:
    """Return what can be deleted if versions are kept for a time, or only a number of them.

    The oldest version that stays is one with a checkpoint, from which it can be read. What the
    table itself declares holds, too, if it keeps versions for longer.
    """
    declared = declared_retention(log.table.definition.metadata.configuration)
    if declared is None or not log.versions:
        return Expired()
    if declared > keep:
        keep, max_versions = declared, None
    expires = time() - keep.total_seconds()
    too_many = log.versions[-1] - max_versions + 1 if max_versions else -1
    # With a version, those before it went out of use.
    unused = {
        version
        for version in log.versions
        if version <= too_many or log.files[f"{version:020d}.json"].modified < expires
    }
    oldest = max(unused.intersection(log.checkpoints), default=0)
    gone = [version for version in log.versions if version < oldest]
    if not gone:
        return Expired()
    removed = _removed(log, gone, oldest)
    kept = log.named(removed.keys(), oldest)
    why = f"only versions before {oldest} have it, which have expired"
    of_table = [
        Deletion(path, size, kind, why)
        for path, (size, kind) in removed.items()
        if path not in kept and _is_inside(path)
    ]
    return Expired(len(gone), (*of_table, *_of_log(log, oldest)))


def _removed(log: TableLog, gone: list[int], oldest: int) -> dict[str, tuple[int, FileKind]]:
    """Return the files that versions have lost up to the oldest one that stays."""
    removed: dict[str, tuple[int, FileKind]] = {}
    for entry in read_entries(log.table.url, (*gone, oldest)):
        for file in entry.removed_files:
            removed[unquote(file["path"])] = file.get("size") or 0, FileKind.DATA
            vector = file.get("deletionVector")
            if (path := vector_path(vector)) is not None:
                removed[path] = 0, FileKind.VECTOR
        if entry.version < oldest:
            for file in entry.change_files:
                removed[unquote(file["path"])] = file.get("size") or 0, FileKind.CHANGES
    return removed


def _of_log(log: TableLog, oldest: int) -> list[Deletion]:
    """Return the entries and checkpoints of earlier versions, and no other files of the log."""
    why = f"versions before {oldest} have expired"
    found = []
    for name in sorted(log.files):
        match = _OF_VERSION.fullmatch(name) or _COMPACTED.fullmatch(name)
        if match and int(match[1]) < oldest:
            kind = FileKind.CHECKPOINT if name.endswith(".parquet") else FileKind.ENTRY
            found.append(Deletion(f"{LOG}/{name}", log.files[name].size, kind, why))
    return found


_RETENTIONS = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
_CLEAN_UP = "delta.enableExpiredLogCleanup"
_INTERVAL = re.compile(
    r"(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?",
    re.IGNORECASE,
)


def declared_retention(properties: Mapping[str, str | None]) -> timedelta | None:
    """Return for how long a table's own properties keep its versions; None if they never expire.

    An interval that is not understood never ends.
    """
    if (properties.get(_CLEAN_UP) or "true").lower() != "true":
        return None
    found = timedelta()
    for name in _RETENTIONS:
        text = properties.get(name)
        match = None if text is None else _INTERVAL.fullmatch(text.strip())
        if text is not None and match is None:
            return None
        if match is not None:
            found = max(found, timedelta(**{f"{match[2].lower()}s": int(match[1])}))
    # Compactions declare an hour themselves, so that checkpoints stay small.
    return found if found > timedelta(hours=1) else timedelta()


def _is_inside(path: str) -> bool:
    """Whether a path of the log is that of a file in the table's folder."""
    return not path.startswith("/") and "://" not in path and ".." not in path.split("/")
