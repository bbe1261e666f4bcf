"""The exported project, without running it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headgate.config import PipelineConfig, load_pipeline
from headgate.errors import UsageError
from headgate.examples import find_example
from headgate.gold.export import delta_package, export_sdp, project_files
from tests.inspect.gold_declared import GAMES, SHOP, declare_gold


def declared(folder: Path, example: str, gold: str) -> PipelineConfig:
    file = folder / "pipeline.yaml"
    file.write_text(find_example(example).text(), "utf-8")
    declare_gold(file, gold)
    return load_pipeline(file)


@pytest.fixture
def games(tmp_path: Path) -> PipelineConfig:
    return declared(tmp_path, "games-embedded", GAMES)


def test_spark_can_load_the_specification(games: PipelineConfig, tmp_path: Path) -> None:
    from pyspark.pipelines.cli import find_pipeline_spec, load_pipeline_spec

    export_sdp(games, tmp_path / "project")
    found = load_pipeline_spec(find_pipeline_spec(tmp_path / "project"))
    assert found.name == "games_gold"
    assert found.storage == f"file://{tmp_path}/lake/_sdp/games/storage"
    assert [one.include for one in found.libraries] == ["transformations/**/*"]


def test_declarations_are_exported_with_their_columns(games: PipelineConfig) -> None:
    project = yaml.safe_load(project_files(games)["gold.yml"])
    assert project["template"] == "silver_{route}_events"
    of_players = project["gold"]["gold_{route}_player_agg"]
    assert of_players["reads"] == "silver"
    assert sorted(of_players["columns"]) == ["event_timestamp", "user_name"]
    assert of_players["outputs"] == ["user_name", "session_count", "first_seen", "last_seen"]
    unified = project["gold"]["unified_gold"]
    assert unified["reads"] == "gold_*_player_agg"
    assert "FROM `gold_*_player_agg`" in unified["sql"]
    assert sorted(unified["columns"]) == sorted(["route", *of_players["outputs"]])


def test_sql_is_exported_verbatim(games: PipelineConfig) -> None:
    assert (
        "      SELECT user_name, count(*) AS session_count,\n" in project_files(games)["gold.yml"]
    )


def test_estimates_are_computed_as_headgate_computes_them(tmp_path: Path) -> None:
    gold = "gold: {players: SELECT approx_count_distinct(user_name) AS players FROM silver;}\n"
    project = yaml.safe_load(project_files(declared(tmp_path, "games-embedded", gold))["gold.yml"])
    assert "HLL_SKETCH_AGG" in project["gold"]["players"]["sql"]
    assert project["gold"]["players"]["outputs"] == ["players"]


def test_a_final_semicolon_and_what_follows_are_removed(tmp_path: Path) -> None:
    gold = 'gold: {rows: "SELECT count(*) AS many FROM silver; -- all of them"}\n'
    project = yaml.safe_load(project_files(declared(tmp_path, "games-embedded", gold))["gold.yml"])
    assert project["gold"]["rows"]["sql"] == "SELECT count(*) AS many FROM silver\n"


def test_changes_are_read_from_merged_tables(tmp_path: Path) -> None:
    project = yaml.safe_load(project_files(declared(tmp_path, "shop", SHOP))["gold.yml"])
    assert (project["source"], project["template"]) == ("merged", None)
    assert project["gold"]["all_names"]["reads"] == "merged"


def test_exported_python_passes_ruff(games: PipelineConfig, tmp_path: Path) -> None:
    export_sdp(games, tmp_path / "project")
    for command in (["check"], ["format", "--check"]):
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length=100", "."],
            cwd=tmp_path / "project",
            check=True,
        )


def test_the_lake_is_the_only_local_path_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.setenv("TOKEN", "a secret word")
    spark = "spark: {spark.hadoop.fs.s3a.secret.key: env:TOKEN}\n"
    pipeline = declared(tmp_path, "games-embedded", f"{spark}{GAMES}")
    for text in project_files(pipeline).values():
        assert "a secret word" not in text
        assert "/home/user" not in text
        assert str(tmp_path) not in text.replace(f"{tmp_path}/lake", "")
        assert sys.prefix not in text


def test_a_second_export_keeps_other_files(games: PipelineConfig, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    written = export_sdp(games, folder)
    own = folder / "transformations" / "own.sql"
    own.write_text("CREATE MATERIALIZED VIEW own AS SELECT 1 AS one", "utf-8")
    (folder / "gold.yml").write_text("changed", "utf-8")
    assert export_sdp(games, folder) == written
    own.write_text("CREATE MATERIALIZED VIEW own AS SELECT 2 AS two", "utf-8")
    export_sdp(games, folder)
    assert own.read_text("utf-8") == "CREATE MATERIALIZED VIEW own AS SELECT 2 AS two"
    assert (folder / "gold.yml").read_text("utf-8") == project_files(games)["gold.yml"]


def test_a_folder_with_other_files_is_rejected(games: PipelineConfig, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="already exists and is something else"):
        export_sdp(games, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="already exists"):
        export_sdp(games, file)


def test_the_project_of_another_pipeline_is_rejected(games: PipelineConfig, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    export_sdp(games, folder)
    before = (folder / "gold.yml").read_text("utf-8")
    with pytest.raises(UsageError, match="is the project of another pipeline"):
        export_sdp(games.model_copy(update={"name": "games_2"}), folder)
    assert (folder / "gold.yml").read_text("utf-8") == before


def test_a_folder_that_cannot_be_written_is_named(games: PipelineConfig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/project cannot be written: Not a directory"):
        export_sdp(games, tmp_path / "file" / "project")


def test_an_empty_folder_is_accepted(games: PipelineConfig, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    assert export_sdp(games, tmp_path / "project").files


def test_a_pipeline_without_gold_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="declares no gold tables"):
        export_sdp(declared(tmp_path, "games-embedded", ""), tmp_path / "project")
    assert not (tmp_path / "project").exists()


def test_every_variable_is_filled_in(games: PipelineConfig) -> None:
    for text in project_files(games).values():
        assert re.findall("@[a-z]+@", text) == []


def test_a_lake_may_be_a_url(games: PipelineConfig, tmp_path: Path) -> None:
    by_url = games.model_copy(update={"lake": f"file://{games.lake}"})
    for name in ("gold.yml", "conf/spark-defaults.conf", "spark-pipeline.yml"):
        assert project_files(by_url)[name] == project_files(games)[name]


def test_delta_lake_has_the_version_that_headgate_uses() -> None:
    assert delta_package() == "io.delta:delta-spark_4.2_2.13:4.4.0"
