"""Maintenance of a pipeline: files stay few, rows stay the same, whatever runs beside it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable, TableFeatures

from headgate import maintain as maintenance
from headgate.config import Maintain, Size
from headgate.engine.batch import BatchLander
from headgate.engine.events import MaintenanceFailed, TablesMaintained
from headgate.engine.follow_up import TableChanged
from headgate.lake import delta_rs, ledger
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.staged_files import staged_prefix, writer_of
from headgate.lake.tables import CommitConflict
from headgate.maintain import MaintainFollowUp, maintain, owned_tables
from headgate.testing import FailingCommitter
from tests.engine.games import BROKEN, WIDER, GamesLake, record

ROUTES = ("chess", "go", "mahjong")


def land(lake: GamesLake, batches: int, first: int = 0) -> None:
    for number in range(first, first + batches):
        lake.land([record(route, number) for route in ROUTES])


def files(lake: GamesLake, table: str) -> int:
    return len(DeltaTable(lake.path / table).file_uris())


def numbers(lake: GamesLake, table: str) -> list[int]:
    return sorted(row["n"] for row in lake.rows(table, "n"))


def test_a_run_keeps_files_few(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, maintain=True, bronze="bronze")
    land(lake, 40)
    for route in ROUTES:
        assert files(lake, f"silver_{route}") < 25
        assert numbers(lake, f"silver_{route}") == [*range(40)]
    assert any(isinstance(event, TablesMaintained) for event in lake.events)
    assert files(lake, "bronze") < 3 * 25
    assert len(lake.rows("bronze")) == 120


def test_without_maintenance_every_batch_leaves_a_file(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 20)
    assert files(lake, "silver_chess") == 20


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables have a checkpoint every ten versions: the oldest one kept needs one."""
    monkeypatch.setattr(delta_rs, "_CONFIGURATION", {"delta.checkpointInterval": "10"})


@pytest.mark.usefixtures("checkpoints")
def test_a_run_keeps_versions_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_EXPIRED_EVERY", 16)
    lake = GamesLake(tmp_path, maintain={"max_versions": 20})
    land(lake, 70)
    for table in ("silver_chess", "silver_go"):
        folder = lake.path / table
        assert len(list((folder / "_delta_log").glob("*.json"))) <= 20 + 16 + 10
        assert len(list(folder.glob("*.parquet"))) < 60
        assert numbers(lake, table) == [*range(70)]


def test_tables_of_a_batch_take_turns() -> None:
    follow_up = MaintainFollowUp.__new__(MaintainFollowUp)
    follow_up._seen, follow_up._due = {}, {}
    due = []
    for version in range(32):
        follow_up._due = {}
        for number in range(100):
            follow_up._see(TableChanged(f"silver_{number}", version=version))
        due.append(len(follow_up._due))
    assert sum(due) == 200
    assert max(due) < 20


def test_a_table_that_cannot_be_maintained_lands_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CommitConflict("another writer")

    monkeypatch.setattr(DeltaRsCommitter, "_combine", refuse)
    lake = GamesLake(tmp_path, maintain=True)
    land(lake, 40)
    assert numbers(lake, "silver_chess") == [*range(40)]
    failed = [event for event in lake.events if isinstance(event, MaintenanceFailed)]
    assert {event.table for event in failed} >= {"silver_chess"}
    assert all("another writer" in event.text for event in failed)


@pytest.mark.usefixtures("checkpoints")
def test_what_would_be_done_is_what_is_done(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 30)
    lake.declare(maintain=Maintain(max_versions=20))
    orphan = (
        lake.path / "silver_chess" / f"{staged_prefix(writer_of('headgate:games'), 5)}a.parquet"
    )
    orphan.write_bytes(b"x")
    os.utime(orphan, (0, 0))
    before = {path for path in lake.path.rglob("*") if path.is_file()}
    planned = lake.pipeline.run_maintenance(dry_run=True)
    assert {path for path in lake.path.rglob("*") if path.is_file()} == before
    done = lake.pipeline.run_maintenance()
    assert [one.table for one in done] == [one.table for one in planned]
    assert list(done) == list(planned)
    (chess,) = (one for one in done if one.table == "silver_chess")
    assert chess.compacted.files == 30
    assert chess.compacted.into == 1
    assert chess.versions > 0
    assert [file.path for file in chess.deletions if file.kind == "staged file"] == [orphan.name]
    assert not orphan.exists()
    assert numbers(lake, "silver_chess") == [*range(30)]
    assert not [one for one in lake.pipeline.run_maintenance() if one.compacted.files]


def test_tables_are_chosen_by_name_or_pattern(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 3)
    assert [one.table for one in maintain(lake.pipeline, ("silver_g*",))] == ["silver_go"]
    assert files(lake, "silver_go") == 1
    assert files(lake, "silver_chess") == 3


def test_no_further_table_is_begun_when_the_time_is_up(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 3)
    assert not lake.pipeline.run_maintenance(at_most="1ms")[3:]


def test_owned_tables_are_those_of_the_ledger(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 1)
    lake.land([record("chess", 1, BROKEN)])
    (lake.path / "somebody_elses").mkdir()
    assert set(owned_tables(lake.pipeline)) == {
        *(f"silver_{route}" for route in ROUTES),
        "ledger",
        "quarantine",
    }


def test_batches_land_while_tables_are_maintained(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 5)
    ended = threading.Event()
    failures: list[str] = []

    def keep_maintaining() -> None:
        while not ended.is_set():
            done = maintain(lake.pipeline, ("silver_*", "quarantine"))
            failures.extend(one.error for one in done if one.error)

    thread = threading.Thread(target=keep_maintaining)
    thread.start()
    try:
        land(lake, 20, first=5)
        for number in range(25, 30):
            lake.land([record(route, number, WIDER) for route in ROUTES])
    finally:
        ended.set()
        thread.join()
    for route in ROUTES:
        assert numbers(lake, f"silver_{route}") == [*range(30)]
    assert all("Conflict" in error or "Commit" in error for error in failures)


def test_file_size_is_that_of_the_pipeline(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, maintain={"file_size": "1 MB"})
    assert lake.pipeline.maintain == Maintain(file_size=Size.parse("1 MB"))


def age(folder: Path, days: int = 30) -> None:
    """Let all files be old; notes and entries of logs, too."""
    for path in folder.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - days * 24 * 3600
            os.utime(path, (then, then))


@pytest.mark.parametrize("ledger", ["ledger", "ledger_of_other"])
def test_pending_files_of_other_pipelines_stay(tmp_path: Path, ledger: str) -> None:
    lake, other = GamesLake(tmp_path), GamesLake(tmp_path, name="other", ledger=ledger)
    land(lake, 2)
    committer = other.committer
    other.committer = FailingCommitter(committer, refusing={"silver_chess"})
    land(other, 2, first=10)
    age(lake.path)
    planned = maintain(lake.pipeline, dry_run=True)
    assert [one.deletions for one in planned if one.deletions] == []
    maintain(lake.pipeline)
    age(lake.path)
    other.committer = committer
    land(other, 1, first=12)
    assert numbers(lake, "silver_chess") == [0, 1, 10, 11, 12]


def test_a_staged_batch_waits_for_its_run_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("killed")

    lake = GamesLake(tmp_path)
    land(lake, 2)
    with monkeypatch.context() as killed:
        killed.setattr(BatchLander, "_commit", crash)
        with pytest.raises(RuntimeError, match="killed"):
            land(lake, 1, first=2)
    age(lake.path)
    maintain(lake.pipeline)
    again = GamesLake(tmp_path)
    again.run()
    assert numbers(again, "silver_chess") == [0, 1, 2]


def test_refitted_files_of_pending_ones_stay(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 1)
    committer = lake.committer
    lake.committer = FailingCommitter(committer, refusing={"silver_chess"})
    land(lake, 1, first=1)
    (pending,) = lake.pipeline.pending()
    refitted = lake.path / "silver_chess" / pending.file.replace(".parquet", "-fitted.parquet")
    refitted.write_bytes(b"x")
    age(lake.path)
    maintain(lake.pipeline)
    assert refitted.exists()


def test_a_run_goes_on_though_its_ledger_cannot_be_maintained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise FileNotFoundError("gone")

    monkeypatch.setattr(ledger, "_COMPACTED_EVERY", 2)
    monkeypatch.setattr("headgate.lake.maintain.plan_maintenance", refuse)
    lake = GamesLake(tmp_path)
    land(lake, 5)
    assert numbers(lake, "silver_chess") == [*range(5)]


def test_a_dry_run_says_what_only_spark_can_combine(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    land(lake, 3)
    table = DeltaTable(lake.path / "silver_chess")
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    (chess,) = maintain(lake.pipeline, ("silver_chess",), dry_run=True)
    assert (chess.engine, chess.compacted.files, chess.compacted.into) == ("spark", 3, 1)
    lake.declare(commit="delta-rs")
    (chess,) = maintain(lake.pipeline, ("silver_chess",))
    assert chess.error is None
    assert [left.name for left in chess.left] == ["small files"]
