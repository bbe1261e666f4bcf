from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headgate.lab.pizza.simulate import SimulatedPizza, simulate_pizza
from tests.cli.conftest import Headgate

_SMALL = ("simulate", "games", "--to", "delta", "--tables", "3", "--versions", "2")


def test_simulate_fills_an_inbox_and_a_folder_of_schemas(
    headgate: Headgate, tmp_path: Path
) -> None:
    printed = headgate(*_SMALL, "--records", "500", "--bad", "10%")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Sent 500 records to inbox in ")
    assert "of them are bad, and will be quarantined:" in printed.out
    assert DeltaTable(str(tmp_path / "inbox")).count() == 500
    assert len(list((tmp_path / "schemas").glob("*.proto"))) == 6


def test_simulate_as_json(headgate: Headgate) -> None:
    printed = headgate(*_SMALL, "--records", "500", "--bad", "0.1", "--json")
    data = json.loads(printed.out)["data"]
    assert data["records"] == 500
    assert 20 < sum(data["bad"].values()) < 100
    assert (data["to"], data["registry"]) == ("inbox", "schemas")


def test_simulate_cleans_up_before_it_sends(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_SMALL, "--records", "100")
    printed = headgate(*_SMALL, "--records", "50", "--clean")
    assert "Removed inbox inbox\nRemoved 6 schemas in schemas\n" in printed.out
    assert DeltaTable(str(tmp_path / "inbox")).count() == 50


def test_simulate_only_cleans_up_what_it_made(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_SMALL, "--records", "100")
    (tmp_path / "schemas" / "100.mine.proto").write_text("")
    assert headgate(*_SMALL, "--records", "0", "--clean").code == 0
    assert not (tmp_path / "inbox").exists()
    assert [each.name for each in (tmp_path / "schemas").iterdir()] == ["100.mine.proto"]
    again = headgate(*_SMALL, "--records", "0", "--clean")
    assert again.out == "Nothing to clean up\n"


def test_simulate_does_not_remove_a_folder_that_is_not_an_inbox(
    headgate: Headgate, tmp_path: Path
) -> None:
    (tmp_path / "inbox").mkdir()
    printed = headgate(*_SMALL, "--clean")
    assert printed.code == 2
    assert (tmp_path / "inbox").is_dir()


@pytest.mark.parametrize("share", ["ten", "101%", "-1", "2"])
def test_simulate_rejects_an_invalid_share(headgate: Headgate, share: str) -> None:
    printed = headgate(*_SMALL, "--bad", share)
    assert printed.code == 2
    assert "hint: write 1% or 0.01" in printed.err


def test_simulate_to_kafka_needs_services(headgate: Headgate) -> None:
    printed = headgate("simulate", "games", "--to", "kafka")
    assert printed.code == 2
    assert "headgate up starts them" in printed.err


def test_simulate_to_nowhere_is_a_usage_error(headgate: Headgate) -> None:
    printed = headgate("simulate", "games", "--to", "kafak")
    assert (printed.code, "use kafka or delta" in printed.err) == (2, True)


def test_simulate_at_a_rate_ends_after_its_records(headgate: Headgate, tmp_path: Path) -> None:
    assert headgate(*_SMALL, "--records", "20", "--rate", "1000").code == 0
    assert DeltaTable(str(tmp_path / "inbox")).count() == 20


_SHOP = ("simulate", "shop")


def _written(tmp_path: Path, ending: str) -> int:
    return len(list((tmp_path / "landing").glob(f"shop_*/*/*/*/*/*/*.{ending}")))


def test_simulate_shop_writes_change_files(headgate: Headgate, tmp_path: Path) -> None:
    printed = headgate(*_SHOP, "--changes", "200")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Wrote 20")
    assert " changes of 5 tables to landing in " in printed.out
    assert f"\n{_written(tmp_path, 'avro')} files; " in printed.out
    assert "headgate run shop.yaml --once" in printed.out


def test_simulate_shop_as_json(headgate: Headgate, tmp_path: Path) -> None:
    printed = headgate(*_SHOP, "--changes", "200", "--format", "json", "--to", "here", "--json")
    data = json.loads(printed.out)["data"]
    assert sum(data["kinds"].values()) == data["changes"] >= 200
    assert (data["to"], data["format"], data["backfilled"]) == ("here", "json", 50)
    assert len(list((tmp_path / "here").rglob("*.jsonl"))) == data["files"]


def test_simulate_shop_only_cleans_up_what_it_made(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_SHOP, "--changes", "50")
    count = _written(tmp_path, "avro")
    mine = tmp_path / "landing" / "shop_orders" / "mine.avro"
    mine.write_text("")
    printed = headgate(*_SHOP, "--changes", "0", "--clean")
    assert printed.out == f"Removed {count} files in landing\nNothing written\n"
    assert [path for path in (tmp_path / "landing").rglob("*") if path.is_file()] == [mine]
    assert [path.name for path in (tmp_path / "landing").iterdir()] == ["shop_orders"]
    again = headgate(*_SHOP, "--changes", "0", "--clean")
    assert again.out == "Nothing to clean up\n"


def test_simulate_shop_cleans_up_before_it_writes(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_SHOP, "--changes", "50", "--format", "json")
    printed = headgate(*_SHOP, "--changes", "50", "--clean")
    assert printed.out.startswith("Removed ")
    assert (_written(tmp_path, "jsonl"), _written(tmp_path, "avro") > 0) == (0, True)


def test_simulate_shop_at_a_rate_ends_after_its_changes(headgate: Headgate, tmp_path: Path) -> None:
    assert headgate(*_SHOP, "--changes", "20", "--rate", "1000").code == 0
    assert _written(tmp_path, "avro") > 0


def test_simulate_shop_in_an_unknown_format_is_a_usage_error(headgate: Headgate) -> None:
    printed = headgate(*_SHOP, "--format", "csv")
    assert (printed.code, "use avro or json" in printed.err) == (2, True)


def test_simulate_shop_on_a_database_needs_one(headgate: Headgate) -> None:
    printed = headgate(*_SHOP, "--database")
    assert (printed.code, "headgate up --database starts one" in printed.err) == (2, True)


_PIZZA = ("simulate", "pizza", "--to", "delta", "--stores", "2")
_DAY = (*_PIZZA, "--history", "1d", "--start", "2026-01-10 18:00")


def test_simulate_pizza_fills_an_inbox_and_a_folder_of_schemas(
    headgate: Headgate, tmp_path: Path
) -> None:
    printed = headgate(*_DAY)
    assert (printed.code, printed.err) == (0, "")
    rows = DeltaTable(str(tmp_path / "inbox")).to_pyarrow_table(columns=["topic"])
    assert printed.out.startswith(f"Sent {len(rows):,} records to inbox in ")
    assert " minutes on average\n" in printed.out
    assert "headgate init confluent" in printed.out
    assert {*rows["topic"].to_pylist()} == {
        "waittimes_avro",
        "pizza_orders_avro",
        "pizza_orders_cancelled_avro",
        "pizza_orders_completed_avro",
    }
    assert len(list((tmp_path / "schemas").glob("*.avsc"))) == 8


def test_simulate_pizza_as_json(headgate: Headgate) -> None:
    data = json.loads(headgate(*_DAY, "--json").out)["data"]
    again = json.loads(headgate(*_DAY, "--json", "--clean").out)["data"]
    counts = ("records", "orders", "completed", "cancelled", "mean_wait", "until")
    assert [data[name] for name in counts] == [again[name] for name in counts]
    assert data["records"] == data["orders"] + data["completed"] + data["cancelled"] + 2
    assert again["removed"] == ["inbox inbox", "8 schemas in schemas"]


def test_simulate_pizza_with_a_broken_oven_lets_people_wait(headgate: Headgate) -> None:
    whole, broken = (
        json.loads(headgate(*_DAY, "--clean", "--json", *more).out)["data"]
        for more in ((), ("--broken-oven", "2"))
    )
    assert whole["orders"] == broken["orders"]
    assert whole["mean_wait"] + 1 < broken["mean_wait"]


def test_simulate_pizza_goes_on_for_the_duration(headgate: Headgate, tmp_path: Path) -> None:
    live = ("--history", "0", "--orders-per-second", "100", "--duration", "1s", "--versions", "2,3")
    printed = headgate(*_PIZZA, *live, "--json")
    assert json.loads(printed.out)["data"]["orders"] == 100
    assert len(list((tmp_path / "schemas").glob("*.pizza_orders_avro-value.avsc"))) == 3


def test_ctrl_c_ends_live_records_with_a_summary(
    headgate: Headgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Iterator[SimulatedPizza]:
        yield next(simulate_pizza(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("headgate.cli.simulation.simulate_pizza", interrupted)
    printed = headgate(*_DAY, "--speed", "1")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Sent ")


def test_simulate_pizza_only_cleans_up_what_it_made(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_DAY)
    mine = tmp_path / "schemas" / "100.mine-value.avsc"
    mine.write_text("")
    printed = headgate(*_PIZZA, "--history", "0", "--clean")
    assert printed.out == "Removed inbox inbox\nRemoved 8 schemas in schemas\nNothing sent\n"
    assert [*(tmp_path / "schemas").iterdir()] == [mine]
    again = headgate(*_PIZZA, "--history", "0", "--clean")
    assert again.out == "Nothing to clean up\n"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--speed", "60", "--orders-per-second", "5"], "use one"),
        (["--duration", "5m"], "add --speed or --orders-per-second"),
        (["--broken-oven", "3"], "see --stores"),
        (["--history", "soon"], "write a number and a unit"),
        (["--start", "noon"], "use a date such as"),
        (["--versions", "2,9"], "write one or more of 1, 2, 3"),
        (["--to", "kafak"], "use kafka or delta"),
    ],
)
def test_simulate_pizza_rejects_invalid_options(
    headgate: Headgate, tmp_path: Path, options: list[str], hint: str
) -> None:
    printed = headgate(*_PIZZA, *options)
    assert (printed.code, f"hint: {hint}" in printed.err) == (2, True)
    assert not (tmp_path / "inbox").exists()
