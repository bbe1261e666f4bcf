"""Tables in a real Hive metastore, seen by another Spark while the stream runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from headgate.catalog import register
from headgate.catalog.catalog import location_of
from headgate.catalog.hive import HiveMetastore
from headgate.catalog.recorded import Recorded
from headgate.catalog.register import drop_entries
from headgate.config import Catalog, Datastream, Delta, Files, PipelineConfig, Registry
from headgate.engine.events import CatalogFailed, TablesRegistered
from headgate.engine.runner import RunOptions
from headgate.errors import CatalogError
from headgate.inspect.doctor import CheckState, check_catalog
from headgate.inspect.status import read_status
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.metastore import Metastore
from headgate.lab.process import choose_port
from headgate.lab.services import down, up_catalog
from headgate.lab.shop.simulate import ShopPlan, simulate_shop
from headgate.lake.tables import tables_in
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal
from tests.catalog.shell import Shell
from tests.engine.games import wrapped
from tests.run.conftest import WRAPPER, Told, simulate

ONCE = RunOptions(once=True)
STREAM = RunOptions(trigger_milliseconds=100)
GOLD = "SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name"


@pytest.fixture
def schema() -> str:
    return f"games_{uuid4().hex[:8]}"


@pytest.fixture
def games(metastore: Metastore, schema: str, tmp_path: Path) -> PipelineConfig:
    return games_in(Catalog(name=schema, in_=metastore.url), tmp_path)


def games_in(catalog: Catalog, folder: Path) -> PipelineConfig:
    return PipelineConfig(
        name="games",
        source=Delta(path=str(folder / "inbox")),
        registry=Registry(folder=str(folder / "schemas")),
        envelope=WRAPPER,
        # A path that SQL and URLs would have to quote.
        lake=str(folder / "it's a lake"),
        bronze="bronze",
        gold={"gold_{route}": GOLD},
        catalog=catalog,
    )


def send(pipeline: PipelineConfig, games: int, versions: int, seed: int = 0) -> None:
    assert isinstance(pipeline.source, Delta)
    inbox = DeltaDestination(pipeline.source.path, "games")
    plan = GamesPlan(games, versions=versions, records=200, bad_share=0.05, seed=seed)
    simulate(plan, pipeline.schema_registry, inbox)


def shell_file(pipeline: PipelineConfig, folder: Path) -> Path:
    catalog = pipeline.catalog
    assert catalog is not None
    file = folder / "games.yaml"
    declared = {
        "name": "games",
        "lake": pipeline.lake,
        "registry": "./schemas",
        "envelope": "confluent",
        "source": {"delta": {"path": "./inbox"}},
        "catalog": {"name": catalog.name, "in": catalog.in_},
    }
    file.write_text(yaml.safe_dump(declared))
    return file


def test_another_spark_sees_tables_and_columns_while_the_stream_runs(
    spark: SparkSession, games: PipelineConfig, schema: str, tmp_path: Path
) -> None:
    told, stop = Told(), StopSignal()

    def wait_for(table: str) -> None:
        told.wait_for(lambda: any(table in one.tables for one in told.of(TablesRegistered)))

    with ThreadPoolExecutor(1) as pool, Shell(shell_file(games, tmp_path)) as shell:
        send(games, 1, versions=1)
        run = pool.submit(run_pipeline, games, STREAM, told, stop)
        try:
            wait_for("gold_chess")
            own = {"ledger", "quarantine", "bronze"}
            assert tables(shell, schema) == {"silver_chess", "gold_chess", *own}
            ((rows,),) = shell.sql(f"SELECT count(*) FROM {schema}.silver_chess")
            assert rows > 100
            assert shell.sql(f"SELECT sum(sessions) FROM {schema}.gold_chess") == [[rows]]
            assert "col_chess_game_1" not in columns(shell, schema, "silver_chess")
            send(games, 2, versions=2, seed=1)
            wait_for("gold_go")
            assert {"silver_go", "gold_go"} < tables(shell, schema)
            assert "col_chess_game_1" in columns(shell, schema, "silver_chess")
            ((more,),) = shell.sql(f"SELECT count(*) FROM {schema}.silver_chess")
            assert more > rows
            assert columns(shell, schema, "ledger")["kind"] == "Kind of row"
            entry_is_that_of_spark(spark, games, shell)
        finally:
            stop.request()
            run.result(60)
    assert told.of(CatalogFailed) == []
    registered = [table for one in told.of(TablesRegistered) for table in one.tables]
    assert sorted(registered) == sorted({*registered})
    assert {*registered} == {*tables_in(games.lake)}
    status = read_status(games).catalog
    assert status is not None
    assert (status.registered, status.missing, status.errors) == (len(registered), (), {})
    (check,) = check_catalog(games)
    assert check.state is CheckState.OK, check


def tables(shell: Shell, schema: str) -> set[str]:
    return {row[1] for row in shell.sql(f"SHOW TABLES IN {schema}")}


def columns(shell: Shell, schema: str, table: str) -> dict[str, str]:
    """Columns and their comments."""
    return {row[0]: row[2] for row in shell.sql(f"DESCRIBE {schema}.{table}")}


def entry_is_that_of_spark(spark: SparkSession, pipeline: PipelineConfig, shell: Shell) -> None:
    """Compare an entry with what Spark writes, property by property."""
    assert pipeline.catalog is not None
    schema, location = pipeline.catalog.name, location_of(pipeline.lake, "silver_go")
    quoted = location.replace("'", "\\'")
    shell.sql(f"CREATE TABLE {schema}.by_spark USING DELTA LOCATION '{quoted}'")
    with HiveMetastore.open(spark, pipeline.catalog) as metastore:
        ours, theirs = (
            metastore._client.getTable(schema, table) for table in ("silver_go", "by_spark")
        )
        assert metastore.location("by_spark") == metastore.location("silver_go") == location
        metastore.drop("by_spark")
    for entry in (ours, theirs):
        entry.setTableName("")
        entry.setCreateTime(0)
        entry.getParameters().remove("transient_lastDdlTime")
        place = entry.getSd().getLocation()
        assert not Path(place.removeprefix("file:")).exists()
        entry.getSd().setLocation(place.replace("by_spark", "silver_go"))
    assert ours.toString() == theirs.toString()


def test_metastore_that_is_down_delays_registration_and_nothing_else(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "_RETRY_SECONDS", 0.3)
    folder, port = tmp_path / "services", choose_port("metastore", requested=None)
    pipeline = games_in(Catalog(name=schema, in_=f"thrift://127.0.0.1:{port}"), tmp_path)
    told, stop = Told(), StopSignal()

    def registered() -> set[str]:
        return {table for one in told.of(TablesRegistered) for table in one.tables}

    with ThreadPoolExecutor(1) as pool:
        send(pipeline, 1, versions=1)
        run = pool.submit(run_pipeline, pipeline, STREAM, told, stop)
        try:
            told.wait_for(lambda: len(told.of(CatalogFailed)) == 1)
            assert told.of(CatalogFailed)[0].code == "catalog-unavailable"
            up_catalog(folder, port)
            told.wait_for(lambda: "gold_chess" in registered())
            down(folder)
            send(pipeline, 2, versions=1, seed=1)
            told.wait_for(lambda: len(told.of(CatalogFailed)) == 2)
            assert "silver_go" not in registered()
            status = read_status(pipeline).catalog
            assert status is not None
            assert "silver_go" in status.missing
            (check,) = check_catalog(pipeline)
            assert (check.state, "does not answer" in check.detail) == (CheckState.FAIL, True)
            up_catalog(folder, port)
            told.wait_for(lambda: "gold_go" in registered())
        finally:
            stop.request()
            run.result(60)
            down(folder)
    assert len(told.of(CatalogFailed)) == 2
    assert registered() == {*tables_in(pipeline.lake)}


def test_entry_for_another_table_is_reported_and_kept(
    spark: SparkSession, games: PipelineConfig, schema: str
) -> None:
    assert games.catalog is not None
    elsewhere = "file:/other/silver_chess"
    with HiveMetastore.open(spark, games.catalog) as metastore:
        assert metastore.tables() == set()
        metastore.register("silver_chess", elsewhere)
        with pytest.raises(CatalogError, match="already exists"):
            metastore.register("silver_chess", "file:/a/third")
    send(games, 1, versions=1)
    first, second = Told(), Told()
    for told in (first, second):
        run_pipeline(games, ONCE, told)
        (failed,) = told.of(CatalogFailed)
        assert failed.code == "catalog-refused"
        assert f"{schema}.silver_chess" in failed.text
        assert elsewhere in failed.text
    assert second.of(TablesRegistered) == []
    status = read_status(games).catalog
    assert status is not None
    assert status.missing == ("silver_chess",)
    assert [*status.errors] == ["silver_chess"]
    with HiveMetastore.open(spark, games.catalog) as metastore:
        landed = Recorded.of(games, games.catalog).tables
        dropped = drop_entries(metastore, games.lake, [*landed])
        assert dropped.kept == ("silver_chess",)
        assert {*dropped.tables} == landed - {"silver_chess"}
        assert metastore.tables() == {"silver_chess"}
        assert metastore.location("silver_chess") == elsewhere
    assert {*tables_in(games.lake)} == landed


def test_logs_merged_and_history_tables_are_registered(
    spark: SparkSession, metastore: Metastore, schema: str, tmp_path: Path
) -> None:
    catalog = Catalog(name=schema, in_=metastore.url)
    plan = ShopPlan(tmp_path / "landing", changes=100, seed=1)
    for _ in simulate_shop(plan):
        pass
    shop = PipelineConfig(
        name="shop",
        source=Files(path=str(plan.landing)),
        envelope=Datastream(),
        lake=str(tmp_path / "lake"),
        history="history_{database}_{table}",
        catalog=catalog,
    )
    run_pipeline(shop, ONCE)
    with HiveMetastore.open(spark, catalog) as opened:
        found = opened.tables()
    assert {"_files", "ledger", "log_shop_orders", "shop_orders", "history_shop_orders"} < found
    landed = {table for table in tables_in(shop.lake) if not table.startswith("_tombstones_")}
    assert found == landed


def test_hostile_routes_are_registered_under_safe_names(
    spark: SparkSession, games: PipelineConfig, tmp_path: Path
) -> None:
    assert games.catalog is not None
    schemas = FolderRegistry(tmp_path / "schemas")
    proto = SchemaText("PROTOBUF", 'syntax = "proto3"; message event { string a = 1; }')
    schema_id = schemas.register("event", proto)
    routes = ["`; DROP TABLE x; --", "../Ünï", "_", "1up", "q" * 500]
    values = [wrapped(route, schema_id, b"\x0a\x01x") for route in routes]
    DeltaDestination(str(tmp_path / "inbox"), "games").send(pa.array(values, pa.binary()))
    told = Told()
    run_pipeline(games, ONCE, told)
    assert told.of(CatalogFailed) == []
    with HiveMetastore.open(spark, games.catalog) as metastore:
        assert metastore.tables() == {*tables_in(games.lake)}
        assert len([table for table in metastore.tables() if table.startswith("silver_")]) == 4
