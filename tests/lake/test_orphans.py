"""Orphans: what a dead process has left, and never what another one may still commit."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from headgate.lake.commit import Commit
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.log_files import TableLog, UnknownFiles
from headgate.lake.maintain import MaintenancePolicy, plan_maintenance
from headgate.lake.orphans import Orphans, orphans_of_notes, orphans_of_table, unfinished
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import staged_prefix, writer_of
from headgate.lake.storage import find_files
from headgate.lake.writers import StagedFiles, Writer
from tests.lake.staged import staged

WRITER = writer_of("headgate:games")
HOUR = 3600


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    committer = DeltaRsCommitter(str(tmp_path))
    for number in range(3):
        file = staged(tmp_path, "t", {"n": [number]})
        committer.commit(Commit("t", file.schema, (file,)))
    committer.compact("t", 1 << 20)
    return tmp_path


def put(path: Path, hours_ago: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    then = time.time() - hours_ago * HOUR
    os.utime(path, (then, then))
    return path


def orphans(lake: Path, landed: int | None = 7, *pending: str, running: bool = False) -> Orphans:
    table = Snapshot.open(str(lake), "t")
    assert table is not None
    files = find_files(table.url)
    staged = StagedFiles({WRITER: Writer(landed, running)}, frozenset(pending))
    return orphans_of_table(TableLog.of(table), files, staged)


def found(lake: Path, landed: int | None = 7, *pending: str, running: bool = False) -> list[str]:
    left = orphans(lake, landed, *pending, running=running)
    return sorted(file.path for file in left.deletions)


def staged_by(app: str, batch: int, end: str = ".parquet") -> str:
    return f"{staged_prefix(writer_of(app), batch)}{uuid4()}{end}"


def test_files_of_any_version_are_not_orphans(lake: Path) -> None:
    for file in (lake / "t").glob("*.parquet"):
        os.utime(file, (0, 0))
    assert found(lake) == []


def test_files_of_landed_batches_are_orphans_after_an_hour(lake: Path) -> None:
    old, new = (staged_by("headgate:games", batch) for batch in (7, 8))
    for name in (old, new):
        put(lake / "t" / name, hours_ago=0.9)
    assert found(lake, 8) == []
    for name in (old, new):
        put(lake / "t" / name, hours_ago=1.1)
    assert found(lake) == [old]
    assert found(lake, 8) == sorted([old, new])
    assert found(lake, None) == []


def test_files_of_a_batch_to_come_are_orphans_once_nobody_runs_it(lake: Path) -> None:
    name = staged_by("headgate:games", 8)
    put(lake / "t" / name, hours_ago=25)
    assert found(lake, running=True) == []
    assert found(lake) == [name]


@pytest.mark.parametrize("end", [".parquet", "-fitted.parquet", "-fitted-fitted.parquet"])
def test_pending_files_are_not_orphans(lake: Path, end: str) -> None:
    name = staged_by("headgate:games", 3, end)
    put(lake / "t" / name, hours_ago=100)
    assert found(lake, 7, f"t/{name.replace('-fitted', '')}") == []
    assert found(lake, 7) == [name]


def test_files_of_unknown_writers_are_left_and_listed(lake: Path) -> None:
    other = staged_by("headgate:other", 3)
    put(lake / "t" / other, hours_ago=1000)
    left = orphans(lake)
    assert left.deletions == ()
    assert [file.name for file in left.left] == [other]


def test_files_of_merges_are_orphans_after_a_day_and_of_others_after_a_week(lake: Path) -> None:
    merged, widened = f"part-{uuid4()}.parquet", f"part-widened-{uuid4()}.parquet"
    spark = [f"{folder}part-00003-{uuid4()}-c000.snappy.parquet" for folder in ("", "a=b/", "x7/")]
    own = [merged, widened]
    for hours, expected in ((23, []), (25, own), (24 * 7 + 1, [*own, *spark])):
        for name in (*own, *spark):
            put(lake / "t" / name, hours_ago=hours)
        assert found(lake) == sorted(expected)


def test_files_with_other_names_belong_to_somebody(lake: Path) -> None:
    name = f"part-00000-{uuid4()}-c000.snappy.parquet"
    theirs = [
        "_checkpoints/offsets/0",
        "_symlink_format_manifest/manifest",
        "_delta_index/x.parquet",
        "_spark_metadata/0",
        "_change_data/x.parquet",
        ".hidden/a",
        "metadata/v1.metadata.json",
        "README.md",
        "export.parquet",
        f"_export/{name}",
        f".x=1/{name}",
        f"exports/{name}",
        f"aa/{name}",
        "aa/_delta_log/00000000000000000000.json",
    ]
    for path in theirs:
        put(lake / "t" / path, hours_ago=10_000)
    assert found(lake) == []


def test_unfinished_entries_are_orphans_after_an_hour(lake: Path) -> None:
    names = [f".{9:020d}.json.{'0' * 32}.part", f"_commit_{uuid4()}.json.tmp"]
    others = ["00000000000000000001.json.tmp", f"{8:020d}.crc", "_sidecars/a.parquet"]
    for name in (*names, *others):
        put(lake / "t" / "_delta_log" / name, hours_ago=0.5 if name in names else 1000)
    log = lake / "t" / "_delta_log"
    assert unfinished(find_files(str(log))) == []
    for name in names:
        put(log / name, hours_ago=2)
    assert sorted(file.path for file in unfinished(find_files(str(log)))) == sorted(names)


def test_notes_of_merges_and_of_pending_files_are_orphans_after_a_day(lake: Path) -> None:
    mine, pending, next_batch = (staged_by("headgate:games", batch) for batch in (3, 4, 8))
    theirs = staged_by("headgate:other", 3)
    links = [f"pending/t/{name}" for name in (mine, pending, next_batch, theirs)]
    for name in ("merges/t-1.parquet", *links):
        put(lake / "_staged" / name, hours_ago=25)
    put(lake / "_staged" / "merges" / "t-2.parquet", hours_ago=1)
    put(lake / "_staged" / "games.json", hours_ago=1000)
    unfinished_note = f"games.lock.{'0' * 32}.part"
    put(lake / "_staged" / unfinished_note, hours_ago=2)
    staged = StagedFiles({WRITER: Writer(7, False)}, frozenset({f"t/{pending}"}))
    left = orphans_of_notes(str(lake), staged)
    assert sorted(file.path for file in left.deletions) == [
        unfinished_note,
        "merges/t-1.parquet",
        f"pending/t/{mine}",
    ]
    assert [file.name for file in left.left] == [f"pending/t/{theirs}"]


def test_nothing_is_an_orphan_in_a_log_with_gaps(lake: Path) -> None:
    put(lake / "t" / staged_by("headgate:games", 7), hours_ago=100)
    (lake / "t" / "_delta_log" / f"{1:020d}.json").rename(lake / "gone.json")
    table = Snapshot.of(str(lake), "t", DeltaTable(lake / "t", version=0))
    log = TableLog.of(table)
    with pytest.raises(UnknownFiles, match="missing"):
        orphans_of_table(log, find_files(table.url), StagedFiles({WRITER: Writer(7, False)}))
    assert plan_maintenance(table, MaintenancePolicy(), StagedFiles()).left[0].why.endswith("Spark")
