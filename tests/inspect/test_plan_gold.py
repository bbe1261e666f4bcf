"""What a plan says of derived tables: made, rebuilt or followed, and the columns they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import PipelineConfig
from headgate.inspect.plan import read_plan
from headgate.inspect.plan_gold import (
    DerivedPlan,
    DerivedTablePlan,
    GoldStep,
    MissingColumn,
    UnknownColumn,
)
from headgate.lake.snapshot import Snapshot
from tests.inspect.change_lake import make_shop_lake
from tests.inspect.framed_lake import FramedLake, proto
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold
from tests.inspect.gold_lake import commit, derive
from tests.inspect.small_lake import SmallLake, make_small_lake

PLAYERS = "gold_{route}_player_agg"


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    made = make_small_lake(tmp_path)
    declare_gold(made.file, GAMES)
    return made


def planned(pipeline: PipelineConfig, name: str) -> DerivedPlan:
    return next(one for one in read_plan(pipeline).derived if one.name == name)


def steps(plan: DerivedPlan) -> dict[str, str]:
    return {one.table: one.step.value for one in plan.tables}


def size(pipeline: PipelineConfig, table: str) -> int:
    opened = Snapshot.open(pipeline.lake, table)
    assert opened is not None
    return opened.bytes


def test_every_declaration_is_planned_in_the_order_of_the_file(lake: SmallLake) -> None:
    derived = read_plan(lake.pipeline).derived
    assert {one.name: one.how for one in derived} == {
        PLAYERS: "incremental (3 states)",
        "unified_gold": f"union of {PLAYERS.replace('{route}', '*')} by upsert",
        "routes": "incremental (2 states)",
    }
    assert [one.name for one in derived] == [PLAYERS, "unified_gold", "routes"]


def test_tables_that_are_not_there_are_made_from_what_has_landed(lake: SmallLake) -> None:
    pipeline = lake.pipeline
    plan = planned(pipeline, PLAYERS)
    silver = sorted(path.name for path in Path(pipeline.lake).glob("silver_*"))
    assert plan.tables == tuple(
        DerivedTablePlan(
            table.replace("silver", "gold") + "_player_agg", GoldStep.MAKE, 1, size(pipeline, table)
        )
        for table in silver
    )
    (routes,) = planned(pipeline, "routes").tables
    every = sum(size(pipeline, table) for table in silver)
    assert routes == DerivedTablePlan("routes", GoldStep.MAKE, 5, every)
    (union,) = planned(pipeline, "unified_gold").tables
    assert union == DerivedTablePlan("unified_gold", GoldStep.MAKE, 5, 0)


def test_tables_with_the_mark_of_their_declaration_follow(lake: SmallLake) -> None:
    pipeline = lake.pipeline
    derive(pipeline, PLAYERS, "gold_chess_player_agg")
    derive(pipeline, "routes", "routes", "silver_go")
    derive(pipeline, "unified_gold", "unified_gold", "gold_chess_player_agg")
    assert steps(planned(pipeline, PLAYERS)) == {
        f"gold_{route}_player_agg": "follow" if route == "chess" else "make"
        for route in sorted(path.name[7:] for path in Path(pipeline.lake).glob("silver_*"))
    }
    for name in ("routes", "unified_gold"):
        (table,) = planned(pipeline, name).tables
        assert (table.step, table.read_bytes) == (GoldStep.FOLLOW, 0)


def test_tables_of_another_declaration_are_rebuilt(lake: SmallLake) -> None:
    before = lake.pipeline
    derive(before, PLAYERS, "gold_chess_player_agg")
    derive(before, PLAYERS, "gold_go_player_agg")
    derive(before, "routes", "routes", "silver_go")
    derive(before, "unified_gold", "unified_gold", "gold_chess_player_agg")
    text = lake.file.read_text().replace("count(*) AS", "count(user_name) AS")
    lake.file.write_text(text.replace("mode: upsert", "mode: append"))
    after = lake.pipeline
    derive(after, PLAYERS, "gold_go_player_agg")
    found = steps(planned(after, PLAYERS))
    assert (found["gold_chess_player_agg"], found["gold_go_player_agg"]) == ("rebuild", "follow")
    for name in ("routes", "unified_gold"):
        assert steps(planned(after, name)) == {name: "rebuild"}
    plan = read_plan(after)
    assert (plan.summary.derived_made, plan.summary.derived_rebuilt) == (3, 3)
    (union,) = planned(after, "unified_gold").tables
    gold = ("gold_chess_player_agg", "gold_go_player_agg")
    assert union.read_bytes == sum(size(after, table) for table in gold)


def test_spaces_and_comments_rebuild_nothing(lake: SmallLake) -> None:
    derive(lake.pipeline, PLAYERS, "gold_chess_player_agg")
    text = lake.file.read_text().replace("    FROM silver\n", "    FROM   silver -- all\n")
    lake.file.write_text(text)
    assert steps(planned(lake.pipeline, PLAYERS))["gold_chess_player_agg"] == "follow"


def test_a_table_that_nobody_derived_is_rebuilt(lake: SmallLake) -> None:
    commit(lake.pipeline, "routes")
    assert steps(planned(lake.pipeline, "routes")) == {"routes": "rebuild"}


def test_a_column_that_some_tables_lack_is_null_there(lake: SmallLake) -> None:
    plan = planned(lake.pipeline, "routes")
    silver = sorted(path.name for path in Path(lake.pipeline.lake).glob("silver_*"))
    lacking = tuple(table for table in silver if table != "silver_chess")
    assert plan.missing == (MissingColumn("col_chess_game_2", lacking),)
    assert plan.unknown == ()


def test_a_column_that_no_table_has_is_told_with_what_was_meant(lake: SmallLake) -> None:
    text = lake.file.read_text().replace("user_name", "USER_NAM")
    lake.file.write_text(text.replace("route, USER_NAM", "route, user_nam, sesion_count"))
    assert planned(lake.pipeline, PLAYERS).unknown == (UnknownColumn("USER_NAM", "user_name"),)
    union = planned(lake.pipeline, "unified_gold")
    assert union.unknown == (UnknownColumn("sesion_count", "session_count"),)


def test_columns_are_read_in_any_case(lake: SmallLake) -> None:
    lake.file.write_text(lake.file.read_text().replace("user_name", "User_Name"))
    plan = planned(lake.pipeline, PLAYERS)
    assert (plan.unknown, plan.missing) == ((), ())


def test_names_that_a_query_inside_gives_are_no_columns(lake: SmallLake) -> None:
    declare_gold(
        lake.file,
        "gold:\n"
        "  gold_{route}_best: |\n"
        "    WITH by_user AS\n"
        "      (SELECT s.user_name AS player, count(*) AS n FROM silver s GROUP BY 1)\n"
        "    SELECT player, n, nonsense FROM by_user ORDER BY n DESC LIMIT 3\n",
    )
    plan = planned(lake.pipeline, "gold_{route}_best")
    assert plan.unknown == (UnknownColumn("nonsense", None),)
    assert plan.how.startswith("recomputed for touched tables: ")


def test_an_empty_lake_says_nothing_of_columns(empty_lake: SmallLake) -> None:
    declare_gold(empty_lake.file, GAMES.replace("user_name", "nonsense"))
    for plan in read_plan(empty_lake.pipeline).derived:
        assert (plan.tables, plan.unknown, plan.missing) == ((), (), ())


def test_without_gold_nothing_is_derived(empty_lake: SmallLake) -> None:
    assert read_plan(empty_lake.pipeline).derived == ()


def test_tables_that_are_coming_get_derived_ones(tmp_path: Path) -> None:
    gold = {"gold_{route}_n": "SELECT sum(n) AS n, max(more) AS more FROM silver"}
    lake = FramedLake(tmp_path, declared={"gold": gold})
    first = lake.register("orders-value", proto("Order { int32 n = 1; }"))
    lake.land([("orders", first, b"\0")])
    assert planned(lake.pipeline, "gold_{route}_n").unknown == (UnknownColumn("more", None),)
    lake.register("orders-value", proto("Order { int32 n = 1; int32 more = 2; }"))
    lake.register("returns-value", proto("Return { int32 n = 1; }"))
    plan = planned(lake.pipeline, "gold_{route}_n")
    assert steps(plan) == {"gold_orders_n": "make", "gold_returns_n": "make"}
    assert plan.unknown == ()
    assert plan.missing == (MissingColumn("more", ("silver_returns",)),)


def test_a_schema_that_is_refused_brings_no_columns(tmp_path: Path) -> None:
    gold = {"all_rows": "SELECT max(more) AS more FROM silver"}
    lake = FramedLake(tmp_path, declared={"gold": gold, "contract": {"columns": "freeze"}})
    first = lake.register("orders-value", proto("Order { int32 n = 1; }"))
    lake.land([("orders", first, b"\0")])
    lake.register("orders-value", proto("Order { int32 n = 1; int32 more = 2; }"))
    assert planned(lake.pipeline, "all_rows").unknown == (UnknownColumn("more", None),)


def test_merged_tables_are_what_gold_of_changes_is_made_of(tmp_path: Path) -> None:
    lake = make_shop_lake(tmp_path)
    declare_gold(lake.file, SHOP)
    lake.declare()
    derive(lake.pipeline, "all_names", "all_names", "shop_orders")
    names, union = read_plan(lake.pipeline).derived
    assert names.how.startswith("recomputed for touched tables: ")
    assert steps(names) == {"gold_shop_customers_names": "make", "gold_shop_orders_names": "make"}
    assert names.missing == (MissingColumn("amount", ("shop_customers",)),)
    assert union.tables == (DerivedTablePlan("all_names", GoldStep.FOLLOW, 2, 0),)


def test_a_plan_writes_nothing(lake: SmallLake) -> None:
    derive(lake.pipeline, PLAYERS, "gold_chess_player_agg")
    before = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*")}
    read_plan(lake.pipeline)
    assert {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*")} == before
