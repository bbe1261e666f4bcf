"""The source of change files: what it hands over, and what it reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from headgate.cdc.stage import change_plan
from headgate.config import Files, Size
from headgate.engine.task_results import decode_results, task_results
from headgate.lake.staged import StagedFile
from headgate.sources import files as files_module
from headgate.sources.batch import CaughtUp, SkippedFiles, SourceBatch, UnfinishedFiles
from headgate.sources.files import FileSource, batch_of
from headgate.sources.folder import LandedFile, read_local
from headgate.sources.stop_signal import StopSignal
from headgate.testing import FailingCommitter
from tests.cdc.change_lake import ChangeLake
from tests.envelopes.datastream.writing import json_change, lines


class Source:
    """A source whose batches are landed in this process."""

    def __init__(self, lake: ChangeLake) -> None:
        self.lake = lake
        self.landing = lake.folder / "landing"
        self.landing.mkdir(exist_ok=True)

    def put(self, name: str, content: bytes) -> Path:
        path = self.landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def run(self, lost: tuple[str, ...] = ()) -> list[Any]:
        """Return what a run is handed; files that are `lost` give no rows."""
        source = FileSource(self.lake.pipeline, StopSignal(), once=True, trigger_milliseconds=1)
        spark = Mock()
        spark.sparkContext.defaultParallelism = 1
        found: list[Any] = []
        for one in source.batches(spark, self.lake.ledger):
            found.append(one)
            if isinstance(one, SourceBatch):
                paths = list(self._files(one, source))
                self.lake.land_files([path for path in paths if Path(path).name not in lost])
        return found

    def _files(self, batch: SourceBatch, source: FileSource) -> Iterator[str]:
        given: list[str] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(
                files_module,
                "records_of_files",
                lambda spark, files_of, files, first, tasks: given.extend(
                    file.path for file in files
                ),
            )
            batch.run(lambda rows, tasks: None)
        return iter(given)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(ChangeLake(tmp_path))


def stage(lake: ChangeLake, *paths: Path) -> list[StagedFile]:
    """Open and stage files as a task does."""
    rows = pa.record_batch({"file": pa.array([str(path) for path in paths])})
    return decode_results(task_results(change_plan(lake.pipeline).stage([rows])))


def test_rejected_file_is_not_read_again(source: Source) -> None:
    source.put("junk", b"junk\n" * 5_000)
    source.put("a.json", lines(json_change()) + b"{}\n")
    assert [type(one) for one in source.run()] == [SourceBatch, CaughtUp]
    assert source.run() == [CaughtUp()]
    assert len(source.lake.rows("quarantine")) == 2


def test_file_is_not_read_again_while_the_table_of_files_cannot_be_committed(
    source: Source,
) -> None:
    source.put("a.json", lines(json_change()) + b"{}\n")
    source.lake.committer = failing = FailingCommitter(source.lake.committer, refusing={"_files"})
    source.run()
    assert source.run() == [CaughtUp()]
    failing.heal()
    source.lake.run()
    assert source.run() == [CaughtUp()]
    assert len(source.lake.rows("_files")) == len(source.lake.rows("quarantine")) == 1


def test_links_are_reported_once_in_a_run(source: Source) -> None:
    source.put("a.json", lines(json_change()))
    (source.landing / "link").symlink_to("/etc/passwd")
    handed = source.run()
    assert handed[0] == SkippedFiles({str(source.landing / "link"): "it is a link"})
    assert [type(one) for one in handed] == [SkippedFiles, SourceBatch, CaughtUp]
    assert [row["path"] for row in source.lake.rows("_files")] == [str(source.landing / "a.json")]


def test_file_that_may_not_be_read_waits(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = source.put("closed.json", lines(json_change()))
    source.put("open.json", lines(json_change()))
    access = os.access
    with monkeypatch.context() as patched:
        patched.setattr(
            os, "access", lambda path, mode: str(path) != str(closed) and access(path, mode)
        )
        handed = source.run()
    assert handed[0] == SkippedFiles({str(closed): "Permission denied"})
    assert len(source.lake.rows("_files")) == 1
    source.run()
    assert len(source.lake.rows("_files")) == 2


def test_file_that_tasks_could_not_open_is_reported(source: Source) -> None:
    source.put("a.json", lines(json_change()))
    gone = source.put("b.json", lines(json_change()))
    land_files = source.lake.land_files

    def removing(paths: Any) -> Any:
        gone.unlink()
        return land_files(paths)

    source.lake.land_files = removing  # type: ignore[method-assign]
    handed = source.run(lost=("b.json",))
    assert [type(one) for one in handed] == [SourceBatch, SkippedFiles, CaughtUp]
    assert handed[1] == SkippedFiles({str(gone): "it no longer exists"})


def test_file_without_a_row_is_incomplete(source: Source) -> None:
    source.put("a.json", lines(json_change()))
    part = source.put("b.json", lines(json_change()))
    handed = source.run(lost=("b.json",))
    assert handed[1] == UnfinishedFiles((str(part),))


def test_batch_lands_without_files_that_cannot_be_opened(source: Source) -> None:
    good = source.put("a.json", lines(json_change()))
    secret = source.lake.folder / "secret.json"
    secret.write_bytes(b"secret\n")
    link = source.landing / "link.json"
    link.symlink_to(secret)
    os.mkfifo(source.landing / "fifo.json")
    missing = source.landing / "missing.json"
    staged = stage(source.lake, good, link, source.landing / "fifo.json", missing, secret)
    assert {file.table: file.rows for file in staged} == {"log_shop_users": 1, "_files": 1}


def test_file_is_read_up_to_the_size_that_is_recorded(source: Source) -> None:
    file = source.put("a.json", lines(json_change()))
    size = file.stat().st_size
    content, read = read_local(str(source.landing), str(file), 10_000)
    assert (len(content or b""), read.size) == (size, size)


def test_a_batch_is_limited_by_files_and_by_bytes() -> None:
    files = [LandedFile(str(number), 10, 0) for number in range(5)]
    few = Files(path="/x", files_per_batch=3)
    assert batch_of(files, few) == files[:3]
    small = Files(path="/x", bytes_per_batch=Size.parse("25 B"))
    assert batch_of(files, small) == files[:2]
    tiny = Files(path="/x", bytes_per_batch=Size.parse("1 B"))
    assert batch_of(files, tiny) == files[:1]
