"""Replayed changes land once, and merged and history tables are brought up to date."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cdc import merge as merge_changes
from headgate.cdc.source_tables import known_logs_with_replays
from headgate.config import PipelineConfig
from headgate.engine.events import Event, MergeFailed, TablesMerged
from headgate.inspect.status import read_status
from headgate.lake.ledger_entries import TableEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.quarantine import replay as replay_module
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.lander import ReplayLedger
from headgate.quarantine.operations import drop_quarantine, replay_quarantine
from headgate.quarantine.replay import PortionLimit
from headgate.testing import Crash
from tests.inspect.change_lake import OF_ANOTHER_SERIES, ShopLake, change, make_shop_lake
from tests.quarantine.replaying import Step, crash_at

LINEAGES = ("log:mysql-bin", "log:binlog")
ROWS = {1: "shipped", 3: "paid", 9: "late"}
"""Orders, once all changes are known."""


@pytest.fixture
def lake(tmp_path: Path) -> ShopLake:
    return make_shop_lake(tmp_path)


def rows_of(lake: ShopLake, table: str = "shop_orders") -> dict[int, str]:
    rows = lake.rows(table)
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows)
    return found


def states(lake: ShopLake) -> Counter[tuple[str, str]]:
    return Counter((row["state"], row["reason"]) for row in lake.rows("quarantine"))


def each_once(lake: ShopLake, log: str = "log_shop_orders") -> int:
    uuids = [row["_uuid"] for row in lake.rows(log)]
    assert len(uuids) == len(set(uuids))
    return len(uuids)


def test_changes_of_a_new_server_land_once_its_lineage_is_declared(lake: ShopLake) -> None:
    events: list[Event] = []
    lake.declare_lineages(*LINEAGES)
    done = replay_quarantine(lake.pipeline, listener=events.append)
    assert done.landed == {"log_shop_orders": OF_ANOTHER_SERIES}
    assert done.remaining == {"file_unreadable": 1}
    assert done.merged == ("shop_orders", "history_shop_orders")
    assert done.behind == ()
    assert each_once(lake) == 9
    assert rows_of(lake) == ROWS
    current = [row for row in lake.rows("history_shop_orders") if row["_is_current"]]
    assert {row["id"]: row["name"] for row in current} == ROWS
    assert states(lake) == {("replayed", "order_unknown"): 3, ("open", "file_unreadable"): 1}
    assert [event.tables for event in events if isinstance(event, TablesMerged)] == [2]
    assert read_status(lake.pipeline).behind == ()


def test_replayed_change_keeps_its_file(lake: ShopLake) -> None:
    files = {row["_file"] for row in lake.rows("quarantine") if row["reason"] == "order_unknown"}
    lake.declare_lineages(*LINEAGES)
    replay_quarantine(lake.pipeline)
    late = {row["_file"] for row in lake.rows("log_shop_orders") if "binlog.0" in row["_log_file"]}
    assert late == files


def test_replays_read_no_files(lake: ShopLake) -> None:
    lake.declare_lineages(*LINEAGES)
    before = lake.rows("_files")
    replay_quarantine(lake.pipeline)
    assert lake.rows("_files") == before


def test_a_second_replay_finds_nothing(lake: ShopLake) -> None:
    lake.declare_lineages(*LINEAGES)
    wanted = QuarantineFilter(reason="order_unknown")
    replay_quarantine(lake.pipeline, wanted)
    versions = [DeltaTable(str(lake.path / name)).version() for name in ("shop_orders", "_files")]
    done = replay_quarantine(lake.pipeline, wanted)
    assert (done.taken, done.landed, done.merged) == (0, {}, ())
    now = [DeltaTable(str(lake.path / name)).version() for name in ("shop_orders", "_files")]
    assert now == versions


def test_merge_of_a_killed_replay_is_recorded_by_the_next(
    lake: ShopLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.declare_lineages(*LINEAGES)
    with monkeypatch.context() as killed:
        killed.setattr(ReplayLedger, "add", Mock(side_effect=Crash))
        with pytest.raises(Crash):
            replay_quarantine(lake.pipeline)
    assert rows_of(lake) == ROWS
    assert read_status(lake.pipeline).behind == ("history_shop_orders", "shop_orders")
    replay_quarantine(lake.pipeline)
    assert read_status(lake.pipeline).behind == ()
    assert replay_quarantine(lake.pipeline).merged == ()


def test_change_that_is_still_rejected_stays_unchanged(lake: ShopLake) -> None:
    before = {row["id"]: row for row in lake.rows("quarantine")}
    done = replay_quarantine(lake.pipeline)
    assert (done.landed, sum(done.remaining.values())) == ({}, OF_ANOTHER_SERIES + 1)
    assert {row["id"]: row for row in lake.rows("quarantine")} == before


def test_change_that_has_landed_since_does_not_land_twice(lake: ShopLake) -> None:
    again = change("orders", 9, "late", at=22, series="binlog")
    lake.declare_lineages(*LINEAGES)
    lake.land_changes(again)
    assert each_once(lake) == 7
    done = replay_quarantine(lake.pipeline)
    assert done.landed == {"log_shop_orders": OF_ANOTHER_SERIES - 1}
    assert each_once(lake) == 9
    assert rows_of(lake) == ROWS


@pytest.mark.parametrize("table", ["log_shop_carts", "shop_carts", "shop.carts"])
def test_replay_creates_the_tables_of_a_source(tmp_path: Path, table: str) -> None:
    lake = ShopLake(tmp_path)
    lake.declare("# contract: evolve", "contract: {tables: freeze} # contract: evolve")
    lake.land_changes(change("carts", 1, "full", at=1), change("orders", 1, "new", at=1))
    lake.declare("contract: {tables: freeze}", "")
    done = replay_quarantine(lake.pipeline, QuarantineFilter(route=table))
    assert done.landed == {"log_shop_carts": 1}
    assert rows_of(lake, "shop_carts") == {1: "full"}
    assert set(known_logs_with_replays(lake.pipeline)) == {"log_shop_carts"}
    assert states(lake) == {("replayed", "contract_tables"): 1, ("open", "contract_tables"): 1}


def test_portion_uses_the_logs_that_earlier_portions_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = ShopLake(tmp_path)
    lake.declare("# max_tables: 2000", "max_tables: 1 # max_tables: 2000")
    lake.land_changes(change("orders", 0, "new", at=1))
    lake.land_changes(*(change("carts", key, "full", at=key) for key in range(1, 4)))
    lake.declare("max_tables: 1 ", "max_tables: 2 ")
    monkeypatch.setattr(replay_module, "PortionLimit", lambda: PortionLimit(records=1))
    assert replay_quarantine(lake.pipeline).landed == {"log_shop_carts": 3}
    assert rows_of(lake, "shop_carts") == {1: "full", 2: "full", 3: "full"}


def test_file_that_was_too_large_is_read_again(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.declare("# max_file_bytes: 1 GB", "max_file_bytes: 1 kB # max_file_bytes: 1 GB")
    lake.land_changes(*(change("orders", key, "new", at=1) for key in range(50)))
    (row,) = lake.rows("quarantine")
    assert (row["reason"], row["value"]) == ("too_large", None)
    assert replay_quarantine(lake.pipeline).remaining == {"too_large": 1}
    lake.declare("max_file_bytes: 1 kB ", "")
    assert replay_quarantine(lake.pipeline).landed == {"log_shop_orders": 50}
    assert set(rows_of(lake)) == set(range(50))


def test_file_that_was_too_large_and_is_missing_stays(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.declare("# max_file_bytes: 1 GB", "max_file_bytes: 1 kB # max_file_bytes: 1 GB")
    lake.land_changes(*(change("orders", key, "new", at=1) for key in range(50)))
    (row,) = lake.rows("quarantine")
    Path(row["_file"]).unlink()
    lake.declare("max_file_bytes: 1 kB ", "")
    assert replay_quarantine(lake.pipeline).remaining == {"too_large": 1}
    (row,) = lake.rows("quarantine")
    assert "cannot be read again" in row["detail"]


def test_file_stays_until_all_of_its_changes_have_landed(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.land_changes(change("orders", 1, "new", at=1))
    lake.declare("# max_file_bytes: 1 GB", "max_file_bytes: 1 kB # max_file_bytes: 1 GB")
    lake.land_changes(
        *(change("orders", key, "new", at=2) for key in range(2, 30)),
        *(change("orders", key, "new", at=2, series="binlog") for key in range(30, 33)),
    )
    lake.declare("max_file_bytes: 1 kB ", "")
    done = replay_quarantine(lake.pipeline)
    assert (done.landed, done.remaining) == ({"log_shop_orders": 28}, {"order_unknown": 1})
    (row,) = lake.rows("quarantine")
    assert row["detail"].startswith("3 changes of it, the first: ")
    lake.declare_lineages(*LINEAGES)
    assert replay_quarantine(lake.pipeline).landed == {"log_shop_orders": 3}
    assert each_once(lake) == 32
    assert set(rows_of(lake)) == set(range(1, 33))


def test_changes_of_an_excluded_table_stay(lake: ShopLake) -> None:
    lake.declare_lineages(*LINEAGES)
    lake.declare("# exclude: []", "exclude: [shop.orders] #")
    done = replay_quarantine(lake.pipeline, QuarantineFilter(route="shop.orders"))
    assert (done.landed, done.remaining) == ({}, {"contract_tables": OF_ANOTHER_SERIES})
    assert each_once(lake) == 6


def test_dropped_changes_lose_their_bytes(lake: ShopLake) -> None:
    assert drop_quarantine(lake.pipeline, QuarantineFilter(route="shop_orders")) == {
        "order_unknown": OF_ANOTHER_SERIES
    }
    dropped = [row for row in lake.rows("quarantine") if row["state"] == "dropped"]
    assert [row["value"] for row in dropped] == [None] * OF_ANOTHER_SERIES
    assert all(row["_file"] for row in dropped)


def test_table_whose_merge_fails_is_behind_and_merged_later(
    lake: ShopLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError("no room")

    events: list[Event] = []
    lake.declare_lineages(*LINEAGES)
    with monkeypatch.context() as patched:
        patched.setattr(merge_changes, "merge_table", refuse)
        done = replay_quarantine(lake.pipeline, listener=events.append)
    assert (done.merged, done.behind) == (("history_shop_orders",), ("shop_orders",))
    assert [event.table for event in events if isinstance(event, MergeFailed)] == ["shop_orders"]
    assert read_status(lake.pipeline).behind == ("shop_orders",)
    assert replay_quarantine(lake.pipeline).merged == ("shop_orders",)
    assert rows_of(lake) == ROWS


def test_table_that_is_too_large_is_left_to_spark(lake: ShopLake) -> None:
    lake.declare_lineages(*LINEAGES)
    lake.declare("# merge:\n", "merge: {spark_above: 1 B}\n# merge:\n")
    done = replay_quarantine(lake.pipeline)
    assert (done.merged, done.behind) == (("history_shop_orders",), ("shop_orders",))
    assert list((lake.path / "_staged" / "merges").iterdir()) == []


troubles = st.lists(st.sampled_from([*Step, "merging", None]), min_size=1, max_size=3)


@settings(deadline=None, max_examples=2)
@given(troubles=troubles, at_a_time=st.integers(1, 3))
def test_every_change_lands_once_wherever_replays_crash(
    troubles: list[Step | str | None], at_a_time: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        lake = make_shop_lake(Path(folder))
        lake.declare_lineages(*LINEAGES)
        patched.setattr(replay_module, "PortionLimit", lambda: PortionLimit(records=at_a_time))
        for trouble in troubles:
            with ExitStack() as stack:
                stack.enter_context(suppress(Crash))
                if isinstance(trouble, Step):
                    stack.enter_context(crash_at(trouble))
                elif trouble is not None:
                    patched_merge = stack.enter_context(pytest.MonkeyPatch.context())
                    patched_merge.setattr(replay_module, "merge_tables", _crash)
                replay_quarantine(lake.pipeline)
        replay_quarantine(lake.pipeline)
        assert each_once(lake) == 9
        assert rows_of(lake) == ROWS
        assert states(lake) == {("replayed", "order_unknown"): 3, ("open", "file_unreadable"): 1}
        assert read_status(lake.pipeline).behind == ()
        assert _landed_by_ledger(lake.pipeline) == 11


def _crash(*_: Any) -> None:
    raise Crash("merging")


def _landed_by_ledger(pipeline: PipelineConfig) -> int:
    names = (pipeline.name, f"{pipeline.name}:replay")
    rows = LedgerSnapshot.open(pipeline.lake, pipeline.ledger, *names).entries(TableEntry)
    return sum(row.entry.rows for row in rows if row.entry.table.startswith("log_"))
