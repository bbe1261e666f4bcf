"""Removal: all that a pipeline owns, and nothing of anyone else."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import CheckpointError
from headgate.lake.run_lock import run_lock
from headgate.remove import Kind, owned_by, remove
from headgate.testing import FailingCommitter
from tests.cdc.change_lake import ChangeLake
from tests.cdc.test_maintain_changes import land as land_changes
from tests.engine.games import BROKEN, GamesLake, record
from tests.engine.test_shards import ShardLake, values


def lake_in(folder: Path) -> GamesLake:
    lake = GamesLake(folder, bronze="bronze")
    lake.land([record("chess", 1), record("go", 2), record("go", 3, BROKEN)])
    Path(lake.pipeline.checkpoint, "offsets").mkdir(parents=True)
    Path(lake.pipeline.checkpoint, "offsets", "0").write_text("v1")
    (folder / "inbox").mkdir()
    (folder / "inbox" / "part-0.parquet").write_bytes(b"x")
    return lake


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def names(lake: GamesLake | ChangeLake, *kinds: Kind, source: bool = False) -> list[str]:
    return [one.name for one in owned_by(lake.pipeline, source).of(*kinds)]


def test_all_that_a_pipeline_owns_is_listed(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    landed, own = ["bronze", "silver_chess", "silver_go"], ["quarantine", "ledger"]
    assert names(lake, Kind.TABLE) == [*landed, *own]
    assert names(lake, Kind.CHECKPOINT) == ["games"]
    assert names(lake, Kind.TOPIC, Kind.SUBJECT, Kind.SOURCE) == []
    assert names(lake, Kind.SUBJECT, source=True) == ["event"]
    assert names(lake, Kind.SOURCE, source=True) == [str(tmp_path / "inbox")]
    (chess,) = (one for one in owned_by(lake.pipeline).everything if one.name == "silver_chess")
    assert chess.files == 2
    assert chess.bytes > 0


def test_a_pipeline_is_removed_and_its_source_stays(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    removed: list[str] = []
    remove(lake.pipeline, owned_by(lake.pipeline).everything, lambda one: removed.append(one.name))
    assert files(tmp_path) == {
        "inbox/part-0.parquet",
        *(f"schemas/{path.name}" for path in (tmp_path / "schemas").iterdir()),
    }
    assert removed[-1] == "ledger"
    again = GamesLake(tmp_path)
    again.land([record("chess", 9)])
    assert [row["n"] for row in again.rows("silver_chess")] == [9]


def test_a_trial_is_removed_without_a_trace(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    remove(lake.pipeline, owned_by(lake.pipeline, with_source=True).everything)
    assert files(tmp_path) == set()


def test_what_belongs_to_others_stays(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    theirs = lake.path / "somebody_elses" / "_delta_log" / "0.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    note = lake.path / "_staged" / "games_of_others.json"
    note.parent.mkdir(exist_ok=True)
    note.write_text("{}")
    remove(lake.pipeline, owned_by(lake.pipeline).everything)
    assert files(lake.path) == {"somebody_elses/_delta_log/0.json", "_staged/games_of_others.json"}


def test_a_ledger_that_others_use_stays(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    other = GamesLake(tmp_path, name="other", silver="other_{route}")
    other.land([record("chess", 5)])
    found = owned_by(lake.pipeline)
    assert found.shared_with == ("other",)
    remove(lake.pipeline, found.everything)
    assert other.tables() == ["ledger", "other_chess", "quarantine"]
    assert [row["n"] for row in other.rows("other_chess")] == [5]


def test_a_running_pipeline_is_not_removed(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    before = files(tmp_path)
    running = run_lock(lake.pipeline.lake, "games", "games")
    with running, pytest.raises(CheckpointError) as caught:
        remove(lake.pipeline, owned_by(lake.pipeline).everything)
    assert caught.value.code == "pipeline-in-use"
    assert files(tmp_path) == before


def test_shards_are_removed_with_all_their_streams(tmp_path: Path) -> None:
    ShardLake(tmp_path).land(values(0))
    for number in (1, 2):
        lake = ShardLake(tmp_path, 2, number)
        lake.land(values(1))
        Path(lake.pipeline.checkpoint).mkdir(parents=True)
        Path(lake.pipeline.checkpoint, "metadata").write_text("{}")
    declared = GamesLake(tmp_path, shards=2).pipeline
    found = owned_by(declared)
    assert [one.name for one in found.of(Kind.CHECKPOINT)] == ["games.1.1of2", "games.1.2of2"]
    remove(declared, found.everything)
    assert {path.split("/")[0] for path in files(tmp_path)} == {"schemas"}


def test_pending_files_are_removed(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    lake.committer = FailingCommitter(lake.committer, refusing={"silver_go"})
    lake.land([record("go", 4)])
    assert any(name.startswith("pending/silver_go/") for name in names(lake, Kind.NOTE))
    remove(lake.pipeline, owned_by(lake.pipeline).everything)
    assert not lake.path.exists()


def test_tables_of_changes_are_removed(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, {"history": "history_{database}_{table}"})
    land_changes(lake, tmp_path, 1)
    tables = names(lake, Kind.TABLE)
    assert {"log_theatre_seats", "theatre_seats", "history_theatre_seats"} <= {*tables}
    remove(lake.pipeline, owned_by(lake.pipeline).everything)
    assert not lake.path.exists()


def test_removal_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    found = owned_by(lake.pipeline)
    remove(lake.pipeline, found.everything[:2])
    rest = owned_by(lake.pipeline)
    assert [one.name for one in rest.everything] == [one.name for one in found.everything[2:]]
    remove(lake.pipeline, rest.everything)
    assert not lake.path.exists()
