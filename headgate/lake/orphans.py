"""Orphans: files that no commit has added and none will, left behind by processes that died."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from time import time
from urllib.parse import unquote

from headgate.lake.files import FoundFile
from headgate.lake.log import LOG, read_entries, versions_of_entries
from headgate.lake.snapshot import Snapshot
from headgate.lake.storage import find_files

_STAGED = re.compile(r"part-(?:([0-9a-f]{8})-)?(\d{9})-.+\.parquet")
_UNFINISHED = re.compile(r".*\.(?:part|tmp)|probe-[0-9a-f]{32}")
_DAY = 24 * 3600.0
_HOUR = 3600.0


def orphans_of_table(
    table: Snapshot, landed: Mapping[str, int], pending: Collection[str]
) -> list[FoundFile]:
    """Return the files in a table's folder that belong to no version of it.

    Those of a batch that has landed are orphans at once; `landed` has the newest batch by writer.
    What else a process may still be about to commit is an orphan after a day. `pending` are paths
    of files, below the lake, that could not be committed yet.
    """
    log: list[FoundFile] = []
    unknown: dict[str, FoundFile] = {}
    for file in find_files(table.url):
        if file.path.startswith(f"{LOG}/"):
            log.append(file)
        elif file.path not in table.sizes and not file.path.startswith("_change_data/"):
            unknown[file.path] = file
    if unknown:
        versions = versions_of_entries(file.path.removeprefix(f"{LOG}/") for file in log)
        for entry in read_entries(table.url, versions):
            for added in (*entry.added_files, *entry.removed_files):
                unknown.pop(unquote(added["path"]), None)
    left = [
        file
        for path, file in unknown.items()
        if f"{table.table}/{path}" not in pending and _is_left(file, landed)
    ]
    return [*left, *_unfinished(log)]


def _is_left(file: FoundFile, landed: Mapping[str, int]) -> bool:
    staged = _STAGED.fullmatch(file.path.rpartition("/")[2])
    if staged and staged[1] in landed:
        return int(staged[2]) <= landed[staged[1]]
    return time() - file.modified > _DAY


def orphans_of_notes(lake: str, pending: Collection[str]) -> list[FoundFile]:
    """Return what is left beside the tables: unfinished notes, and files for merges that ended."""
    found = find_files(f"{lake}/_staged")
    old = [file for file in found if time() - file.modified > _DAY]
    merges = [file for file in old if file.path.startswith("merges/")]
    held = [
        file
        for file in old
        if file.path.startswith("pending/") and file.path.removeprefix("pending/") not in pending
    ]
    return [*merges, *held, *_unfinished(found)]


def _unfinished(files: Collection[FoundFile]) -> list[FoundFile]:
    """Return files that were being written when their process died."""
    return [
        file
        for file in files
        if _UNFINISHED.fullmatch(file.path.rpartition("/")[2]) and time() - file.modified > _HOUR
    ]
