"""A lake of change files, looked at: logs, what follows them, and what could not land."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.errors import LandingError
from headgate.inspect.doctor import check_lake
from headgate.inspect.quarantine import FilePosition, find_quarantined, read_quarantined
from headgate.inspect.schema import read_table_schema
from headgate.inspect.status import read_status
from headgate.inspect.tables import read_tables
from headgate.lake.ledger_entries import BatchEntry, MergeEntry, PendingEntry
from headgate.lake.staged import StagedFile
from headgate.quarantine.filter import QuarantineFilter
from tests.inspect.change_lake import OF_ANOTHER_SERIES, ShopLake, change, make_shop_lake
from tests.lake.recorded import complete

_LOOK = """
import sys
from headgate.inspect.quarantine import find_quarantined, read_quarantined
from headgate.inspect.schema import read_table_schema
from headgate.inspect.status import read_status
from headgate.inspect.tables import read_tables
from headgate.config import load_pipeline
pipeline = load_pipeline(sys.argv[1])
read_status(pipeline), read_tables(pipeline), read_table_schema(pipeline, "shop.orders")
records, _ = read_quarantined(pipeline)
find_quarantined(pipeline, records[0].position)
print([name for name in ("pyspark", "pandas") if name in sys.modules])
"""

ORDERS = ("log_shop_orders", "shop_orders", "history_shop_orders")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ShopLake:
    """Landed once; tests only look at it."""
    return make_shop_lake(tmp_path_factory.mktemp("shop_lake"))


def test_looking_loads_neither_spark_nor_pandas(lake: ShopLake) -> None:
    command = [sys.executable, "-c", _LOOK, str(lake.file)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_status_counts_changes_once_and_files(lake: ShopLake) -> None:
    status = read_status(lake.pipeline)
    assert status.rows == len(lake.rows("log_shop_orders")) + len(lake.rows("log_shop_customers"))
    assert (status.rows, status.tables, status.batches) == (8, 2, 3)
    assert status.files == len(lake.rows("_files"))
    assert status.quarantined == {"order_unknown": OF_ANOTHER_SERIES, "file_unreadable": 1}
    assert (status.behind, status.schema_changes) == ((), 1)


def test_tables_that_follow_a_log_come_after_it_with_the_rows_they_have(lake: ShopLake) -> None:
    tables = read_tables(lake.pipeline)
    assert [each.table for each in tables] == [
        "log_shop_customers",
        "shop_customers",
        "history_shop_customers",
        *ORDERS,
        "_files",
        "quarantine",
    ]
    assert [str(each.kind) for each in tables[3:]] == [
        "log",
        "merged",
        "history",
        "files",
        "quarantine",
    ]
    for each in tables:
        assert each.rows == len(lake.rows(each.table)), each
        assert each.version == DeltaTable(str(lake.path / each.table)).version()
        assert None not in (each.columns, each.files, each.bytes)
    assert [each.route for each in tables[2:]] == [
        "shop.customers",
        *["shop.orders"] * 3,
        None,
        None,
    ]
    assert [each.log for each in tables[3:6]] == [None, "log_shop_orders", "log_shop_orders"]
    assert not any(each.behind for each in tables)


@pytest.mark.parametrize("name", ["log_shop_orders", "shop.orders"])
def test_schema_of_a_log_has_its_history(lake: ShopLake, name: str) -> None:
    found = read_table_schema(lake.pipeline, name)
    assert (found.table, found.kind, found.route) == ("log_shop_orders", "log", "shop.orders")
    assert [each.name for each in found.columns if not each.origin] == ["id", "name", "amount"]
    assert [each.change for each in found.history] == ["CreateTable", "AddColumn"]
    assert found.history[1].schema_ids == ()
    assert found.follows is None


@pytest.mark.parametrize("name", ["shop_orders", "history_shop_orders"])
def test_schema_of_a_table_says_which_log_it_follows(lake: ShopLake, name: str) -> None:
    found = read_table_schema(lake.pipeline, name)
    assert (found.table, found.follows, found.route) == (name, "log_shop_orders", "shop.orders")
    assert [each.name for each in found.columns if not each.origin] == ["id", "name", "amount"]
    assert [each.column for each in found.history] == ["log_shop_orders", "amount"]


def test_schema_of_an_unknown_table_suggests_one(lake: ShopLake) -> None:
    with pytest.raises(LandingError, match=r"shop\.ordrs") as caught:
        read_table_schema(lake.pipeline, "shop.ordrs")
    assert caught.value.hint == "did you mean `shop.orders`?"


@pytest.mark.parametrize("name", [*ORDERS, "shop.orders", '["shop", null, "orders"]'])
def test_quarantined_changes_are_found_by_any_name_of_their_table(
    lake: ShopLake, name: str
) -> None:
    records, total = read_quarantined(lake.pipeline, QuarantineFilter(route=name))
    assert total == OF_ANOTHER_SERIES
    assert {each.route for each in records} == {"shop.orders"}


def test_quarantined_changes_are_found_by_their_file(lake: ShopLake) -> None:
    path = str(lake.folder / "landing" / "2" / "rubbish.avro")
    for file in (path, "2/rubbish.avro", "rubbish.avro"):
        (record,), _ = read_quarantined(lake.pipeline, QuarantineFilter(file=file))
        assert record.position == FilePosition(path)
        assert record.value == b"no change file"
    assert read_quarantined(lake.pipeline, QuarantineFilter(file="bish.avro"))[1] == 0


def test_one_quarantined_change_is_found_by_its_place_in_its_file(lake: ShopLake) -> None:
    records, _ = read_quarantined(lake.pipeline, QuarantineFilter(reason="order_unknown"))
    for record in records:
        assert find_quarantined(lake.pipeline, FilePosition.parse(str(record.position))) == [record]
    with pytest.raises(LandingError, match="not in quarantine"):
        find_quarantined(lake.pipeline, FilePosition.parse("2/rubbish.avro:7"))


def test_tables_whose_log_went_on_are_behind(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.land_changes(change("orders", 1, "new", at=1), change("customers", 1, "Ann", at=1))
    lake.merges = False
    lake.land_changes(change("orders", 2, "new", at=2), change("carts", 1, "full", at=2))
    behind = ("history_shop_orders", "shop_carts", "shop_orders")
    assert read_status(lake.pipeline).behind == behind
    told = {each.table for each in read_tables(lake.pipeline) if each.behind}
    assert told == {"history_shop_orders", "shop_orders"}
    checks = {each.name: each for each in check_lake(lake.pipeline)}
    assert (checks["merged tables"].state, checks["ledger"].state) == ("warn", "ok")
    assert checks["ledger"].detail == "batch 2 is next"
    lake.merges = True
    lake.run()
    assert read_status(lake.pipeline).behind == ()


def test_a_pipeline_of_logs_only_is_never_behind(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.declare("history: history_{database}_{table}\n", "merged: null\n")
    lake.land_changes(change("orders", 1, "new", at=1))
    assert read_status(lake.pipeline).behind == ()
    assert [each.table for each in read_tables(lake.pipeline)] == ["log_shop_orders", "_files"]


def test_a_merge_on_its_own_does_not_hide_what_waits(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.land_changes(change("orders", 1, "new", at=1))
    file = StagedFile("log_shop_carts", "part.parquet", 1, 3, "{}", b"")
    waits = PendingEntry("log_shop_carts", 3, 1, file, "no room")
    complete(lake.ledger, 1, 1, [waits, BatchEntry(0)])
    merged = lake.ledger.snapshot().entries(MergeEntry)
    assert merged
    lake.ledger.add(1, [row.entry for row in merged])
    (waiting,) = read_status(lake.pipeline).pending
    assert (waiting.table, waiting.error) == ("log_shop_carts", "no room")


def test_doctor_misses_a_ledger_that_is_gone(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.land_changes(change("orders", 1, "new", at=1))
    (lake.path / "ledger").rename(tmp_path / "elsewhere")
    checks = {each.name: each for each in check_lake(lake.pipeline)}
    assert checks["ledger"].state == "fail"
    assert "log_shop_orders" in checks["ledger"].detail
