"""The files of a landing folder: which there are, and their bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.config import Files
from headgate.config.location import is_remote
from headgate.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".part", ".crc", ".inprogress", "._COPYING_")
_TIME_IN_PATH = re.compile(r"/(\d{4})/(\d{2})/(\d{2})/(\d{2})/(\d{2})/[^/]+$")
_GLOB = re.compile(r"([\\{}\[\]*?,])")


@dataclass(frozen=True, order=True)
class LandedFile:
    """A file as a listing shows it; one that has grown since is another one."""

    path: str
    size: int
    modified: int
    """In milliseconds."""

    @property
    def moment(self) -> datetime:
        """The time in its path, or else that of the file."""
        if found := _TIME_IN_PATH.search(self.path):
            try:
                year, month, day, hour, minute = map(int, found.groups())
                return datetime(year, month, day, hour, minute, tzinfo=UTC)
            except ValueError:
                pass
        return datetime.fromtimestamp(self.modified / 1000, UTC)


def list_files(spark: SparkSession, source: Files) -> list[LandedFile]:
    """All files that are there, the earliest first; those that others still write are left out."""
    listed = _listed_by_spark(spark, source.path) if is_remote(source.path) else _walk(source.path)
    found = [file for file in listed if source.start is None or file.moment >= source.start]
    return sorted(found, key=lambda file: (file.moment, file.path))


def batch_of(files: Sequence[LandedFile], source: Files) -> list[LandedFile]:
    """As many of them as one batch takes."""
    taken: list[LandedFile] = []
    size = 0
    for file in files[: source.files_per_batch]:
        size += file.size
        if taken and size > int(source.bytes_per_batch):
            break
        taken.append(file)
    return taken


def records_of_files(
    spark: SparkSession, source: Files, files: Sequence[LandedFile], tasks: int
) -> DataFrame:
    """One row a file. The bytes of local ones are read where they are opened."""
    from pyspark.sql import functions as F

    if is_remote(source.path):
        escaped = [_GLOB.sub(r"\\\1", file.path) for file in files]
        rows = spark.read.format("binaryFile").load(escaped)
        return rows.select(
            F.col("content").alias("value"),
            F.col("modificationTime").alias("timestamp"),
            F.col("path").alias("file"),
        ).coalesce(tasks)
    paths = pa.table({"file": pa.array([file.path for file in files], pa.string())})
    return spark.createDataFrame(paths).coalesce(tasks)


def read_local(path: str) -> tuple[bytes, LandedFile]:
    """A file's bytes, and what it was when they were read."""
    with open(path, "rb") as file:
        content = file.read()
        told = os.fstat(file.fileno())
    return content, LandedFile(path, told.st_size, told.st_mtime_ns // 1_000_000)


def _walk(path: str) -> Iterator[LandedFile]:
    root = path.split(":", 1)[1] if path.startswith("file:") else path
    if not os.path.isdir(root):
        raise SourceError(
            "source-missing",
            f"no folder {root}",
            hint="check `source.files.path`; headgate simulate shop creates one",
        )
    folders = [root]
    while folders:
        for entry in _entries(folders.pop()):
            if entry.name.startswith(_HIDDEN):
                continue
            if entry.is_dir():
                folders.append(entry.path)
            elif not entry.name.endswith(_UNFINISHED):
                told = entry.stat()
                yield LandedFile(entry.path, told.st_size, told.st_mtime_ns // 1_000_000)


def _entries(folder: str) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:  # removed meanwhile
        return []


def _listed_by_spark(spark: SparkSession, path: str) -> Iterator[LandedFile]:
    rows = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(path)
        .select("path", "length", "modificationTime")
    )
    for row in rows.toLocalIterator():
        modified = int(row["modificationTime"].timestamp() * 1000)
        yield LandedFile(row["path"], row["length"], modified)
