"""Whatever the history of a table, maintenance keeps every version that can be read, every file
that somebody may still commit, and every file that is not of Delta or Headgate."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest
from deltalake import DeltaTable

from headgate.lake.commit import Mark, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.maintain import (
    MaintenancePlan,
    MaintenancePolicy,
    apply_plan,
    plan_maintenance,
)
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import staged_prefix, writer_of
from headgate.lake.writers import StagedFiles, Writer
from tests.lake.committer_contract import numbers
from tests.lake.histories import History

OWN, OTHER, UNKNOWN = (writer_of(f"headgate:{name}") for name in ("games", "other", "unknown"))
LONG_AGO = 30 * 24 * 3600
POLICY = MaintenancePolicy(keep=timedelta(days=365), max_versions=6)


def age(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - LONG_AGO
            os.utime(path, (then, then))


def plan(lake: Path, staged: StagedFiles | None) -> MaintenancePlan:
    table = Snapshot.open(str(lake), "t")
    assert table is not None
    return plan_maintenance(table, POLICY, staged)


class Strays:
    """Files in a table's folder that no version has."""

    def __init__(self, folder: Path) -> None:
        def named(writer: str, batch: int, end: str = "") -> str:
            return f"{staged_prefix(writer, batch)}{uuid4()}{end}.parquet"

        waiting, refitted = named(OWN, 3), named(OTHER, 2)
        self.pending = [waiting, refitted, refitted.replace(".parquet", "-fitted.parquet")]
        self.to_come = [named(OTHER, 8), named(UNKNOWN, 1)]
        self.theirs = [
            *("_checkpoints/offsets/0", "_spark_metadata/0", "metadata/v1.metadata.json"),
            *("notes.txt", ".hidden/part-0.parquet", f"sub/part-00000-{uuid4()}.parquet"),
            *("_symlink_format_manifest/manifest", "_delta_log/_sidecars/a.parquet"),
            *("_delta_log/00000000000000000000.crc", "_delta_log/_staged_commits/1.json"),
        ]
        self.orphans = [
            *(named(OWN, 4), named(OWN, 5, "-fitted"), f"part-{uuid4()}.parquet"),
            *(f"part-00000-{uuid4()}-c000.snappy.parquet", f"deletion_vector_{uuid4()}.bin"),
        ]
        for path in (*self.pending, *self.to_come, *self.theirs, *self.orphans):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x")
        writers = {OWN: Writer(7, is_running=True), OTHER: Writer(7, is_running=True)}
        paths = (path for path in self.pending if "-fitted" not in path)
        self.staged = StagedFiles(writers, frozenset(f"t/{path}" for path in paths))


@pytest.mark.parametrize("seed", range(25))
def test_retained_versions_stay_as_they_are(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    folder = tmp_path / "t"
    history, strays = History(folder, random), Strays(folder)
    committer = DeltaRsCommitter(str(tmp_path))
    for _ in range(4):
        for _ in range(random.randint(1, 12)):
            history.grow()
        age(folder)
        made = plan(tmp_path, random.choice([strays.staged, None]))
        for _ in range(random.choice([0, 0, 1, 3])):
            history.grow()  # others commit between the plan and what it does
        result = apply_plan(committer, made)
        assert result.error is None
        history.assert_readable(history.oldest)
        for path in (*strays.pending, *strays.to_come, *strays.theirs):
            assert (folder / path).exists(), path
    age(folder)
    result = apply_plan(committer, plan(tmp_path, strays.staged))
    assert {left.name for left in result.left} == {strays.to_come[1]}
    assert not any((folder / path).exists() for path in strays.orphans)
    history.assert_readable(history.oldest)


@pytest.mark.parametrize("seed", range(5))
def test_no_file_is_left_that_no_version_needs(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "t"
    history = History(folder, Random(seed))
    for _ in range(30):
        history.grow()
    DeltaTable(folder).create_checkpoint()
    for _ in range(8):
        history.append()
    age(folder)
    result = apply_plan(DeltaRsCommitter(str(tmp_path)), plan(tmp_path, StagedFiles()))
    assert result.versions > 20
    needed = set().union(*(version.needed for version in history.versions[history.oldest :]))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {path for path in files if not path.startswith("_delta_log/")} == needed


def lake_with(lake: Path, count: int) -> Path:
    committer = DeltaRsCommitter(str(lake))
    for number in range(count):
        commit_rows(committer, "t", numbers(number), Mark("app", number))
    DeltaTable(lake / "t").create_checkpoint()
    for number in range(count, count + 8):
        commit_rows(committer, "t", numbers(number), Mark("app", number))
    orphan = lake / "t" / f"part-{uuid4()}.parquet"
    orphan.write_bytes(b"x")
    age(lake / "t")
    return lake / "t"


@pytest.mark.parametrize("feature", ["checkpointProtection", "somethingNew"])
def test_a_table_with_an_unknown_feature_is_left_to_spark(tmp_path: Path, feature: str) -> None:
    folder = lake_with(tmp_path, 5)
    newest = folder / "_delta_log" / f"{12:020d}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    lines = [newest.read_text().rstrip(), json.dumps({"protocol": protocol})]
    newest.write_text("\n".join(lines))
    made = plan(tmp_path, StagedFiles())
    assert (made.deletions, made.versions) == ((), 0)
    assert feature in made.left[0].why


@pytest.mark.parametrize(
    "name",
    [
        f"{5:020d}.checkpoint.0000000001.0000000002.parquet",
        f"{5:020d}.checkpoint.{UUID(int=5)}.parquet",
        f"{5:020d}.checkpoint.{UUID(int=6)}.json",
    ],
)
def test_a_table_whose_checkpoints_have_several_files_is_left_to_spark(
    tmp_path: Path, name: str
) -> None:
    folder = lake_with(tmp_path, 5)
    assert plan(tmp_path, StagedFiles()).deletions
    (folder / "_delta_log" / name).write_bytes(b"")
    made = plan(tmp_path, StagedFiles())
    assert (made.deletions, made.versions) == ((), 0)
    assert "several files" in made.left[0].why
