"""Derived tables stay consistent with their sources, run after run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headgate.config import Delta, GoldQuery, PipelineConfig, Registry
from headgate.engine.events import GoldDerived, GoldFailed
from headgate.engine.runner import RunOptions
from headgate.errors import LandingError
from headgate.gold.follow import refresh
from headgate.inspect.status import read_status
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan
from headgate.run import run_pipeline
from tests.run.conftest import WRAPPER, Told, simulate

PLAYERS = """
SELECT user_name, count(*) AS session_count, min(event_timestamp) AS first_seen,
  max(event_timestamp) AS last_seen, avg(length(user_name)) AS letters
FROM silver GROUP BY user_name
"""
STABLE = "SELECT user_name, event_timestamp FROM silver WHERE length(user_name) > 6"
NAMES = "SELECT count(DISTINCT user_name) AS players FROM silver"
ALL = "SELECT route, count(*) AS sessions FROM silver GROUP BY route"


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig(
        name="games",
        source=Delta(path=str(tmp_path / "inbox")),
        registry=Registry(folder=str(tmp_path / "schemas")),
        envelope=WRAPPER,
        lake=str(tmp_path / "lake"),
        silver="silver_{route}_events",
        gold={
            "gold_{route}_player_agg": PLAYERS,
            "stable_{route}": STABLE,
            "names_{route}": NAMES,
            "all_games": ALL,
            "unified_gold": {
                "from": "gold_*",
                "select": "route, user_name, session_count, first_seen, last_seen",
            },
            "seen_gold": {"from": "gold_*", "select": "route, user_name", "mode": "append"},
        },
    )


def rows(lake: str, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(Path(lake, table)).to_pyarrow_table().to_pylist()
    return [{k: v for k, v in row.items() if not k.startswith("_")} for row in found]


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    return sorted(map(repr, one)) == sorted(map(repr, other))


def recomputed(spark: SparkSession, lake: str, silver: str, sql: str) -> list[dict[str, Any]]:
    """What Spark returns for the query; reading the table by Spark would take longer."""
    landed = DeltaTable(Path(lake, silver)).to_pyarrow_table()
    spark.createDataFrame(landed).createOrReplaceTempView("silver")
    return list(spark.sql(sql).toArrow().to_pylist())


def assert_all_derived(spark: SparkSession, pipeline: PipelineConfig) -> None:
    lake, united = pipeline.lake, []
    games = [path.name[7:-7] for path in Path(lake).glob("silver_*_events")]
    for game in games:
        silver = f"silver_{game}_events"
        for table, sql in (
            (f"gold_{game}_player_agg", PLAYERS),
            (f"stable_{game}", STABLE),
            (f"names_{game}", NAMES),
        ):
            assert same(rows(lake, table), recomputed(spark, lake, silver, sql)), table
        united += [
            {"route": game, **{k: v for k, v in row.items() if k != "letters"}}
            for row in rows(lake, f"gold_{game}_player_agg")
        ]
    assert same(rows(lake, "unified_gold"), united)
    counts = {row["route"]: row["sessions"] for row in rows(lake, "all_games")}
    assert counts == {game: len(rows(lake, f"silver_{game}_events")) for game in games}


def test_gold_matches_silver_after_every_run(
    spark: SparkSession, pipeline: PipelineConfig, tmp_path: Path
) -> None:
    registry, inbox = pipeline.schema_registry, DeltaDestination(str(tmp_path / "inbox"), "games")
    for seed, (tables, versions) in enumerate([(2, 1), (3, 2)]):
        plan = GamesPlan(tables=tables, versions=versions, records=300, seed=seed)
        simulate(plan, registry, inbox)
        events = Told()
        run_pipeline(pipeline, RunOptions(once=True), events)
        assert not events.of(GoldFailed)
        assert events.of(GoldDerived)
        assert_all_derived(spark, pipeline)


def test_a_changed_declaration_is_rebuilt_and_a_broken_one_does_not_fail_others(
    spark: SparkSession, pipeline: PipelineConfig, tmp_path: Path
) -> None:
    inbox = DeltaDestination(str(tmp_path / "inbox"), "games")
    simulate(GamesPlan(tables=2, versions=2, records=200), pipeline.schema_registry, inbox)
    names = "names_{route}", "all_games", "unified_gold", "gold_{route}_player_agg"
    gold = {name: pipeline.gold[name] for name in names}
    before = pipeline.model_copy(update={"gold": gold})
    run_pipeline(before, RunOptions(once=True))

    changed = GoldQuery(sql="SELECT upper(user_name) AS player FROM silver")
    broken = GoldQuery(sql="SELECT to_json(user_name) AS player FROM silver")
    changed_gold = {**gold, "names_{route}": changed, "broken_{route}": broken}
    events = Told()
    run_pipeline(pipeline.model_copy(update={"gold": changed_gold}), RunOptions(once=True), events)

    (failed,) = events.of(GoldFailed)
    assert failed.table == "broken_{route}"
    assert "to_json" in failed.error
    silver = next(path.name for path in Path(pipeline.lake).glob("silver_*_events"))
    game = silver[7:-7]
    wanted = recomputed(spark, pipeline.lake, silver, changed.sql)
    assert same(rows(pipeline.lake, f"names_{game}"), wanted)
    status = read_status(pipeline.model_copy(update={"gold": changed_gold}))
    assert [one.table for one in status.derived if one.error] == ["broken_{route}"]


@pytest.mark.soak
def test_refresh_rebuilds_tables_and_updates_those_derived_from_them(
    spark: SparkSession, pipeline: PipelineConfig, tmp_path: Path
) -> None:
    inbox = DeltaDestination(str(tmp_path / "inbox"), "games")
    simulate(GamesPlan(tables=2, versions=2, records=200), pipeline.schema_registry, inbox)
    run_pipeline(pipeline, RunOptions(once=True))
    for table in Path(pipeline.lake).glob("gold_*"):
        DeltaTable(table).delete()
    assert {one.table for one in refresh(pipeline, ["gold_*"])} >= {"unified_gold", "seen_gold"}
    assert_all_derived(spark, pipeline)
    with pytest.raises(LandingError, match="no derived table matches"):
        refresh(pipeline, ["silver_*"])


def test_rows_deleted_by_deletion_vectors_are_removed_from_derived_tables(
    spark: SparkSession, pipeline: PipelineConfig, tmp_path: Path
) -> None:
    inbox = DeltaDestination(str(tmp_path / "inbox"), "games")
    simulate(GamesPlan(tables=2, versions=2, records=200), pipeline.schema_registry, inbox)
    run_pipeline(pipeline, RunOptions(once=True))
    silver = next(iter(Path(pipeline.lake).glob("silver_*_events")))
    table = f"delta.`{silver}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM {table} WHERE length(user_name) = 7")
    run_pipeline(pipeline, RunOptions(once=True))
    game = silver.name[7:-7]
    spark.read.format("delta").load(str(silver)).createOrReplaceTempView("silver")
    wanted = list(spark.sql(PLAYERS).toArrow().to_pylist())
    assert same(rows(pipeline.lake, f"gold_{game}_player_agg"), wanted)
    sessions = sum(row["session_count"] for row in wanted)
    assert {"route": game, "sessions": sessions} in rows(pipeline.lake, "all_games")


def test_run_that_only_follows_derives_without_its_source(
    spark: SparkSession, pipeline: PipelineConfig, tmp_path: Path
) -> None:
    inbox = DeltaDestination(str(tmp_path / "inbox"), "games")
    simulate(GamesPlan(tables=2, versions=1, records=200), pipeline.schema_registry, inbox)
    run_pipeline(pipeline.model_copy(update={"gold": {}}), RunOptions(once=True))
    landed = read_status(pipeline)
    (tmp_path / "inbox").rename(tmp_path / "elsewhere")
    events = Told()
    ended = run_pipeline(pipeline, RunOptions(follow_only=True), events)
    assert (ended.batches, ended.rows) == (0, 0)
    assert events.of(GoldDerived)
    assert_all_derived(spark, pipeline)
    (tmp_path / "elsewhere").rename(tmp_path / "inbox")
    again = run_pipeline(pipeline, RunOptions(once=True))
    assert again.rows == 0
    assert read_status(pipeline).rows == landed.rows
