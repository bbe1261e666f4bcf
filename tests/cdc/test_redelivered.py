"""A change that is delivered again lands once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from headgate.lab.shop.datastream import FileOptions, write_changes
from headgate.lab.shop.statement import Change, Column
from tests.cdc.change_lake import ChangeLake

SEAT = Change(
    database="theatre",
    table="seats",
    columns=(Column("id", "bigint"),),
    primary_key=("id",),
    kind="INSERT",
    values={"id": 1},
    log_file="mysql-bin.000001",
    log_position=4,
    at=datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC),
    backfill=False,
)


def test_change_lands_once_though_spark_has_compacted_its_log(tmp_path: Path) -> None:
    """Spark truncates the bounds of timestamps in a file's statistics to milliseconds."""
    lake = ChangeLake(tmp_path)
    lake.land_files(write_changes([SEAT], tmp_path / "first", FileOptions("json")))
    (entry,) = (lake.path / "log_theatre_seats" / "_delta_log").glob("*.json")
    text = entry.read_text()
    truncated = text.replace("12:00:00.123456Z", "12:00:00.123Z")
    assert truncated != text
    entry.write_text(truncated)
    lake.land_files(write_changes([SEAT], tmp_path / "again", FileOptions("json")))
    assert len(lake.rows("log_theatre_seats")) == 1
