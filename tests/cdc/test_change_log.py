from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.cdc.change_log import ChangeLog


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for number in range(4):
        write_deltalake(tmp_path / "log", pa.table({"n": [number]}), mode="append")
    return tmp_path


def log_in(lake: Path) -> ChangeLog:
    found = ChangeLog.open(str(lake), "log")
    assert found is not None
    return found


def numbers(log: ChangeLog) -> list[int]:
    return sorted(log.rows()["n"].to_pylist())


def test_log_is_read_whole_or_since_a_version(lake: Path) -> None:
    log = log_in(lake)
    assert numbers(log) == numbers(log.since(None)) == [0, 1, 2, 3]
    assert numbers(log.since(1)) == [2, 3]
    assert numbers(log.since(3)) == []
    assert log.since(1).bytes == sum(log.since(1).sizes.values())


def test_compacted_files_are_read_until_they_are_deleted(lake: Path) -> None:
    DeltaTable(lake / "log").optimize.compact()
    write_deltalake(lake / "log", pa.table({"n": [4]}), mode="append")
    assert numbers(log_in(lake).since(1)) == [2, 3, 4]
    assert numbers(log_in(lake).since(3)) == [4]
    DeltaTable(lake / "log").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert numbers(log_in(lake).since(1)) == [0, 1, 2, 3, 4]
    assert numbers(log_in(lake).since(3)) == [4]


def test_log_with_changed_rows_is_read_whole(lake: Path) -> None:
    DeltaTable(lake / "log").delete("n = 0")
    log = log_in(lake)
    assert log.since(3) is log
    assert numbers(log) == [1, 2, 3]


def test_log_is_read_whole_if_the_version_was_removed(lake: Path) -> None:
    log = log_in(lake)
    (lake / "log" / "_delta_log" / f"{2:020d}.json").unlink()
    assert log.since(1) is log


def test_log_is_a_snapshot(lake: Path) -> None:
    opened = DeltaTable(lake / "log")
    log = ChangeLog.of(str(lake), "log", opened)
    write_deltalake(lake / "log", pa.table({"n": [4]}), mode="append")
    opened.update_incremental()
    assert numbers(log) == [0, 1, 2, 3]
