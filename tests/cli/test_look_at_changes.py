"""`status`, `tables`, `schema`, `quarantine`: a lake of change files, seen and steered."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.change_lake import OF_ANOTHER_SERIES, ShopLake, change, make_shop_lake

LINEAGES = ("log:mysql-bin", "log:binlog")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShopLake:
    made = make_shop_lake(tmp_path)
    later = made.made_at + timedelta(hours=2, minutes=30)
    monkeypatch.setattr("headgate.cli.output.now", lambda: later)
    return made


def data(headgate: Headgate, *words: str) -> Any:
    printed = headgate(*words, "--json")
    assert (printed.code, printed.err) == (0, "")
    return json.loads(printed.out)["data"]


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "tables",
        "schema log_shop_orders",
        "schema shop_orders",
        "schema history_shop_orders",
        "quarantine list",
        "quarantine show 2/rubbish.avro",
        "quarantine replay",
    ],
)
def test_changes(headgate: Headgate, snapshot: Snapshot, shop: ShopLake, command: str) -> None:
    printed = headgate(*command.split())
    assert printed.code == 0
    snapshot.check(printed.out)


def test_replay_of_changes_merges_them(
    headgate: Headgate, snapshot: Snapshot, shop: ShopLake
) -> None:
    shop.declare_lineages(*LINEAGES)
    printed = headgate("quarantine", "replay", "--table", "shop.orders")
    assert printed.code == 0
    assert f"{OF_ANOTHER_SERIES} records into 1 table" in printed.err
    assert "merged 2 tables" in printed.err
    snapshot.check(printed.out)


def test_status_of_changes_shows_tables_that_are_behind(
    headgate: Headgate, snapshot: Snapshot, shop: ShopLake
) -> None:
    shop.merges = False
    shop.land_changes(change("orders", 7, "new", at=30))
    snapshot.check(headgate("status").out)
    assert "behind its log" in headgate("tables").out


def test_changes_as_json(headgate: Headgate, shop: ShopLake) -> None:
    status = data(headgate, "status")
    assert (status["rows"], status["files"], status["behind"]) == (8, 12, [])
    tables = {each["table"]: each for each in data(headgate, "tables")}
    assert tables["shop_orders"]["log"] == "log_shop_orders"
    assert tables["shop_orders"]["route"] == "shop.orders"
    assert tables["_files"]["kind"] == "files"
    assert data(headgate, "schema", "shop_orders")["follows"] == "log_shop_orders"
    listed = data(headgate, "quarantine", "list", "--file", "rubbish.avro")
    assert [each["reason"] for each in listed["records"]] == ["file_unreadable"]
    assert listed["records"][0]["position"]["file"].endswith("landing/2/rubbish.avro")


def test_dropping_one_file_leaves_the_others(headgate: Headgate, shop: ShopLake) -> None:
    dropped = data(headgate, "quarantine", "drop", "--file", "2/rubbish.avro", "--yes")
    assert dropped == {"dropped": {"file_unreadable": 1}}
    assert data(headgate, "quarantine", "list")["total"] == OF_ANOTHER_SERIES


def test_plan_without_a_registry_is_a_usage_error(headgate: Headgate, shop: ShopLake) -> None:
    printed = headgate("plan")
    assert printed.code == 2
    assert "nothing to plan" in printed.err


def test_doctor_looks_at_what_follows_the_logs(headgate: Headgate, shop: ShopLake) -> None:
    printed = headgate("doctor", "shop.yaml", "--json")
    states = {each["name"]: each["state"] for each in json.loads(printed.out)["data"]}
    wanted = ("change files", "lake", "ledger", "pending tables", "merged tables", "local database")
    assert {name: states[name] for name in wanted} == dict.fromkeys(wanted, "ok")
    assert "checkpoint" not in states
