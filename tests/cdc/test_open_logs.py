"""Logs are opened only where they have to be: a run knows what it has committed to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.cdc import merge_table, stage
from headgate.cdc.change_log import ChangeLog
from headgate.cdc.source_tables import NEW_LOG, LogEnd, microseconds
from headgate.engine.runner import RunOptions
from headgate.lake import open_tables, tables
from headgate.lake.snapshot import Snapshot
from headgate.run import _changes
from headgate.sources.stop_signal import StopSignal
from tests.inspect.change_lake import FIRST, ShopLake, change

LOG = "log_shop_orders"


@pytest.fixture
def lake(tmp_path: Path) -> ShopLake:
    lake = ShopLake(tmp_path)
    lake.land_changes(change("orders", 1, "a", at=1), change("carts", 1, "b", at=1))
    return lake


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each step opens a log."""
    counts: Counter[str] = Counter()

    def counted(step: str, function: Callable[..., object]) -> Callable[..., object]:
        def counting(lake: str, table: str) -> object:
            counts[step] += table == LOG
            return function(lake, table)

        return counting

    monkeypatch.setattr(stage, "Snapshot", _Counted(counted("staging", Snapshot.newest)))
    of_logs = _Counted(counted("merging", ChangeLog.newest), ChangeLog.of)
    monkeypatch.setattr(merge_table, "ChangeLog", of_logs)
    return counts


class _Counted:
    def __init__(self, newest: Callable[..., object], of: Callable[..., object] = Snapshot.of):
        self.newest, self.of = newest, of


def test_logs_that_the_plan_has_opened_are_not_opened_again(
    lake: ShopLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    open_version = tables.open_version

    def counted(url: str, version: int | None = None) -> DeltaTable:
        counts[Path(url).name] += 1
        return open_version(url, version)

    monkeypatch.setattr(tables, "open_version", counted)
    monkeypatch.setattr(open_tables, "open_version", counted)
    runner = _changes(lake.pipeline, RunOptions(), lambda _: None, StopSignal())
    for log in (LOG, "log_shop_carts"):
        assert runner.committer.state(log, "app") is not None
        assert counts[log] == 1


def test_later_changes_are_staged_and_merged_without_opening_the_log(
    lake: ShopLake, opened: Counter[str]
) -> None:
    lake.land_changes(change("orders", 2, "b", at=2), change("orders", 1, "c", at=3))
    assert not +opened
    assert {row["id"]: row["name"] for row in lake.rows("shop_orders")} == {1: "c", 2: "b"}


def test_earlier_changes_are_compared_with_those_of_the_log(
    lake: ShopLake, opened: Counter[str]
) -> None:
    lake.land_changes(change("orders", 1, "a", at=1), change("orders", 2, "b", at=2))
    assert opened["staging"] == 1
    assert sorted(row["id"] for row in lake.rows(LOG)) == [1, 2]


def test_log_that_others_have_committed_to_is_opened(lake: ShopLake) -> None:
    (end,) = (lake.lander().plan.known[LOG].log,)  # type: ignore[attr-defined]
    assert end is not None
    log = stage._Log(lake.pipeline.lake, LOG)
    assert log.ends_at(end.version)
    DeltaTable(lake.path / LOG).alter.set_table_properties({"delta.appendOnly": "false"})
    assert not log.ends_at(end.version)


def test_end_of_a_log_takes_commits_of_others_into_account(lake: ShopLake) -> None:
    url = f"{lake.pipeline.lake}/{LOG}"
    at_first = NEW_LOG.after((), 0, url)
    assert at_first == LogEnd(0, NEW_LOG.time)  # its own files are what is handed over
    lake.land_changes(change("orders", 2, "b", at=5))
    newest = {"maxValues": {"_source_timestamp": FIRST.isoformat()}}
    later = at_first.after([newest], 2, url)  # version 1 is of another run, and later than these
    assert later is not None
    (stored,) = (row["_source_timestamp"] for row in lake.rows(LOG) if row["id"] == 2)
    assert stored > FIRST
    assert later == LogEnd(2, microseconds(stored) + 1_000)


@pytest.mark.parametrize("statistics", [{}, {"maxValues": {}}])
def test_end_of_a_log_is_unknown_without_times(lake: ShopLake, statistics: dict[str, str]) -> None:
    url = f"{lake.pipeline.lake}/{LOG}"
    assert NEW_LOG.after([statistics], 0, url) is None
    assert NEW_LOG.after((), 5, url) is None  # there are no entries of these versions
    assert NEW_LOG.after((), 100, url) is None
