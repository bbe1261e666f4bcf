"""Orphans: what a dead process has left, and never what another one may still commit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headgate.lake.commit import Commit
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.orphans import orphans_of_notes, orphans_of_table
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged_files import staged_prefix, writer_of
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


def found(lake: Path, landed: int | None = 7, *pending: str) -> list[str]:
    table = Snapshot.open(str(lake), "t")
    assert table is not None
    writers = {} if landed is None else {WRITER: landed}
    return sorted(file.path for file in orphans_of_table(table, writers, pending))


def test_files_of_any_version_are_not_orphans(lake: Path) -> None:
    assert found(lake) == []


def test_files_of_landed_batches_are_orphans_at_once(lake: Path) -> None:
    old, new = (f"{staged_prefix(WRITER, batch)}a.parquet" for batch in (7, 8))
    for name in (old, new):
        put(lake / "t" / name)
    assert found(lake) == [old]
    assert found(lake, 8) == sorted([old, new])
    assert found(lake, None) == []


def test_pending_files_are_not_orphans(lake: Path) -> None:
    name = f"{staged_prefix(WRITER, 3)}a.parquet"
    put(lake / "t" / name, hours_ago=100)
    assert found(lake, 7, f"t/{name}") == []


def test_files_of_other_writers_are_orphans_after_a_day(lake: Path) -> None:
    other = f"{staged_prefix(writer_of('headgate:other'), 3)}a.parquet"
    put(lake / "t" / other, hours_ago=23)
    put(lake / "t" / "route=go" / "part-x.parquet", hours_ago=23)
    assert found(lake) == []
    put(lake / "t" / other, hours_ago=25)
    put(lake / "t" / "route=go" / "part-x.parquet", hours_ago=25)
    assert found(lake) == sorted([other, "route=go/part-x.parquet"])


def test_unfinished_entries_are_orphans_after_an_hour(lake: Path) -> None:
    names = [f".{9:020d}.json.{'0' * 32}.part", "_commit_1.json.tmp"]
    for name in names:
        put(lake / "t" / "_delta_log" / name, hours_ago=0.5)
    assert found(lake) == []
    for name in names:
        put(lake / "t" / "_delta_log" / name, hours_ago=2)
    assert found(lake) == [f"_delta_log/{name}" for name in names]


def test_notes_of_merges_and_of_pending_files_are_orphans_after_a_day(lake: Path) -> None:
    for name in ("merges/t-1.parquet", "pending/t/a.parquet", "pending/t/b.parquet"):
        put(lake / "_staged" / name, hours_ago=25)
    put(lake / "_staged" / "merges" / "t-2.parquet", hours_ago=1)
    put(lake / "_staged" / "games.json", hours_ago=1000)
    put(lake / "_staged" / "games.lock.0123.part", hours_ago=2)
    left = sorted(file.path for file in orphans_of_notes(str(lake), {"t/b.parquet"}))
    assert left == ["games.lock.0123.part", "merges/t-1.parquet", "pending/t/a.parquet"]
