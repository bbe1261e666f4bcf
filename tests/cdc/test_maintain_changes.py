"""Maintenance of change logs and of the tables that are merged from them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable

from headgate.cdc.verify import verify
from headgate.lab.shop.datastream import write_changes
from headgate.maintain import owned_tables
from tests.cdc.change_lake import ChangeLake
from tests.cdc.test_redelivered import SEAT


def land(lake: ChangeLake, folder: Path, number: int) -> None:
    at = SEAT.at + timedelta(minutes=number)
    change = replace(SEAT, values={"id": number}, log_position=4 + number, at=at)
    lake.land_files(write_changes([change], folder / f"files-{number}"))


def files(lake: ChangeLake, table: str) -> int:
    return len(DeltaTable(lake.path / table).file_uris())


def test_logs_are_compacted_and_merges_go_on_where_they_were(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, {"history": "history_{database}_{table}"})
    for number in range(1, 9):
        land(lake, tmp_path, number)
    merged = lake.rows("theatre_seats")
    (log,) = (one for one in lake.pipeline.run_maintenance() if one.table == "log_theatre_seats")
    assert (log.compacted.files, log.compacted.into) == (8, 1)
    version = DeltaTable(lake.path / "theatre_seats").version()
    lake.run()
    assert DeltaTable(lake.path / "theatre_seats").version() == version
    assert lake.rows("theatre_seats") == merged
    for number in range(9, 12):
        land(lake, tmp_path, number)
    assert files(lake, "log_theatre_seats") == 4
    assert len(lake.rows("log_theatre_seats")) == 11
    assert all(one.is_ok for one in verify(lake.pipeline, ()))


def test_merged_tables_keep_their_files(tmp_path: Path) -> None:
    """Merges keep them few and sorted by key."""
    lake = ChangeLake(tmp_path)
    for number in range(1, 4):
        land(lake, tmp_path, number)
    done = {one.table: one for one in lake.pipeline.run_maintenance()}
    assert done["log_theatre_seats"].compacted.files == 3
    assert done["theatre_seats"].compacted.files == 0
    assert "_tombstones_theatre_seats" in owned_tables(lake.pipeline)
