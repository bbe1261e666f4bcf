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
