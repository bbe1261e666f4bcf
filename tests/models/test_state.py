from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import LandingError
from headgate.lake.commit import commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.models.state import RecentRows, WindowState

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Orders:
    """A table of orders; each call is a commit."""

    def __init__(self, folder: Path) -> None:
        self.lake = str(folder)
        self.committer = DeltaRsCommitter(self.lake)

    def add(self, *rows: tuple[int, int | None], **more: pa.Array) -> None:
        """Add rows of a store and a minute."""
        minutes = [None if minute is None else timedelta(minutes=minute) for _, minute in rows]
        times = [None if minute is None else START + minute for minute in minutes]
        columns: dict[str, Any] = {
            "store": pa.array([store for store, _ in rows], pa.int32()),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            **more,
        }
        commit_rows(self.committer, "orders", pa.table(columns))

    def recent(self, *times: str, columns: tuple[str, ...] = ("store",)) -> RecentRows:
        def choose(names: Any) -> list[str]:
            return [name for name in names if name in columns]

        return RecentRows(self.lake, "orders", times or ("time",), HOUR, choose)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def stores(rows: pa.Table) -> list[int]:
    return sorted(rows["store"].to_pylist())


def test_each_commit_is_read_once(orders: Orders) -> None:
    orders.add((1, 0))
    recent = orders.recent()
    assert stores(recent.update()) == [1]
    orders.add((2, 1))
    orders.add((3, 2))
    assert stores(recent.update()) == [2, 3]
    assert len(recent.update()) == 0
    assert recent.commits_read == 2
    assert stores(recent.rows()) == [1, 2, 3]


def test_start_reads_only_files_of_the_window(orders: Orders) -> None:
    for minute in range(0, 300, 30):
        orders.add((minute, minute))
    recent = orders.recent()
    recent.update()
    assert recent.files_read == 2
    assert stores(recent.rows()) == [240, 270]


def test_rows_before_the_window_are_dropped(orders: Orders) -> None:
    orders.add((1, 0), (2, 1))
    recent = orders.recent()
    recent.update()
    for minute in range(30, 600, 10):
        orders.add((3, minute))
        recent.update()
        assert recent.newest is not None
        recent.evict(recent.newest)
    assert len(recent.rows()) <= 12


def test_rows_without_an_event_time_have_the_time_of_their_record(orders: Orders) -> None:
    at = pa.array([START + timedelta(minutes=500)], pa.timestamp("us", "UTC"))
    orders.add((1, 300), _timestamp=at)
    orders.add((2, None), _timestamp=at)
    orders.add((3, 490), _timestamp=at)
    recent = orders.recent("time", "_timestamp")
    recent.update()
    assert stores(recent.rows()) == [2, 3]
    assert recent.files_read == 2


def test_new_columns_and_types_are_taken_over(orders: Orders) -> None:
    orders.add((1, 0))
    recent = orders.recent(columns=("store", "pizzas"))
    recent.update()
    orders.add((2, 1), pizzas=pa.array([4], pa.int32()))
    recent.update()
    assert recent.rows()["pizzas"].to_pylist() == [None, 4]


def test_replaced_table_is_read_again(orders: Orders) -> None:
    orders.add((1, 0))
    recent = orders.recent()
    recent.update()
    rows = recent.rows().set_column(0, "store", pa.array([9], pa.int32()))
    commit_rows(orders.committer, "orders", rows, mode="replace")
    recent.update()
    assert stores(recent.rows()) == [9]


def test_time_that_is_missing_is_reported(orders: Orders) -> None:
    orders.add((1, 0))
    with pytest.raises(LandingError, match="no column `tyme`") as raised:
        orders.recent("tyme").update()
    assert raised.value.hint == "did you mean `time`?"


def test_state_knows_changed_and_active_keys(orders: Orders) -> None:
    orders.add((1, 0), (2, 0))
    state = WindowState("store", HOUR, {"orders": orders.recent()})
    state.update()
    assert state.active_changed() == [1, 2]
    assert state.at == START
    state.changed.clear()
    orders.add((2, 61))
    state.update()
    assert state.active_changed() == [2]
    assert state.active() == [2]
