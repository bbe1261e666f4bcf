"""Expiry of versions: what is deleted is what no kept version has."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.lake.commit import Commit, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.expire import declared_retention
from headgate.lake.log import LogEntry, versions_of_entries, write_entry
from headgate.lake.maintain import (
    MaintenancePlan,
    MaintenancePolicy,
    apply_plan,
    plan_maintenance,
)
from headgate.lake.open_tables import TableCache
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import write_checkpoint
from tests.lake.staged import files_in, rows_in, staged

MB = 1 << 20
WEEK = timedelta(days=7)
OFTEN = {"delta.checkpointInterval": "10"}


def lake_with(lake: Path, count: int) -> DeltaRsCommitter:
    """A table of a row per version, compacted at every eighth."""
    committer = DeltaRsCommitter(str(lake))
    for number in range(count):
        file = staged(lake, "t", {"n": [number]})
        marks = (Mark("app", number),)
        committer.commit(Commit("t", file.schema, (file,), marks, properties=OFTEN))
        if number % 8 == 7:
            committer.compact("t", MB)
    return committer


def table_in(lake: Path) -> Snapshot:
    table = Snapshot.open(str(lake), "t")
    assert table is not None
    return table


def plan(lake: Path, keep: timedelta = WEEK, max_versions: int | None = None) -> MaintenancePlan:
    policy = MaintenancePolicy(keep=keep, max_versions=max_versions)
    return plan_maintenance(table_in(lake), policy)


def expire(lake: Path, keep: timedelta = WEEK, max_versions: int | None = None) -> int:
    result = apply_plan(DeltaRsCommitter(str(lake)), plan(lake, keep, max_versions))
    assert result.error is None
    return result.versions


def paths(plan: MaintenancePlan, in_log: bool) -> list[str]:
    return [file.path for file in plan.deletions if file.path.startswith("_delta_log/") is in_log]


def versions(lake: Path) -> list[int]:
    return versions_of_entries(os.listdir(lake / "t" / "_delta_log"))


def age(lake: Path, *, up_to: int, by: timedelta) -> None:
    then = time.time() - by.total_seconds()
    for version in range(up_to + 1):
        os.utime(lake / "t" / "_delta_log" / f"{version:020d}.json", (then, then))


def test_all_versions_are_kept_that_are_new_and_few(tmp_path: Path) -> None:
    lake_with(tmp_path, 30)
    assert expire(tmp_path, max_versions=1000) == 0
    assert versions(tmp_path)[0] == 0


def test_only_a_number_of_versions_is_kept(tmp_path: Path) -> None:
    lake_with(tmp_path, 60)
    newest = versions(tmp_path)[-1]
    assert expire(tmp_path, max_versions=20) > 30
    kept = versions(tmp_path)
    assert 20 <= len(kept) <= 31
    assert kept == [*range(kept[0], newest + 1)]
    assert [row["n"] for row in rows_in(tmp_path, "t", "n")] == [*range(60)]


def test_kept_versions_can_be_read_and_no_file_is_left_over(tmp_path: Path) -> None:
    lake_with(tmp_path, 60)
    expire(tmp_path, max_versions=20)
    needed: set[str] = set()
    for version in versions(tmp_path):
        table = DeltaTable(tmp_path / "t", version=version)
        assert len(table.to_pyarrow_table()) == len(
            {row["n"] for row in table.to_pyarrow_table().to_pylist()}
        )
        needed |= {uri.rpartition("/")[2] for uri in table.file_uris()}
    assert {path for path in files_in(tmp_path, "t") if not path.startswith("_")} == needed


def test_versions_are_kept_for_a_time(tmp_path: Path) -> None:
    lake_with(tmp_path, 40)
    age(tmp_path, up_to=25, by=timedelta(days=8))
    assert expire(tmp_path, WEEK) > 0
    oldest = versions(tmp_path)[0]
    assert 15 <= oldest <= 25
    assert DeltaTable(tmp_path / "t", version=25).version() == 25
    assert len(rows_in(tmp_path, "t", "n")) == 40


def test_an_old_table_that_nobody_writes_keeps_its_newest_version(tmp_path: Path) -> None:
    lake_with(tmp_path, 40)
    newest = versions(tmp_path)[-1]
    age(tmp_path, up_to=newest, by=timedelta(days=100))
    expire(tmp_path, WEEK)
    assert versions(tmp_path)[-1] == newest
    assert len(rows_in(tmp_path, "t", "n")) == 40


def test_what_was_deleted_half_is_deleted_next_time(tmp_path: Path) -> None:
    lake_with(tmp_path, 60)
    expired = plan(tmp_path, WEEK, 20)
    for path in (*paths(expired, in_log=False)[::2], *paths(expired, in_log=True)[:5]):
        (tmp_path / "t" / path).unlink()
    assert expire(tmp_path, max_versions=20) > 0
    assert len(rows_in(tmp_path, "t", "n")) == 60
    assert not any((tmp_path / "t" / file.path).exists() for file in expired.deletions)


def test_restored_files_stay(tmp_path: Path) -> None:
    committer = lake_with(tmp_path, 20)
    DeltaTable(tmp_path / "t").restore(6)
    for number in range(100, 140):
        file = staged(tmp_path, "t", {"n": [number]})
        committer.commit(Commit("t", file.schema, (file,)))
    before = rows_in(tmp_path, "t", "n")
    assert expire(tmp_path, max_versions=20) > 0
    assert rows_in(tmp_path, "t", "n") == before


def test_a_log_without_checkpoints_is_left_alone(tmp_path: Path) -> None:
    lake_with(tmp_path, 60)
    for checkpoint in (tmp_path / "t" / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    assert plan(tmp_path, WEEK, 20).versions == 0


def test_readers_that_have_the_table_open_go_on(tmp_path: Path) -> None:
    committer = lake_with(tmp_path, 40)
    tables = TableCache(str(tmp_path))
    opened = tables.newest("t")
    for number in range(40, 80):
        file = staged(tmp_path, "t", {"n": [number]})
        committer.commit(Commit("t", file.schema, (file,)))
    expire(tmp_path, max_versions=20)
    newest = tables.newest("t")
    assert opened is not None
    assert newest is not None
    assert newest.delta.count() == 80
    file = staged(tmp_path, "t", {"n": [80]})
    committer.commit(Commit("t", file.schema, (file,)))
    assert len(rows_in(tmp_path, "t", "n")) == 81


@pytest.mark.parametrize(
    "path", ["../other/part-1.parquet", "/etc/hosts", "s3://other/part-1.parquet"]
)
def test_files_outside_of_the_table_are_never_deleted(tmp_path: Path, path: str) -> None:
    """A log may be written by anyone."""
    committer = lake_with(tmp_path, 3)
    removed = {"path": path, "dataChange": False, "deletionTimestamp": 0, "size": 1}
    write_entry(str(tmp_path / "t"), 3, [{"remove": removed}])
    for number in range(4, 60):
        file = staged(tmp_path, "t", {"n": [number]})
        committer.commit(Commit("t", file.schema, (file,)))
    expired = plan(tmp_path, WEEK, 20)
    assert expired.versions > 3
    assert path not in paths(expired, in_log=False)
    assert LogEntry.read(str(tmp_path / "t"), 3).removed_files == [removed]


def test_what_a_commit_meanwhile_brings_back_stays(tmp_path: Path) -> None:
    committer = lake_with(tmp_path, 60)
    expired = plan(tmp_path, WEEK, 20)
    path = paths(expired, in_log=False)[0]
    add = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 0,
        "dataChange": True,
    }
    write_entry(str(tmp_path / "t"), expired.version + 1, [{"add": add}])
    result = apply_plan(committer, expired)
    assert path not in [file.path for file in result.deletions]
    assert (tmp_path / "t" / path).exists()


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ({}, timedelta()),
        ({"delta.deletedFileRetentionDuration": "interval 1 hours"}, timedelta()),
        ({"delta.deletedFileRetentionDuration": "interval 2 weeks"}, timedelta(weeks=2)),
        ({"delta.logRetentionDuration": "90 days"}, timedelta(days=90)),
        ({"delta.logRetentionDuration": "interval 1 day 3 hours"}, None),
        ({"delta.enableExpiredLogCleanup": "FALSE"}, None),
    ],
)
def test_a_table_may_declare_to_keep_versions_for_longer(
    properties: dict[str, str | None], kept: timedelta | None
) -> None:
    assert declared_retention(properties) == kept


def test_what_a_table_declares_is_kept(tmp_path: Path) -> None:
    lake_with(tmp_path, 60)
    retention = {"delta.logRetentionDuration": "interval 10 days"}
    DeltaTable(tmp_path / "t").alter.set_table_properties(retention)
    age(tmp_path, up_to=50, by=timedelta(days=8))
    assert expire(tmp_path, WEEK, 20) == 0
    age(tmp_path, up_to=50, by=timedelta(days=11))
    assert expire(tmp_path, WEEK, 20) > 0


@pytest.mark.parametrize("keeps_all", [False, True])
def test_a_checkpoint_cleans_up_unless_the_table_keeps_all(tmp_path: Path, keeps_all: bool) -> None:
    lake_with(tmp_path, 5)
    table = DeltaTable(tmp_path / "t")
    if keeps_all:
        table.alter.set_table_properties({"delta.enableExpiredLogCleanup": "false"})
    table.create_checkpoint()
    age(tmp_path, up_to=versions(tmp_path)[-1], by=timedelta(days=90))
    write_checkpoint(str(tmp_path / "t"), clean_up=True)
    assert (versions(tmp_path)[0] == 0) is keeps_all
