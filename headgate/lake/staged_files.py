"""Where staged files are: in the folder of their table, and held back from VACUUM while they are
pending.

VACUUM deletes files in a table's folder that the table does not have. So a file that cannot be
committed also gets a link in a folder that is not a table's.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headgate.lake.parquet import ParquetRows, delete_file, write_parquet
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.schema.conform import conform_chunked
from headgate.schema.fit import Fit

_REFITTED = "-fitted"


def read_staged(lake: str, file: StagedFile) -> pa.Table:
    """Read the rows of a staged file."""
    return ParquetRows(staged_path(lake, file) or str(_in_table(lake, file))).read()


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
    paths = _in_table(lake, file), _held_back(lake, file)
    return next((str(path) for path in paths if path.exists()), None)


def is_staged(lake: str, file: StagedFile) -> bool:
    """Whether a staged file exists."""
    return staged_path(lake, file) is not None


def delete_staged(lake: str, file: StagedFile) -> None:
    """Delete a staged file that will not be committed."""
    delete_file(str(_in_table(lake, file)))
    release(lake, file)


def hold_back(lake: str, file: StagedFile) -> None:
    """Keep a pending file from VACUUM.

    It also stays where it is: a commit may have succeeded although it raised an error.
    """
    path = _held_back(lake, file)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError, FileNotFoundError):
        try:
            os.link(_in_table(lake, file), path)
        except (PermissionError, NotImplementedError):  # a file system without links
            shutil.copyfile(_in_table(lake, file), path)


def bring_back(lake: str, file: StagedFile) -> bool:
    """Have a file in its table's folder; return whether it still exists."""
    path = _in_table(lake, file)
    if path.exists():
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(_held_back(lake, file), path)
    except FileNotFoundError:
        return False
    return True


def release(lake: str, file: StagedFile) -> None:
    """Give up the link to a file that is no longer pending."""
    delete_file(str(_held_back(lake, file)))


def _in_table(lake: str, file: StagedFile) -> Path:
    return Path(lake, file.table, file.path)


def _held_back(lake: str, file: StagedFile) -> Path:
    return Path(lake, "_staged", "pending", file.table, file.path)


def staged_prefix(writer: str, version: int) -> str:
    """Return how the names of all files begin that a batch stages."""
    return f"part-{writer}-{version:09d}-" if writer else f"part-{version:09d}-"


def delete_leftovers(lake: str, writer: str, version: int, files: Iterable[StagedFile]) -> int:
    """Delete the files that earlier attempts at a landed batch have staged; return their number.

    They are in the folders of the batch's tables, because every attempt reads the same records.
    """
    staged: dict[str, set[str]] = defaultdict(set)
    for file in files:
        staged[file.table].add(Path(file.path).name)
    deleted = 0
    for table, names in staged.items():
        folder = Path(lake, table)
        found = [
            path
            for path in folder.rglob(f"{staged_prefix(writer, version)}*.parquet")
            if path.name.replace(_REFITTED, "") not in names
        ]
        snapshot = Snapshot.open(lake, table) if found else None
        in_table = set(snapshot.sizes) if snapshot else set()
        for path in found:
            if path.relative_to(folder).as_posix() not in in_table:
                path.unlink(missing_ok=True)
                deleted += 1
    return deleted
