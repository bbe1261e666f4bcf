"""A disk that is full: the run says so, and lands everything once there is space again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headgate.config import Delta, PipelineConfig, Registry
from headgate.engine.runner import RunOptions
from headgate.errors import LandingError
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan
from headgate.run import run_pipeline
from tests.faults.small_disk import SmallDisk, small_disk
from tests.kills.workloads import Games
from tests.rounds import rounds
from tests.run.conftest import WRAPPER, places, simulate

ENOUGH = 64 << 10
ONCE = RunOptions(once=True)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kilobytes", [pytest.param(100, marks=pytest.mark.soak), 300])
def test_run_on_a_full_disk_ends_and_lands_everything_later(kilobytes: int, tmp_path: Path) -> None:
    inbox = str(tmp_path / "inbox")
    plan = GamesPlan(tables=10, versions=3, records=12_000, bad_share=0.01)
    registry = Registry(folder=str(tmp_path / "schemas"))
    simulate(plan, registry, DeltaDestination(inbox, "games"))
    with small_disk(tmp_path / "disk", kilobytes) as disk:
        pipeline = PipelineConfig(
            name="games",
            source=Delta(path=inbox),
            registry=registry,
            envelope=WRAPPER,
            lake=str(disk.path / "lake"),
        )
        with pytest.raises(LandingError) as failed:
            run_pipeline(pipeline, ONCE)
        assert (failed.value.code, failed.value.message) == ("batch-failed", "the disk is full")
        assert failed.value.hint
        disk.resize(ENOUGH)
        run_pipeline(pipeline, ONCE)
        found = places(pipeline.lake) + places(pipeline.lake, "quarantine")
        assert found.total() == 12_000
        assert set(found.values()) == {1}


@rounds(1, 60)
def test_disk_that_is_full_at_any_point_loses_nothing(tmp_path: Path, cases: int) -> None:
    needed = _kilobytes_needed(tmp_path / "whole")
    for case in range(cases):
        with small_disk(tmp_path / str(case), 16 + needed * case // cases) as disk:
            _land_on_full_disk(disk)


def _land_on_full_disk(disk: SmallDisk) -> None:
    work = Games()
    try:
        work.prepare(disk.path)
        work.run(disk.path)
    except Exception as error:
        if "No space left on device" not in str(error):
            raise
    disk.resize(ENOUGH)
    work.prepare(disk.path)
    work.run(disk.path)
    work.check(disk.path)


def _kilobytes_needed(folder: Path) -> int:
    """Return the size of a whole lake in blocks of a file system."""
    work = Games()
    work.prepare(folder)
    work.run(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    needed = sum(-(-path.stat().st_size // 4096) * 4 for path in files)
    shutil.rmtree(folder)
    return needed
