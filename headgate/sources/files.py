"""The source of change files: which files of its folder the next batch reads."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headgate.config import Files, PipelineConfig
from headgate.config.location import is_remote
from headgate.config.pipeline import FILES_TABLE
from headgate.errors import CheckpointError
from headgate.lake.ledger import Ledger, Progress
from headgate.lake.names import ChangeTables
from headgate.lake.query import quoted
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedBatch, StagedBatchNote, StagedFile
from headgate.lake.staged_files import read_staged
from headgate.sources.batch import (
    POLL_SECONDS,
    CaughtUp,
    Extent,
    Recovery,
    RunsJobs,
    SkippedFiles,
    SourceBatch,
    UnfinishedFiles,
    Waiting,
)
from headgate.sources.folder import LandedFile, Listing, SkippedFile, is_denied, list_files, opened
from headgate.sources.stop_signal import StopSignal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEW_LEDGER = "files"
"""Recorded in the ledger in place of a checkpoint's identity."""

_Result = TypeVar("_Result")

_GLOB = re.compile(r"([\\{}\[\]*?,])")
_TASK_SIZE = 32 << 20
"""Bytes that one task opens and stages: as fast as two that first exchange their rows."""
_FILE_COST = 1 << 20
"""Bytes that take as long as a file of its own."""
_READ_COLUMNS = ("path", "size", "modified", "batch")
FIRST_BATCH = "first_batch"
"""Column of a batch's rows: the batch that first read the file; null for a new file."""


class FileRead(NamedTuple):
    """What the table of files has on a path."""

    size: int
    modified: int
    first_batch: int
    """The batch that first read a file of this path."""


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
        self._read: dict[str, FileRead] = {}
        """The files of the folder that were read before, by path."""
        self._listed: set[str] = set()
        """All files of the folder when it was last listed."""
        self._reported: set[str] = set()
        """Paths that were reported as skipped in this run."""

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
    ) -> Generator[SourceBatch | CaughtUp | Waiting | UnfinishedFiles | SkippedFiles]:
        landed = ledger.landed()
        number = 0 if landed is None else landed + 1
        new = None if landed is not None else NEW_LEDGER
        self._add_read(self._staged([one.file for one in ledger.pending()]))
        unfinished: set[LandedFile] = set()
        while not self._stop.requested:
            listing = self._list(spark)
            if skipped := self._not_reported(listing.skipped):
                yield SkippedFiles(skipped)
            files = batch_of(
                [each for each in listing.files if each not in unfinished], self._source
            )
            if files:
                extent = {"files": len(files), "first": files[0].path, "last": files[-1].path}
                yield SourceBatch(Extent(number, None, extent), self._jobs(spark, files), new)
                self._add_read(self._read_in(number))
                new, number = None, number + 1
                waiting = {each for each in files if self._is_new(each)}
                unfinished |= waiting
                skipped = self._why_skipped(waiting)
                if reported := self._not_reported(skipped):
                    yield SkippedFiles(reported)
                if incomplete := {each.path for each in waiting} - skipped.keys():
                    yield UnfinishedFiles(tuple(sorted(incomplete)))
                continue
            yield CaughtUp()
            if self._once:
                return
            # A file that is still being written is read again, even if it looks the same.
            unfinished.clear()
            yield from self._until_trigger()

    def _until_trigger(self) -> Iterator[Waiting]:
        ends = monotonic() + self._trigger_milliseconds / 1000
        while not self._stop.requested and (left := ends - monotonic()) > 0:
            yield Waiting()
            self._stop.wait(min(left, POLL_SECONDS))

    def _add_read(self, read: Mapping[str, FileRead]) -> None:
        for path, one in read.items():
            before = self._read.get(path)
            self._read[path] = one._replace(first_batch=before.first_batch) if before else one

    def _read_in(self, number: int) -> dict[str, FileRead]:
        """Return the files that a batch has read, even if their table could not be committed."""
        committed = files_of_batch(self._pipeline.lake, number)
        if committed:
            return committed
        noted = StagedBatchNote(self._pipeline.lake, self._pipeline.name).read()
        return self._staged(noted.files if noted else ())

    def _staged(self, files: Iterable[StagedFile]) -> dict[str, FileRead]:
        """Return the files read according to rows that are not committed yet."""
        return {
            row["path"]: FileRead(row["size"], row["modified"], row["batch"])
            for file in files
            if file.table == FILES_TABLE
            for row in read_staged(self._pipeline.lake, file).to_pylist()
        }

    def _list(self, spark: SparkSession) -> Listing:
        """List the new files; those that may not be read are skipped until they may be."""
        listing = list_files(spark, self._source)
        self._look_up({each.path for each in listing.files})
        new = [each for each in listing.files if self._is_new(each)]
        denied = {
            each.path: os.strerror(errno.EACCES)
            for each in new
            if not is_remote(self._source.path) and is_denied(each.path)
        }
        files = [each for each in new if each.path not in denied]
        return Listing(files, {**listing.skipped, **denied})

    def _look_up(self, paths: set[str]) -> None:
        """Look up files that have appeared, and forget those that are gone.

        So memory is bounded by the folder, however many files it once had.
        """
        appeared = paths - self._listed - self._read.keys()
        if appeared:
            self._add_read(files_read(self._pipeline.lake, appeared))
        for path in self._listed - paths:
            self._read.pop(path, None)
        self._listed = paths

    def _not_reported(self, skipped: Mapping[str, str]) -> dict[str, str]:
        """Return the skipped files that this run has not reported yet."""
        new = {path: why for path, why in skipped.items() if path not in self._reported}
        self._reported |= new.keys()
        return new

    def _why_skipped(self, files: Collection[LandedFile]) -> dict[str, str]:
        """Return why tasks could not open files; those that can be opened are incomplete."""
        found: dict[str, str] = {}
        for file in files if not is_remote(self._source.path) else ():
            try:
                with opened(self._source.path, file.path):
                    pass
            except SkippedFile as error:
                found[file.path] = str(error)
        return found

    def _is_new(self, file: LandedFile) -> bool:
        read = self._read.get(file.path)
        return read is None or (read.size, read.modified) != (file.size, file.modified)

    def _jobs(self, spark: SparkSession, files: Sequence[LandedFile]) -> RunsJobs:
        work = sum(file.size + _FILE_COST for file in files)
        cores = spark.sparkContext.defaultParallelism
        tasks = min(len(files), cores, 1 + work // _TASK_SIZE)
        first = {
            each.path: self._read[each.path].first_batch
            for each in files
            if each.path in self._read
        }

        def run(job: Callable[[DataFrame, int], _Result]) -> _Result:
            return job(records_of_files(spark, self._source, files, first, tasks), tasks)

        return run


def files_read(lake: str, paths: Collection[str]) -> dict[str, FileRead]:
    """Return those of the files that were read before, as they were when last read."""
    if not paths:
        return {}
    between = f"path BETWEEN {quoted(min(paths))} AND {quoted(max(paths))}"
    rows = _read_rows(lake, between)
    return _last_read(rows.filter(pc.is_in(rows["path"], pa.array(paths, pa.string()))))


def files_of_batch(lake: str, batch: int) -> dict[str, FileRead]:
    """Return the files that a batch has read."""
    return _last_read(_read_rows(lake, f"batch = {batch}"))


def _read_rows(lake: str, where: str) -> pa.Table:
    table = Snapshot.newest(lake, FILES_TABLE)
    if table is None:
        return pa.table({name: pa.array([], pa.string()) for name in _READ_COLUMNS})
    names = ", ".join(_READ_COLUMNS)
    rows = table.query(f"SELECT {names} FROM stored WHERE {where} ORDER BY batch").read_all()
    at = rows.schema.get_field_index("path")
    return rows.set_column(at, "path", rows["path"].cast(pa.string()))


def _last_read(rows: pa.Table) -> dict[str, FileRead]:
    read: dict[str, FileRead] = {}
    columns = (rows[name].to_pylist() for name in _READ_COLUMNS)
    for path, size, modified, number in zip(*columns, strict=True):
        before = read.get(path)
        read[path] = FileRead(size, modified, before.first_batch if before else number)
    return read


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
    spark: SparkSession,
    source: Files,
    files: Sequence[LandedFile],
    first: Mapping[str, int],
    tasks: int,
) -> DataFrame:
    """Return a row per file; local files are read later, in the task that opens them.

    `first` are the batches that first read the files which were read before.
    """
    from pyspark.sql import functions as F

    if is_remote(source.path):
        escaped = [_GLOB.sub(r"\\\1", file.path) for file in files]
        rows = spark.read.format("binaryFile").load(escaped)
        columns = {"path": list(first), FIRST_BATCH: list(first.values())}
        types = pa.schema([("path", pa.string()), (FIRST_BATCH, pa.int64())])
        read_before = spark.createDataFrame(pa.table(columns, types))
        return (
            rows.join(F.broadcast(read_before), "path", "left")
            .select(
                F.col("content").alias("value"),
                F.col("modificationTime").alias("timestamp"),
                F.col("path").alias("file"),
                F.col(FIRST_BATCH),
            )
            .coalesce(tasks)
        )
    columns = {
        "file": pa.array([file.path for file in files], pa.string()),
        FIRST_BATCH: pa.array([first.get(file.path) for file in files], pa.int64()),
    }
    return spark.createDataFrame(pa.table(columns)).coalesce(tasks)
