"""The horizon: changes that are too old for tombstones go to the quarantine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.lab.shop.datastream import write_changes
from tests.cdc.change_lake import ChangeLake
from tests.cdc.test_redelivered import SEAT

NOW = datetime.now(UTC)


def land(lake: ChangeLake, number: int, at: datetime) -> None:
    change = replace(SEAT, values={"id": number}, log_position=4 + number, at=at)
    lake.land_files(write_changes([change], lake.folder / str(number)))


@pytest.mark.parametrize("future", [datetime(2999, 1, 1, tzinfo=UTC), NOW + timedelta(days=2)])
def test_timestamp_of_the_future_does_not_move_it(tmp_path: Path, future: datetime) -> None:
    lake = ChangeLake(tmp_path, {"merge": {"horizon": "1 hour"}})
    land(lake, 1, NOW - timedelta(hours=2))
    land(lake, 2, future)
    land(lake, 3, NOW - timedelta(hours=2))
    land(lake, 4, NOW)
    assert [row["id"] for row in lake.rows("theatre_seats")] == [1, 2, 3, 4]
    assert not (lake.path / "quarantine").exists()

    land(lake, 5, NOW - timedelta(hours=2))
    assert [row["id"] for row in lake.rows("theatre_seats")] == [1, 2, 3, 4]
    assert [record.reason for record in lake.quarantine()] == ["too_late"]


@pytest.mark.parametrize(
    "at", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]
)
def test_first_and_last_time_that_there_is(tmp_path: Path, at: datetime) -> None:
    lake = ChangeLake(tmp_path, {"merge": {"horizon": "1 hour"}})
    land(lake, 1, at)
    land(lake, 2, at)
    gone = replace(SEAT, kind="DELETE", values={"id": 1}, log_position=9, at=at)
    lake.land_files(write_changes([gone], lake.folder / "gone"))
    assert [row["id"] for row in lake.rows("theatre_seats")] == [2]
    land(lake, 3, NOW)
    assert [row["id"] for row in lake.rows("theatre_seats")] == [2, 3]
    assert not (lake.path / "quarantine").exists()


def test_time_that_python_cannot_represent(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path)
    for number in range(3):
        text = '{"uuid":"%d","source_timestamp":%d,"read_method":"mysql-cdc-binlog",'
        text += '"source_metadata":{"table":"seats","database":"theatre","primary_keys":["id"],'
        text += '"log_file":"mysql-bin.000001","log_position":%d,"change_type":"INSERT",'
        text += '"is_deleted":false},"payload":{"id":%d}}\n'
        path = tmp_path / f"{number}.json"
        path.write_text(text % (number, 9 * 10**15, number, number))
        lake.land_files([path])
    assert [row["id"] for row in lake.rows("theatre_seats", "id")] == [0, 1, 2]
