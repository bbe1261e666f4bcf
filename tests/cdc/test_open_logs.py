"""A run opens each log once, for what it knows of the log and for its first commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.engine.runner import RunOptions
from headgate.lake import tables
from headgate.run import _changes
from headgate.sources.stop_signal import StopSignal
from tests.inspect.change_lake import ShopLake, change


def test_logs_that_the_plan_has_opened_are_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = ShopLake(tmp_path)
    lake.land_changes(change("orders", 1, "a", at=1), change("carts", 1, "b", at=1))
    opened: Counter[str] = Counter()
    open_version = tables.open_version

    def counted(url: str, version: int | None = None) -> DeltaTable:
        opened[Path(url).name] += 1
        return open_version(url, version)

    monkeypatch.setattr(tables, "open_version", counted)
    runner = _changes(lake.pipeline, RunOptions(), lambda _: None, StopSignal())
    for log in ("log_shop_orders", "log_shop_carts"):
        assert runner.committer.state(log, "app") is not None
        assert opened[log] == 1
