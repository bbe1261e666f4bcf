"""An exported project, run by Spark itself, makes the gold tables that the SQL says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from headgate.gold.export_sdp import export_sdp
from headgate.local import jar_paths
from tests.inspect.change_lake import change, make_shop_lake
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold
from tests.inspect.small_lake import make_small_lake

Rows = list[tuple[Any, ...]]


def spark_pipelines(project: Path, command: str) -> None:
    """As the project's README says."""
    assert jar_paths("spark")
    bin_folder = Path(sys.executable).parent
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["spark-pipelines", command],
        cwd=project,
        env={**os.environ, "PATH": path, "SPARK_CONF_DIR": "conf"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"


def read(lake: Path, table: str) -> pa.Table:
    return DeltaTable(str(lake / table)).to_pyarrow_table()


def rows(table: pa.Table) -> Rows:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def by_duckdb(sql: str, **tables: pa.Table) -> Rows:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return rows(connection.sql(sql).to_arrow_table())


OF_PLAYERS = """
SELECT user_name, count(*), min(event_timestamp) AS first_seen, max(event_timestamp) AS last_seen
FROM silver GROUP BY user_name
"""


def test_gold_of_games_also_of_one_that_came_after_the_export(tmp_path: Path) -> None:
    lake = make_small_lake(tmp_path)
    declare_gold(lake.file, GAMES)
    project = tmp_path / "project"
    export_sdp(lake.pipeline, project)
    own = project / "transformations" / "own.sql"
    own.write_text("CREATE MATERIALIZED VIEW players AS SELECT user_name FROM silver_chess")
    lake.register(1, versions=[1], first=5)
    lake.land(100)
    spark_pipelines(project, "run")

    landed, made = tmp_path / "lake", tmp_path / "lake" / "_sdp" / "games" / "tables"
    routes = [each.name.removeprefix("silver_") for each in landed.glob("silver_*")]
    assert "mancala" in routes
    unified: Rows = []
    counted: Rows = []
    for route in routes:
        silver = read(landed, f"silver_{route}")
        wanted = by_duckdb(OF_PLAYERS, silver=silver)
        assert rows(read(made, f"gold_{route}_player_agg")) == wanted, route
        unified += [(route, *row) for row in wanted]
        newest = len(silver) if route == "chess" else 0
        if newest:
            newest -= silver["col_chess_game_2"].null_count
        counted.append((route, len(silver), newest))
    assert rows(read(made, "unified_gold")) == sorted(unified, key=repr)
    assert rows(read(made, "routes")) == sorted(counted, key=repr)
    assert len(read(made, "players")) == len(read(landed, "silver_chess"))


def test_gold_of_changes_follows_them_from_run_to_run(tmp_path: Path) -> None:
    shop = make_shop_lake(tmp_path)
    declare_gold(shop.file, SHOP)
    shop.declare()
    export_sdp(shop.pipeline, tmp_path / "project")
    spark_pipelines(tmp_path / "project", "run")
    assert_gold_of_changes(shop.lake)

    shop.land_changes(
        change("orders", 3, "shipped", at=30, kind="UPDATE", amount=9),
        change("orders", 5, "new", at=31, amount=2),
    )
    spark_pipelines(tmp_path / "project", "run")
    assert_gold_of_changes(shop.lake)


def assert_gold_of_changes(lake: Path) -> None:
    made = lake / "_sdp" / "shop" / "tables"
    orders, customers = read(lake, "shop_orders"), read(lake, "shop_customers")
    wanted = by_duckdb(
        "SELECT name, count(*), sum(amount)::BIGINT FROM merged GROUP BY name", merged=orders
    )
    assert rows(read(made, "gold_shop_orders_names")) == wanted
    # Customers have no amounts: the column is null there, of the type that orders have.
    assert rows(read(made, "gold_shop_customers_names")) == [("Ann", 2, None)]
    names = [("shop_orders", name) for name in orders["name"].to_pylist()]
    names += [("shop_customers", name) for name in customers["name"].to_pylist()]
    assert rows(read(made, "all_names")) == sorted(names, key=repr)
