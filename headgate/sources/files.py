"""A folder of change files: listing new files and reading them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from headgate.config import Files, PipelineConfig
from headgate.config.location import is_remote
from headgate.config.pipeline import FILES_TABLE
from headgate.errors import CheckpointError, SourceError
from headgate.lake.ledger import Ledger, Progress
from headgate.lake.names import ChangeTables
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedBatch, StagedBatchNote
from headgate.lake.staged_files import read_staged
from headgate.sources.batch import (
    CaughtUp,
    Extent,
    Recovery,
    RunsJobs,
    SourceBatch,
    UnfinishedFiles,
)
from headgate.sources.stop_signal import StopSignal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEW_LEDGER = "files"
"""Recorded in the ledger in place of a checkpoint's identity."""

_Result = TypeVar("_Result")

_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".part", ".crc", ".inprogress", "._COPYING_")
_TIME_IN_PATH = re.compile(r"/(\d{4})/(\d{2})/(\d{2})/(\d{2})/(\d{2})/[^/]+$")
_GLOB = re.compile(r"([\\{}\[\]*?,])")


@dataclass(frozen=True, order=True)
class LandedFile:
    """A listed file. A file that has grown since compares as a different one."""

    path: str
    size: int
    modified: int
    """Modification time in milliseconds since the epoch."""

    @property
    def time(self) -> datetime:
        """The time in the path; the modification time if the path has none."""
        if found := _TIME_IN_PATH.search(self.path):
            try:
                year, month, day, hour, minute = map(int, found.groups())
                return datetime(year, month, day, hour, minute, tzinfo=UTC)
            except ValueError:
                pass
        return datetime.fromtimestamp(self.modified / 1000, UTC)


class FileSource:
    """The source of change files.

    It has no checkpoint: the table of files records which ones were read, and a file that has
    grown since is read again. A batch that was staged but not completed is landed from its note.
    """

    def __init__(
        self, pipeline: PipelineConfig, stop: StopSignal, *, once: bool, trigger_milliseconds: int
    ) -> None:
        self._pipeline = pipeline
        self._source = pipeline.change_files
        self._stop = stop
        self._once = once
        self._trigger_milliseconds = trigger_milliseconds
        self._read: dict[str, tuple[int, int]] = {}
        """Size and modification time of every file read so far."""

    def recover(self, progress: Progress | None, staged: StagedBatch | None) -> Recovery:
        """Continue after the last batch; raise if there are change logs but no ledger."""
        lake = self._pipeline.lake
        if progress is None:
            logs = ChangeTables.of(self._pipeline).logs_in(lake)
            if logs:
                raise CheckpointError(
                    "lake-without-ledger",
                    f"the lake has change logs, such as {logs[0]}, but no ledger",
                    hint="restore the lake's ledger, or land into an empty lake",
                    where=lake,
                )
        landed = progress.landed if progress else None
        return Recovery(0, None if landed is None else landed + 1, lands_staged=True)

    def batches(
        self, spark: SparkSession, ledger: Ledger
    ) -> Generator[SourceBatch | CaughtUp | UnfinishedFiles]:
        landed = ledger.landed()
        number = 0 if landed is None else landed + 1
        new = None if landed is not None else NEW_LEDGER
        self._read = files_read(self._pipeline.lake)
        unfinished: set[LandedFile] = set()
        while not self._stop.requested:
            files = batch_of(
                [each for each in self._new(spark) if each not in unfinished], self._source
            )
            if files:
                extent = {"files": len(files), "first": files[0].path, "last": files[-1].path}
                yield SourceBatch(Extent(number, None, extent), self._jobs(spark, files), new)
                self._read |= self._read_in(number)
                new, number = None, number + 1
                waiting = {each for each in files if self._is_new(each)}
                unfinished |= waiting
                if waiting:
                    yield UnfinishedFiles(tuple(sorted(each.path for each in waiting)))
                continue
            yield CaughtUp()
            if self._once:
                return
            # A file that is still being written is read again, even if it looks the same.
            unfinished.clear()
            self._stop.wait(self._trigger_milliseconds / 1000)

    def _read_in(self, number: int) -> dict[str, tuple[int, int]]:
        """Return the files that a batch has read, even if their table could not be committed."""
        committed = files_read(self._pipeline.lake, number)
        if committed:
            return committed
        noted = StagedBatchNote(self._pipeline.lake, self._pipeline.name).read()
        staged = [file for file in noted.files if file.table == FILES_TABLE] if noted else []
        return {
            row["path"]: (row["size"], row["modified"])
            for file in staged
            for row in read_staged(self._pipeline.lake, file).to_pylist()
        }

    def _new(self, spark: SparkSession) -> list[LandedFile]:
        return [each for each in list_files(spark, self._source) if self._is_new(each)]

    def _is_new(self, file: LandedFile) -> bool:
        return self._read.get(file.path) != (file.size, file.modified)

    def _jobs(self, spark: SparkSession, files: Sequence[LandedFile]) -> RunsJobs:
        tasks = min(len(files), spark.sparkContext.defaultParallelism)

        def run(job: Callable[[DataFrame], _Result]) -> _Result:
            return job(records_of_files(spark, self._source, files, tasks))

        return run


def files_read(lake: str, batch: int | None = None) -> dict[str, tuple[int, int]]:
    """Return size and modification time of the files read, in one batch or in all."""
    table = Snapshot.open(lake, FILES_TABLE)
    if table is None:
        return {}
    where = "true" if batch is None else f"batch = {batch}"
    rows = table.query(
        f"SELECT path, size, modified FROM stored WHERE {where} ORDER BY batch"
    ).read_all()
    columns = (rows[name].to_pylist() for name in ("path", "size", "modified"))
    return {path: (size, modified) for path, size, modified in zip(*columns, strict=True)}


def list_files(spark: SparkSession, source: Files) -> list[LandedFile]:
    """List complete files, earliest first; hidden and temporary files are skipped."""
    listed = _listed_by_spark(spark, source.path) if is_remote(source.path) else _walk(source.path)
    found = [file for file in listed if source.start is None or file.time >= source.start]
    return sorted(found, key=lambda file: (file.time, file.path))


def batch_of(files: Sequence[LandedFile], source: Files) -> list[LandedFile]:
    """Return the first files, up to the limits of one batch."""
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
    """Return a row per file; local files are read later, in the task that opens them."""
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
    """Return a file's content with its size and modification time when it was read."""
    with open(path, "rb") as file:
        content = file.read()
        stat = os.fstat(file.fileno())
    return content, LandedFile(path, stat.st_size, stat.st_mtime_ns // 1_000_000)


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
                stat = entry.stat()
                yield LandedFile(entry.path, stat.st_size, stat.st_mtime_ns // 1_000_000)


def _entries(folder: str) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:  # removed since it was listed
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
