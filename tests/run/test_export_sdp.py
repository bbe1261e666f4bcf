"""An exported project, run by Spark itself, makes the gold tables that the SQL says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from headgate.gold.export import export_sdp
from headgate.jars.class_archive import archive_options
from headgate.jars.jars import jar_paths
from headgate.lab.games import Game, register_versions
from headgate.lab.process import (
    HOST,
    choose_port,
    is_listening,
    start_detached,
    wait_until_ready,
)
from headgate.lake.names import TableNames
from headgate.schema.names import safe_name
from tests.conftest import INTERPRETED
from tests.inspect.change_lake import ShopLake, change
from tests.inspect.gold_declared import declare_gold
from tests.inspect.small_lake import SmallLake

Rows = list[tuple[Any, ...]]

PLAYERS = """
SELECT user_name, count(*) AS session_count,
       min(event_timestamp) AS first_seen, max(col_chess_game_1) AS newest
FROM silver GROUP BY user_name
"""
UNIFIED = "SELECT route, user_name, session_count FROM united WHERE session_count > 1"
ROUTES = """
SELECT route, count(*) AS events, count(distinct user_name) AS players, max(own_0) AS own
FROM silver GROUP BY route
"""
OF_EACH_GAME = f"""
gold:
  gold_{{route}}_player_agg: "{PLAYERS}"
"""
GAMES = f"""{OF_EACH_GAME}\
  unified_gold:
    from: gold_*
    select: route, user_name, session_count
    where: session_count > 1
  routes: "{ROUTES}"
"""

NAMES = "SELECT name, count(*) AS many, sum(amount) AS amount FROM merged GROUP BY name"
SHOP = f"""
gold:
  gold_{{route}}_names: {NAMES}
  all_names:
    from: merged
    select: route, name
"""

LEVELS = """
SELECT route, user_name, CASE WHEN session_count > 2 THEN 'regular' ELSE 'guest' END AS level
FROM unified
"""
OWN_SQL = "CREATE MATERIALIZED VIEW regulars AS SELECT * FROM levels WHERE level = 'regular'"
_GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "declarative.md").read_text("utf-8")
(OWN_PYTHON,) = re.findall(r"```python\n(.*?)```", _GUIDE, re.DOTALL)


@dataclass(frozen=True)
class OddGame(Game):
    """One whose name is nothing that a schema or a file could be called."""

    name: str = "2048 `é`; DROP TABLE x --"

    def columns(self, version: int) -> list[str]:
        return [f"own_{number}" for number in range(version)]

    @property
    def subject(self) -> str:
        return "odd-value"


@pytest.fixture(scope="module", autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """With the environment of this Python, in which Spark is installed, on the PATH."""
    assert jar_paths("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        # So short a run is over before Java's second compiler pays off.
        options = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
        patch.setenv("JAVA_TOOL_OPTIONS", f"{options} {archive_options() or ''}")
        yield


@dataclass
class Games:
    """What has landed of games, and the project that was exported before the last of them came."""

    lake: SmallLake
    project: Path

    @property
    def landed(self) -> Path:
        return Path(self.lake.pipeline.lake)

    @property
    def made(self) -> Path:
        return self.landed / "_sdp" / "games" / "tables"


def exported(folder: Path, gold: str) -> Games:
    """Export a project, and land another game after that."""
    lake = SmallLake(folder)
    declare_gold(lake.file, gold)
    lake.register(1, versions=[1, 2])
    lake.land(3000)
    project = folder / "project"
    export_sdp(lake.pipeline, project)
    lake.versions += register_versions(lake.registry, [OddGame()], [1])
    lake.land(3000)
    with (project / "conf" / "spark-defaults.conf").open("a") as settings:
        settings.writelines(f"{key} {value}\n" for key, value in INTERPRETED.items())
    return Games(lake, project)


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Games:
    """As the project's README says: run once, with tables of one's own beside."""
    made = exported(tmp_path_factory.mktemp("with spaces"), GAMES)
    (made.project / "transformations" / "own.sql").write_text(OWN_SQL, "utf-8")
    (made.project / "transformations" / "own.py").write_text(OWN_PYTHON, "utf-8")
    spark_pipelines(made.project, "run")
    return made


@pytest.fixture(scope="module")
def server(games: Games) -> Iterator[str]:
    """The address of a server that has the project's settings, and so its catalog."""
    port = choose_port("server", requested=None)
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--properties-file", str(games.project / "conf" / "spark-defaults.conf")),
        *("--jars", ",".join(map(str, jar_paths("spark")))),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
    ]
    process = start_detached("server", command, games.lake.folder)
    try:
        wait_until_ready(process, lambda: is_listening(port))
        yield f"sc://{HOST}:{port}"
    finally:
        process.stop()


def spark_pipelines(project: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["spark-pipelines", *arguments],
        cwd=project,
        env={**os.environ, "SPARK_CONF_DIR": "conf"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"


def read(lake: Path, table: str) -> pa.Table:
    return DeltaTable(str(lake / table)).to_pyarrow_table()


def rows(table: pa.Table) -> Rows:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def by_duckdb(sql: str, **tables: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def united(parts: dict[str, pa.Table]) -> pa.Table:
    """With the route of each part; null where one lacks a column."""
    with_routes = [
        table.append_column("route", pa.repeat(route, len(table))) for route, table in parts.items()
    ]
    return pa.concat_tables(with_routes, promote_options="default")


def each_by_duckdb(sql: str, source: str, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The query over each table by itself; columns that only others have are null in it."""
    whole = united(tables)
    return {
        route: by_duckdb(sql, **{source: whole.filter(pc.equal(whole["route"], route))})
        for route in tables
    }


def silver_of(games: Games) -> dict[str, pa.Table]:
    names = TableNames.of(games.lake.pipeline)
    routes = ["chess", OddGame().name]
    return {route: read(games.landed, names.silver_for(route)) for route in routes}


def test_gold_of_each_game(tmp_path_factory: pytest.TempPathFactory) -> None:
    games = exported(tmp_path_factory.mktemp("with spaces"), OF_EACH_GAME)
    spark_pipelines(games.project, "run")
    assert_players(games)
    found = {one.name for one in games.project.iterdir()}
    assert found == {"README.md", "conf", "gold.yml", "spark-pipeline.yml", "transformations"}


def assert_players(games: Games) -> dict[str, pa.Table]:
    players = each_by_duckdb(PLAYERS, "silver", silver_of(games))
    for route, wanted in players.items():
        found = read(games.made, f"gold_{safe_name(route)}_player_agg")
        assert rows(found) == rows(wanted), route
    return players


@pytest.mark.soak
def test_gold_of_games_beside_tables_of_ones_own(games: Games) -> None:
    players = assert_players(games)
    unified = by_duckdb(UNIFIED, united=united(players))
    assert rows(read(games.made, "unified_gold")) == rows(unified)
    levels = by_duckdb(LEVELS, unified=unified)
    assert rows(read(games.made, "levels")) == rows(levels)
    assert rows(read(games.made, "regulars")) == [row for row in rows(levels) if "regular" in row]
    assert_routes(games)


def assert_routes(games: Games) -> None:
    wanted = by_duckdb(ROUTES, silver=united(silver_of(games)))
    assert rows(read(games.made, "routes")) == rows(wanted)


@pytest.mark.soak
def test_the_next_run_knows_the_tables_of_the_one_before(games: Games, server: str) -> None:
    games.lake.land(1000)
    spark_pipelines(games.project, "run", "--remote", server, "--refresh", "routes")
    assert_routes(games)


@pytest.mark.soak
def test_gold_of_changes(games: Games, server: str, tmp_path: Path) -> None:
    shop = ShopLake(tmp_path)
    declare_gold(shop.file, SHOP)
    shop.declare()
    shop.land_changes(
        *(change("orders", key, "new", at=key) for key in range(1, 5)),
        *(change("Kunden & `co`", key, "Ann", at=key) for key in range(1, 3)),
    )
    shop.land_changes(
        change("orders", 3, "shipped", at=30, kind="UPDATE", amount=9),
        change("orders", 4, "gone", at=31, kind="DELETE", amount=4),
        change("orders", 5, "new", at=32, amount=2),
    )
    project = tmp_path / "project"
    export_sdp(shop.pipeline, project)
    spark_pipelines(project, "run", "--remote", server)

    customers = next(one.name for one in shop.path.glob("shop_kunden_co__*"))
    merged = {name: read(shop.path, name) for name in ("shop_orders", customers)}
    for name, wanted in each_by_duckdb(NAMES, "merged", merged).items():
        found = read(games.made, f"gold_{name}_names")
        assert rows(found) == rows(wanted), name
        # Customers have no amounts; they are null, of the type that orders have.
        assert found.schema.field("amount").type == pa.int64()
    names = by_duckdb("SELECT route, name FROM merged", merged=united(merged))
    assert rows(read(games.made, "all_names")) == rows(names)
