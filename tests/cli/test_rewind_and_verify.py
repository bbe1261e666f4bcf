"""`rewind` and `verify`: a change log against what is, or was, made of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cdc.change_lake import ChangeLake
from tests.cdc.changes import case
from tests.cdc.test_merged_is_the_database import land_all
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot

PIPELINE = """
name: shop
source: {files: {path: ./landing}}
envelope: datastream
lake: ./lake
history: history_{database}_{table}
"""


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    """In the folder that commands run in."""
    lake = ChangeLake(tmp_path, {"history": "history_{database}_{table}"})
    land_all(lake, [case(3)])
    Path(tmp_path, "shop.yaml").write_text(PIPELINE)
    return lake


def spoil(lake: ChangeLake) -> None:
    """One row goes, one changes."""
    table = DeltaTable(str(lake.path / "theatre_seats"))
    first, second = sorted(table.to_pyarrow_table()["id"].to_pylist())[:2]
    table.delete(f"id = {first}")
    table.update(predicate=f"id = {second}", updates={"name": "'a\x1b[2J'", "amount": "NULL"})


def test_rewind(headgate: Headgate, snapshot: Snapshot, lake: ChangeLake) -> None:
    printed = headgate("rewind", "shop.yaml", "--table", "theatre_seats", "--to", "2026-11-01")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_rewind_to_a_position(headgate: Headgate, snapshot: Snapshot, lake: ChangeLake) -> None:
    last = [change for change in case(3).changes if change.log_file][-1]
    position = f"{last.log_file}:{last.log_position}"
    words = ("--table", "theatre.seats", "--to", position, "--into", "before")
    printed = headgate("rewind", *words)
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)
    assert {row["id"] for row in lake.rows("before")} == set(case(3).rows)


def test_rewind_to_before_all_changes(
    headgate: Headgate, snapshot: Snapshot, lake: ChangeLake
) -> None:
    printed = headgate("rewind", "--table", "theatre_seats", "--to", "2020-01-01 12:00")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_rewind_as_json(headgate: Headgate, lake: ChangeLake) -> None:
    words = ("--table", "theatre_seats", "--to", "2026-11-01T13:00+01:00", "--json")
    answer = json.loads(headgate("rewind", *words).out)
    assert answer["ok"]
    assert answer["data"]["table"] == "theatre_seats_at_20261101_120000"
    assert answer["data"]["timestamp"] == "2026-11-01T12:00:00+00:00"
    assert answer["data"]["rows"] == len(case(3).rows)


def test_rewind_never_overwrites(headgate: Headgate, lake: ChangeLake) -> None:
    words = ("rewind", "shop.yaml", "--table", "theatre_seats", "--to", "2026-11-01")
    assert headgate(*words).code == 0
    printed = headgate(*words)
    assert (printed.code, printed.out) == (2, "")
    assert "[already-exists]" in printed.err
    assert "hint: choose another name: --into NAME" in printed.err


def test_verify(headgate: Headgate, snapshot: Snapshot, lake: ChangeLake) -> None:
    printed = headgate("verify", "shop.yaml")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_verify_reports_differences(
    headgate: Headgate, snapshot: Snapshot, lake: ChangeLake
) -> None:
    spoil(lake)
    printed = headgate("verify", "shop.yaml", "--table", "theatre.seats")
    assert (printed.code, printed.err) == (1, "")
    snapshot.check(printed.out)


def test_verify_as_json(headgate: Headgate, lake: ChangeLake) -> None:
    spoil(lake)
    printed = headgate("verify", "shop.yaml", "--json")
    answer = json.loads(printed.out)
    assert (printed.code, answer["ok"], answer["data"]["differences"]) == (1, False, 2)
    assert answer["errors"] == [
        {"table": "theatre_seats", "message": "1 row is missing, 1 row differs"}
    ]
    merged, history = answer["data"]["tables"]
    assert (merged["ok"], history["ok"]) == (False, True)
    [different] = merged["differences"]["different_rows"]
    assert different["columns"]["amount"]["found"] is None


def test_verify_reports_tables_that_are_behind(headgate: Headgate, lake: ChangeLake) -> None:
    lake.merges = False
    land_all(lake, [case(4)])
    printed = headgate("verify")
    assert printed.code == 0
    assert re.search(r"  ok, \d+ versions? behind its log\n", printed.out)


def test_nothing_to_verify(headgate: Headgate) -> None:
    headgate("init", "shop")
    printed = headgate("verify", "shop.yaml")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Nothing to verify")


def test_streams_of_records_have_no_change_logs(headgate: Headgate) -> None:
    headgate("init", "games")
    printed = headgate("rewind", "--table", "orders", "--to", "2026-11-01")
    assert printed.code == 2
    assert "games.yaml declares a stream of records" in printed.err


def test_a_table_that_is_unknown_is_an_error_with_a_hint(
    headgate: Headgate, lake: ChangeLake
) -> None:
    printed = headgate("verify", "--table", "theatre_seat")
    assert printed.code == 1
    assert "[table-unknown]" in printed.err
    assert "hint: did you mean `theatre_seats`?" in printed.err
