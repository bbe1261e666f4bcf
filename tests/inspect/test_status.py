from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.errors import LandingError
from headgate.inspect.status import read_status
from headgate.lake.run_lock import run_lock
from headgate.lake.staged import StagedBatch
from headgate.quarantine.operations import replay_quarantine
from headgate.testing import Crash
from tests.inspect.quarantined_lake import RUBBISH, UNKNOWN, make_quarantined_lake
from tests.inspect.small_lake import SmallLake
from tests.quarantine.replaying import Step, crash_at


def test_status_accounts_for_every_record(lake: SmallLake) -> None:
    status = read_status(lake.pipeline)
    assert status.rows + sum(status.quarantined.values()) == lake.sent == 300
    assert status.tables == 5
    assert status.batches == 2
    assert status.schema_changes == 1
    assert status.pending == ()


def test_status_tells_the_last_batch(lake: SmallLake) -> None:
    last = read_status(lake.pipeline).last_batch
    assert last is not None
    assert (last.batch, last.tables) == (1, 5)
    assert 0 < last.rows <= 100
    assert timedelta() <= datetime.now(UTC) - last.at < timedelta(hours=1)


def test_status_of_a_pipeline_that_never_ran(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    shutil.rmtree(lake.pipeline.lake)
    status = read_status(lake.pipeline)
    assert (status.batches, status.rows, status.tables) == (0, 0, 0)
    assert status.last_batch is None
    assert status.quarantined == {}


def test_status_names_a_batch_that_is_staged(empty_lake: SmallLake) -> None:
    empty_lake.landing.note.write(StagedBatch(0, 0, {}, {}, ()))
    assert read_status(empty_lake.pipeline).open_batch == 0


def test_status_names_tables_that_wait(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, refused=["silver_go"])
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    (waiting,) = read_status(lake.pipeline).pending
    assert waiting.table == "silver_go"
    assert waiting.rows + read_status(lake.pipeline).rows == 50
    assert waiting.error == "OSError: silver_go cannot be written"


def test_status_forgets_tables_that_have_landed_since(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, refused=["silver_go"])
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    lake.committer.heal()
    lake.landing.run()
    status = read_status(lake.pipeline)
    assert status.pending == ()
    assert status.rows == 50
    assert status.batches == 1


def test_status_keeps_tables_that_still_wait_when_others_have_landed(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, refused=["silver_go", "silver_chess"])
    lake.register(2, versions=[1])
    lake.land(50, bad_share=0)
    assert len(read_status(lake.pipeline).pending) == 2
    lake.committer.refusing.remove("silver_chess")
    lake.landing.run()
    assert [each.table for each in read_status(lake.pipeline).pending] == ["silver_go"]


def test_status_knows_a_run_that_is_going_on(lake: SmallLake) -> None:
    pipeline = lake.pipeline
    assert read_status(pipeline).run is None
    with run_lock(pipeline.lake, pipeline.name, pipeline.name):
        assert read_status(pipeline).run is not None
    assert read_status(pipeline).run is None


def test_status_of_an_unreadable_ledger_is_an_error(empty_lake: SmallLake) -> None:
    log = Path(empty_lake.pipeline.lake, "ledger", "_delta_log")
    for entry in log.iterdir():
        entry.write_text("nonsense")
    with pytest.raises(LandingError) as caught:
        read_status(empty_lake.pipeline)
    assert caught.value.code == "lake-unreadable"


def test_status_counts_what_was_replayed_as_landed(tmp_path: Path) -> None:
    lake = make_quarantined_lake(tmp_path)
    before = read_status(lake.pipeline)
    assert (before.rows, sum(before.quarantined.values())) == (20, UNKNOWN + RUBBISH)
    replay_quarantine(lake.pipeline)
    status = read_status(lake.pipeline)
    assert (status.rows, status.tables) == (20 + UNKNOWN, 2)
    assert (sum(status.quarantined.values()), status.replayed) == (RUBBISH, UNKNOWN)
    assert status.schema_changes > before.schema_changes
    assert status.batches == before.batches
    assert not status.replay_cut_short


def test_status_tells_of_a_replay_that_was_cut_short(tmp_path: Path) -> None:
    lake = make_quarantined_lake(tmp_path)
    with crash_at(Step.BEFORE_MARKING), pytest.raises(Crash):
        replay_quarantine(lake.pipeline)
    assert read_status(lake.pipeline).replay_cut_short
    replay_quarantine(lake.pipeline)
    assert not read_status(lake.pipeline).replay_cut_short
