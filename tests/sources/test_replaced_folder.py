"""A folder that is emptied and filled again with files of the same names: all of it lands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest

from headgate.sources.batch import CaughtUp, SourceBatch
from headgate.sources.files import FileSource
from headgate.sources.stop_signal import StopSignal
from tests.cdc.change_lake import ChangeLake
from tests.envelopes.datastream.writing import json_change
from tests.sources.test_file_source import Source

OLD = 4
SIZES = {"fewer": 2, "as many": OLD, "more": 6}
When = Literal["between runs", "during a run"]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(ChangeLake(tmp_path))


class Folder:
    """Fills a folder with changes that are all different, but as long as each other."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sent: list[str] = []
        self._numbers = count(1)

    def fill(self, changes: int) -> None:
        """Write two files with so many changes in all, and a line in each that is none."""
        for name in ("a.json", "b.json"):
            new = [f"{next(self._numbers):08d}" for _ in range(changes // 2)]
            self.sent += new
            text = [json.dumps(json_change({"id": 1, "name": one}, uuid=one)) for one in new]
            self.source.put(name, "".join(f"{line}\n" for line in [*text, f"no {new[0]}"]).encode())

    def empty(self) -> None:
        for file in self.source.landing.iterdir():
            file.unlink()

    def refill(self, changes: int) -> None:
        self.empty()
        self.fill(changes)

    def require_all_landed(self) -> None:
        landed = [row["_uuid"] for row in self.source.lake.rows("log_shop_users")]
        assert sorted(landed) == self.sent
        rejected = [row["value"].decode().strip() for row in self._quarantine()]
        assert len(rejected) == len(set(rejected)) == 4

    def _quarantine(self) -> list[dict[str, bytes]]:
        return self.source.lake.rows("quarantine")


@pytest.fixture
def folder(source: Source) -> Folder:
    return Folder(source)


def run_with(source: Source, meanwhile: Callable[[], None]) -> None:
    """Run, change the folder once the run has caught up, and stop when it has caught up again."""
    stop = StopSignal()
    reading = FileSource(source.lake.pipeline, stop, once=False, trigger_milliseconds=1)
    spark = Mock()
    spark.sparkContext.defaultParallelism = 1
    steps: Iterator[Callable[[], None]] = iter([meanwhile, stop.request])
    for found in reading.batches(spark, source.lake.ledger):
        if isinstance(found, SourceBatch):
            source.lake.land_files([*source._files(found, reading)])
        elif isinstance(found, CaughtUp):
            next(steps)()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("when", ["between runs", "during a run"])
def test_folder_that_is_filled_again_lands_completely(
    folder: Folder, source: Source, size: str, when: When
) -> None:
    folder.fill(OLD)
    if when == "during a run":
        run_with(source, lambda: folder.refill(SIZES[size]))
    else:
        source.run()
        folder.refill(SIZES[size])
        source.run()
    folder.require_all_landed()
    assert source.run() == [CaughtUp()]


@pytest.mark.parametrize("when", ["between runs", "during a run"])
def test_folder_that_is_emptied_first_lands_completely(
    folder: Folder, source: Source, when: When
) -> None:
    folder.fill(OLD)
    if when == "during a run":
        run_with(source, folder.empty)
    else:
        source.run()
        folder.empty()
        source.run()
    folder.fill(OLD)
    source.run()
    folder.require_all_landed()


def test_folder_that_is_moved_away_and_back_is_not_read_again(
    folder: Folder, source: Source, tmp_path: Path
) -> None:
    folder.fill(OLD)
    source.run()
    away = tmp_path / "away"
    source.landing.rename(away)
    source.landing.mkdir()
    folder.fill(OLD)
    source.run()
    folder.require_all_landed()
    folder.empty()
    source.landing.rmdir()
    away.rename(source.landing)
    # Its files differ from those that were read last: they are read, and nothing lands twice.
    source.run()
    folder.require_all_landed()
    assert source.run() == [CaughtUp()]
