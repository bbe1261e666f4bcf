"""Where staged files are: in the folder of their table, and held back from VACUUM while they are
pending.

VACUUM deletes files in a table's folder that the table does not have. So a file that cannot be
committed also gets a link in a folder that is not a table's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Self

import pyarrow as pa

from headgate.lake.log import LogEntry
from headgate.lake.parquet import ParquetRows, write_parquet
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.storage import copy_file, delete_file, has_file, link_file, list_files
from headgate.lake.tables import table_url
from headgate.schema.conform import conform_chunked
from headgate.schema.fit import Fit

_REFITTED = "-fitted"


def read_staged(lake: str, file: StagedFile) -> pa.Table:
    """Read the rows of a staged file."""
    return ParquetRows(staged_path(lake, file) or _in_table(lake, file)).read()


def refit_file(lake: str, file: StagedFile, fitted: Fit) -> StagedFile:
    """Write the rows of a staged file to a new one, under the table's names and types."""
    rows = read_staged(lake, file)
    columns = [
        conform_chunked(rows.column(one.source), one.type) if one.type else rows.column(one.source)
        for one in fitted.mappings
    ]
    refitted = pa.table(columns, names=[one.target for one in fitted.mappings])
    name = f"{file.path.removesuffix('.parquet')}{_REFITTED}.parquet"
    new = write_parquet(lake, file.table, name, refitted)
    return replace(
        file,
        path=new.path,
        size=new.size,
        statistics=new.statistics,
        schema_bytes=new.schema_bytes,
    )


def staged_path(lake: str, file: StagedFile) -> str | None:
    """Return where a staged file is; None if it is gone."""
    return next(filter(has_file, (_in_table(lake, file), _held_back(lake, file))), None)


def is_staged(lake: str, file: StagedFile) -> bool:
    """Whether a staged file exists."""
    return staged_path(lake, file) is not None


def delete_staged(lake: str, file: StagedFile) -> None:
    """Delete a staged file that will not be committed."""
    delete_file(_in_table(lake, file))
    release(lake, file)


def hold_back(lake: str, file: StagedFile) -> None:
    """Keep a pending file from VACUUM.

    It also stays where it is: a commit may have succeeded although it raised an error.
    """
    with suppress(FileNotFoundError):
        link_file(_in_table(lake, file), _held_back(lake, file))


def bring_back(lake: str, file: StagedFile) -> bool:
    """Have a file in its table's folder; return whether it still exists."""
    if has_file(_in_table(lake, file)):
        return True
    try:
        copy_file(_held_back(lake, file), _in_table(lake, file))
    except FileNotFoundError:
        return False
    return True


def release(lake: str, file: StagedFile) -> None:
    """Give up the link to a file that is no longer pending."""
    delete_file(_held_back(lake, file))


def _in_table(lake: str, file: StagedFile) -> str:
    return f"{table_url(lake, file.table)}/{file.path}"


def _held_back(lake: str, file: StagedFile) -> str:
    return f"{lake}/_staged/pending/{file.table}/{file.path}"


def writer_of(app: str) -> str:
    """Return the part of the names of staged files that is different for each pipeline."""
    return blake2b(app.encode(), digest_size=4).hexdigest()


def staged_prefix(writer: str, version: int) -> str:
    """Return how the names of all files begin that a batch stages."""
    return f"part-{writer}-{version:09d}-" if writer else f"part-{version:09d}-"


@dataclass(frozen=True)
class StagedName:
    """What the name of a file says that a batch has staged."""

    writer: str
    """Empty in files of earlier versions."""
    version: int

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Return None for a file that no batch has staged."""
        match = _STAGED.fullmatch(name)
        return match and cls(match[1] or "", int(match[2]))


_STAGED = re.compile(r"part-(?:([0-9a-f]{8})-)?(\d{9})-.+\.parquet")


def original_path(path: str) -> str:
    """Return the path of the file whose rows a refitted file has; of any other, its own path."""
    return path.replace(_REFITTED, "")


def delete_leftovers(lake: str, app: str, version: int, files: Iterable[StagedFile]) -> int:
    """Delete the files that earlier attempts at a landed batch have staged; return their number.

    They are in the folders of the batch's tables, because every attempt reads the same records.
    No attempt can commit files any more to a table that has the mark of the batch. Those of other
    tables, which are pending, are left to maintenance.
    """
    staged: dict[str, set[str]] = defaultdict(set)
    for file in files:
        staged[file.table].add(_name(file.path))
    deleted = 0
    for table, names in staged.items():
        found = [
            path
            for path in list_files(table_url(lake, table), staged_prefix(writer_of(app), version))
            if original_path(_name(path)) not in names
        ]
        snapshot = Snapshot.open(lake, table) if found else None
        committed = None if snapshot is None else _committed(snapshot, app, version)
        for path in found:
            if committed is not None and path not in committed:
                delete_file(f"{table_url(lake, table)}/{path}")
                deleted += 1
    return deleted


_MAX_COMMITS = 1_000
"""Commits of others since the batch before that are looked at."""


def _committed(table: Snapshot, app: str, version: int) -> set[str] | None:
    """Return the files that a table got since a batch began; None if that is not known."""
    marked = table.mark(app)
    if marked is None or marked < version:
        return None
    committed = set(table.sizes)
    for number in range(table.version, max(-1, table.version - _MAX_COMMITS), -1):
        try:
            entry = LogEntry.read(table.url, number)
        except FileNotFoundError:
            return committed  # of versions that have expired
        if entry.marks.get(app, version) < version:
            return committed
        committed.update(entry.paths)
    return committed if table.version < _MAX_COMMITS else None


def _name(path: str) -> str:
    return path.rpartition("/")[2]
