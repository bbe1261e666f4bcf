"""What people see of derived tables: before a run in `plan`, then in `status` and `tables`."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.commands.plan import print_plan
from headgate.inspect.plan import PipelinePlan
from headgate.inspect.plan_gold import (
    DerivedPlan,
    DerivedTablePlan,
    GoldStep,
    MissingColumn,
    UnknownColumn,
)
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot
from tests.inspect.change_lake import ShopLake, make_shop_lake
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold
from tests.inspect.gold_lake import derive, record
from tests.inspect.small_lake import SmallLake, make_small_lake

CHESS = "gold_chess_player_agg"
PLAYERS = "gold_{route}_player_agg"


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """Two derived tables as they were declared before, one as it is declared now."""
    lake = make_small_lake(tmp_path_factory.mktemp("derived"))
    declare_gold(lake.file, GAMES.replace("max(", "count("))
    for table in (CHESS, "gold_go_player_agg"):
        derive(lake.pipeline, PLAYERS, table)
        record(lake.pipeline, table)
    lake.file.write_text(lake.file.read_text().replace("count(event", "max(event"))
    lake.file.write_text(lake.file.read_text().replace("newest", "newst, max(user_nam) AS user"))
    derive(lake.pipeline, "unified_gold", "unified_gold", CHESS)
    record(lake.pipeline, "unified_gold", rows=4)
    for number in range(7):
        record(lake.pipeline, f"gold_{number}_player_agg", error=f"no room for {number}\x1b[2J")
    return lake


@pytest.fixture
def shop(tmp_path: Path) -> ShopLake:
    lake = make_shop_lake(tmp_path)
    declare_gold(lake.file, SHOP)
    lake.declare()
    return lake


@pytest.fixture(autouse=True)
def _two_hours_later(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = request.getfixturevalue("derived")
    later = lake.made_at + timedelta(hours=2, minutes=30)
    monkeypatch.setattr("headgate.cli.output.now", lambda: later)


@pytest.mark.parametrize(
    "command", ["plan PIPELINE", "status PIPELINE", "tables PIPELINE", f"schema PIPELINE {CHESS}"]
)
def test_derived(headgate: Headgate, snapshot: Snapshot, derived: SmallLake, command: str) -> None:
    printed = headgate(*command.replace("PIPELINE", str(derived.file)).split())
    assert (printed.code, printed.err) == (0, "")
    snapshot.also(derived.folder, "<folder>").check(printed.out)


@pytest.mark.parametrize("command", ["plan", "status", "tables"])
def test_derived_of_changes(
    headgate: Headgate, snapshot: Snapshot, shop: ShopLake, command: str
) -> None:
    derive(shop.pipeline, "all_names", "all_names", "shop_orders")
    record(shop.pipeline, "all_names", rows=4)
    printed = headgate(command)
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


def test_many_derived_tables_are_folded(
    capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    def tables(count: int, step: GoldStep) -> tuple[DerivedTablePlan, ...]:
        return tuple(DerivedTablePlan(f"gold_{n}_{step}", step, 1, 9_999) for n in range(count))

    many = DerivedPlan(
        "gold_{route}_\x1b[2J",
        "row by row",
        (
            *tables(250, GoldStep.MAKE),
            *tables(1000, GoldStep.REBUILD),
            *tables(4, GoldStep.FOLLOW),
        ),
        (UnknownColumn("nonsense\n", None),),
        (MissingColumn("score", tuple(f"silver_{n}" for n in range(12))),),
    )
    one = DerivedPlan("one", "incremental (1 state)", tables(1, GoldStep.FOLLOW))
    nothing = DerivedPlan("nothing", "incremental (1 state)", ())
    print_plan(PipelinePlan("games", (), (), (), (many, one, nothing)))
    snapshot.check(capsys.readouterr().out)


def test_a_plan_as_json_has_all_of_derived_tables(headgate: Headgate, derived: SmallLake) -> None:
    plan = data(headgate, "plan", derived.file)
    assert (plan["summary"]["derived_made"], plan["summary"]["derived_rebuilt"]) == (4, 2)
    players, union, routes = plan["derived"]
    assert players["name"] == PLAYERS
    assert players["how"] == "incremental (3 states)"
    assert [one["step"] for one in players["tables"]].count("rebuild") == 2
    assert all(one["read_bytes"] > 0 and one["sources"] == 1 for one in players["tables"])
    assert union["tables"] == [
        {"table": "unified_gold", "step": "follow", "sources": 5, "read_bytes": 0}
    ]
    assert routes["unknown"] == [{"column": "user_nam", "meant": "user_name"}]
    (missing,) = routes["missing"]
    assert (missing["column"], missing["count"]) == ("col_chess_game_2", 4)
    assert "silver_go" in missing["tables"]


def test_status_as_json_has_all_derived_tables(headgate: Headgate, derived: SmallLake) -> None:
    found = {one["table"]: one for one in data(headgate, "status", derived.file)["derived"]}
    assert len(found) == 10
    assert found["unified_gold"].keys() == {"table", "rows_last", "table_version", "at", "error"}
    assert found["unified_gold"]["rows_last"] == 4
    assert found["gold_6_player_agg"]["error"] == "no room for 6\x1b[2J"


def test_a_column_that_no_table_has_does_not_fail_a_strict_plan(
    headgate: Headgate, derived: SmallLake
) -> None:
    assert headgate("plan", derived.file, "--strict").code == 0


def test_a_derived_table_is_no_schema_to_compare_with(
    headgate: Headgate, derived: SmallLake
) -> None:
    words = ["schema", "diff", CHESS, "chess-value", "--pipeline", derived.file]
    printed = headgate(*words)
    assert printed.code == 1
    assert "[name-unknown]" in printed.err


def test_plan_starts_no_spark(headgate: Headgate, derived: SmallLake) -> None:
    look = (
        "import sys\nfrom headgate.inspect.plan import read_plan\n"
        "from headgate.config import load_pipeline\n"
        "assert read_plan(load_pipeline(sys.argv[1])).derived\n"
        "assert not {'pyspark', 'pandas'} & sys.modules.keys(), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", look, str(derived.file)], check=True)


def data(headgate: Headgate, *words: str | Path) -> Any:
    printed = headgate(*words, "--json")
    assert (printed.code, printed.err) == (0, "")
    return json.loads(printed.out)["data"]
