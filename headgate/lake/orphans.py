"""Orphans: files that no commit has added and none will, left behind by processes that died.

Only files with the names that Delta and Headgate give are looked at: others, such as the checkpoint
of a stream or a manifest, belong to somebody. VACUUM leaves alone what is hidden, and so does this.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from time import time

from headgate.lake.deletion import Deletion, FileKind, Left
from headgate.lake.files import FoundFile
from headgate.lake.log import LOG
from headgate.lake.log_files import TableLog, is_vector
from headgate.lake.staged_files import StagedName, original_path
from headgate.lake.storage import find_files
from headgate.lake.writers import StagedFiles

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(rf"part-(?:widened-)?{_UUID}\.parquet")
"""Files of merges, compactions and derived tables, written right before their commit."""
_OF_DELTA = re.compile(rf"part-\d{{5,}}-{_UUID}.*\.parquet")
_UNFINISHED = re.compile(
    rf".+\.[0-9a-f]{{32}}\.part|_commit_{_UUID}\.json\.tmp|\.\d{{20}}\..+\.{_UUID}\.tmp"
    r"|probe-[0-9a-f]{32}"
)
_RANDOM_PREFIX = re.compile(r"[0-9A-Za-z]{2}")
_HOUR = 3600.0
_DAY = 24 * _HOUR
_WEEK = 7 * _DAY
"""After which VACUUM deletes files of a commit that might be under way."""

_NOT_IN_LOG = "no version has it"


@dataclass(frozen=True)
class Orphans:
    """Files of a table that no version has."""

    deletions: tuple[Deletion, ...] = ()
    left: tuple[Left, ...] = ()
    """Files of writers that no ledger of the lake knows, which may still commit them."""


def orphans_of_table(log: TableLog, found: Collection[FoundFile], staged: StagedFiles) -> Orphans:
    """Return files of a table's folder that belong to no version of it, and to no commit to come.

    `found` was listed before the log, and `staged` was read before that: what was committed since
    is in the log, and what has become pending since is younger.
    """
    deletions, left = [], []
    for file in _candidates(log, found):
        why = _why(log.table.table, file, staged)
        if isinstance(why, Left):
            left.append(why)
        elif why is not None:
            kind = FileKind.VECTOR if is_vector(file.path) else FileKind.STAGED
            deletions.append(Deletion(file.path, file.size, kind, f"{_NOT_IN_LOG}, {why}"))
    if not (deletions or left):
        return Orphans()  # without reading the log
    named = log.named({*(file.path for file in deletions), *(one.name for one in left)}, log.first)
    return Orphans(
        tuple(file for file in deletions if file.path not in named),
        tuple(one for one in left if one.name not in named),
    )


def _candidates(log: TableLog, found: Collection[FoundFile]) -> Iterator[FoundFile]:
    columns = tuple(log.table.partition_columns)
    # A table within the folder of this one has a log of its own.
    nested = {file.path.partition(f"/{LOG}/")[0] for file in found if f"/{LOG}/" in file.path}
    for file in found:
        folders = file.path.split("/")[:-1]
        is_nested = any("/".join(folders[:end]) in nested for end in range(1, len(folders) + 1))
        if file.path in log.table.sizes or is_nested:
            continue
        if all(_is_of_delta(folder, columns) for folder in folders):
            yield file


def _is_of_delta(folder: str, partition_columns: Collection[str]) -> bool:
    """Whether a folder is one of a partition, or a random prefix."""
    column, is_partition, _ = folder.partition("=")
    if is_partition:
        return column in partition_columns or not column.startswith(("_", "."))
    return bool(_RANDOM_PREFIX.fullmatch(folder))


def _why(table: str, file: FoundFile, staged: StagedFiles) -> str | Left | None:
    """Return why no commit will need a file; None if one may, or if the file is not ours."""
    age = time() - file.modified
    name = file.path.rpartition("/")[2]
    numbered = StagedName.of(name)
    if age <= _HOUR:
        return None  # also that of a batch which has landed: another attempt may be under way
    if numbered is not None:
        if f"{table}/{original_path(file.path)}" in staged.pending:
            return None
        writer = staged.writers.get(numbered.writer)
        if writer is None:
            return (
                Left(file.path, "no ledger of this lake knows its writer") if age > _DAY else None
            )
        if writer.landed is not None and numbered.version <= writer.landed:
            return "and its batch has landed"
        return "and its run has ended" if age > _DAY and not writer.is_running else None
    if _OWN.fullmatch(name):
        return "and it was written more than a day ago" if age > _DAY else None
    if _OF_DELTA.fullmatch(name) or is_vector(file.path):
        return "and it was written more than a week ago" if age > _WEEK else None
    return None


def unfinished(files: Collection[FoundFile]) -> list[Deletion]:
    """Return files that were being written when their process died."""
    why = "its process died while it wrote it"
    return [
        Deletion(file.path, file.size, FileKind.UNFINISHED, why)
        for file in files
        if _UNFINISHED.fullmatch(file.path.rpartition("/")[2]) and time() - file.modified > _HOUR
    ]


def orphans_of_notes(lake: str, staged: StagedFiles) -> Orphans:
    """Return what is left beside the tables: unfinished notes, and files for merges that ended."""
    found = find_files(f"{lake}/_staged")
    deletions, left = unfinished(found), []
    for file in found:
        folder, _, path = file.path.partition("/")
        if time() - file.modified <= _DAY:
            continue
        if folder == "merges":
            why = "its merge began more than a day ago"
            deletions.append(Deletion(file.path, file.size, FileKind.MERGE, why))
        if folder == "pending" and path not in staged.pending:
            name = StagedName.of(path.rpartition("/")[2])
            writer = None if name is None else staged.writers.get(name.writer)
            if writer is None:
                left.append(Left(file.path, "no ledger of this lake knows its writer"))
            elif name and writer.landed is not None and name.version <= writer.landed:
                why = "the file it keeps is no longer pending"
                deletions.append(Deletion(file.path, file.size, FileKind.LINK, why))
    return Orphans(tuple(deletions), tuple(left))
