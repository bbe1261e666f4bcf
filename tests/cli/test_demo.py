from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.config import load_pipeline
from headgate.errors import UsageError
from headgate.examples import find_example
from headgate.lab.demo import prepare_folder, with_fast_start
from tests.cli.conftest import Headgate
from tests.lab.without_extra import headgate_without_extra

PIPELINE = find_example("games-embedded").text()


def test_demo_leaves_a_folder_of_others_as_it_is(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / ".demo").mkdir()
    (tmp_path / ".demo" / "lake").write_text("mine")
    printed = headgate("demo")
    assert printed.code == 2
    assert "[already-exists]" in printed.err
    assert (tmp_path / ".demo" / "lake").read_text() == "mine"


def test_demo_removes_what_it_made_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    assert prepare_folder(folder, {"games.yaml": PIPELINE}) == 0
    (folder / "lake").mkdir()
    (folder / "notes.txt").write_text("mine")
    assert prepare_folder(folder, {"games.yaml": PIPELINE}) == 0
    assert {each.name for each in folder.iterdir()} == {
        "games.yaml",
        "notes.txt",
        ".headgate-demo",
    }


def test_demo_can_keep_what_it_made(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    prepare_folder(folder, {"games.yaml": PIPELINE})
    (folder / "lake").mkdir()
    assert prepare_folder(folder, {"games.yaml": PIPELINE}, keep=True) == 1
    assert (folder / "lake").is_dir()
    assert prepare_folder(folder, {"games.yaml": PIPELINE}, keep=True) == 2


def test_demo_does_not_take_a_file_for_its_folder(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("mine")
    with pytest.raises(UsageError):
        prepare_folder(tmp_path / "demo", {"games.yaml": PIPELINE})


def test_demo_writes_a_pipeline_that_loads(tmp_path: Path) -> None:
    prepare_folder(tmp_path, {"games.yaml": with_fast_start(PIPELINE)})
    pipeline = load_pipeline(tmp_path / "games.yaml")
    assert pipeline.source.start == 0
    assert pipeline.spark


def assert_derived(lake: Path, games: int) -> None:
    """Players of each game, and those of all games in one table."""
    sessions: Counter[tuple[str, str]] = Counter()
    for silver in lake.glob("silver_*_events"):
        game = silver.name.removeprefix("silver_").removesuffix("_events")
        players = DeltaTable(silver).to_pyarrow_table(columns=["user_name"])["user_name"]
        counted = Counter(players.to_pylist())
        rows = DeltaTable(lake / f"gold_{game}_player_agg").to_pyarrow_table().to_pylist()
        assert {row["user_name"]: row["session_count"] for row in rows} == counted
        sessions.update({(game, player): count for player, count in counted.items()})
    rows = DeltaTable(lake / "unified_gold").to_pyarrow_table().to_pylist()
    assert {(row["route"], row["user_name"]): row["session_count"] for row in rows} == sessions
    assert (len(rows), len({row["route"] for row in rows})) == (len(sessions), games)


@pytest.mark.spark
def test_demo_lands_everything_while_schemas_change_without_the_lab_extra(
    headgate: Headgate, tmp_path: Path
) -> None:
    run = headgate_without_extra("demo", "--records", "20000")
    assert (run.returncode, run.stderr) == (0, "")
    assert "All 20,000 records are in exactly one place" in run.stdout
    assert re.search(
        r"source: chess gets a new column .*\n(.*\n)*.*silver_chess_events: \+ ", run.stdout
    )
    assert re.search(r"source: a new game appears.*\n(.*\n)*.*1 new table: ", run.stdout)

    assert re.search(r"landing rate    [\d,]+ records/s: staging and commits, ", run.stdout)
    assert re.search(r"[\d,]+ records/s in the fastest batch, of [\d,]+ records\n", run.stdout)
    assert re.search(r"latency         .* s from produced to visible in silver ", run.stdout)

    status = json.loads(headgate("status", ".demo/games.yaml", "--json").out)["data"]
    assert status["rows"] + sum(status["quarantined"].values()) == 20_000
    assert (status["tables"], status["schema_changes"], status["run"]) == (51, 2, None)
    assert_derived(tmp_path / ".demo" / "lake", games=51)
    for command in ("tables", "schema", "quarantine list"):
        shown = re.search(rf"headgate {command} .*?(?=  )", run.stdout)
        assert shown is not None
        assert headgate(*shown[0].split()[1:]).code == 0
