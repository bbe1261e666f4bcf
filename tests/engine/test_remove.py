"""Removal: all that a pipeline owns, and nothing of anyone else."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

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


@pytest.mark.parametrize("lock", ["games", "games.replay"])
def test_a_running_pipeline_is_not_removed(tmp_path: Path, lock: str) -> None:
    lake = lake_in(tmp_path)
    before = files(tmp_path)
    running = run_lock(lake.pipeline.lake, lock, "games")
    with running, pytest.raises(CheckpointError) as caught:
        remove(lake.pipeline, owned_by(lake.pipeline).everything)
    assert caught.value.code == "pipeline-in-use"
    assert {path for path in files(tmp_path) if not path.endswith(".lock")} == before


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


@pytest.mark.parametrize("ledger", ["ledger", "ledger_of_other"])
def test_tables_of_two_pipelines_stay_and_are_listed(tmp_path: Path, ledger: str) -> None:
    lake, other = lake_in(tmp_path), GamesLake(tmp_path, name="other", ledger=ledger)
    other.land([record("chess", 5), record("mahjong", 6, BROKEN)])
    found = owned_by(lake.pipeline)
    left = {one.name: one.why for one in found.left}
    shared = ["quarantine", "silver_chess", *(["ledger"] if ledger == "ledger" else [])]
    assert sorted(left) == sorted(shared)
    assert "pipeline other" in left["silver_chess"]
    remove(lake.pipeline, found.everything)
    assert "silver_go" not in other.tables()
    other.land([record("chess", 7)])
    assert sorted(row["n"] for row in other.rows("silver_chess", "n")) == [1, 5, 7]
    assert len(other.rows("quarantine")) == 2


@pytest.mark.parametrize("app", ["headgate:other", "headgate:other.1.1of2:run", "7f3a-stream"])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_tables_that_others_have_marked_stay(
    tmp_path: Path, app: str, is_checkpointed: bool
) -> None:
    lake = lake_in(tmp_path)
    table = DeltaTable(lake.path / "silver_go")
    rows = table.to_pyarrow_table()
    marked = CommitProperties(app_transactions=[Transaction(app, 1)])
    write_deltalake(table, rows, mode="append", commit_properties=marked)
    if is_checkpointed:
        table.create_checkpoint()
        for entry in (lake.path / "silver_go" / "_delta_log").glob("*.json"):
            entry.unlink()
    found = owned_by(lake.pipeline)
    assert [one.name for one in found.left] == ["silver_go"]
    assert app.split(":")[-1].split(".")[0] in found.left[0].why or "other" in found.left[0].why
    remove(lake.pipeline, found.everything)
    assert (lake.path / "silver_go" / "_delta_log").exists()
    assert not (lake.path / "silver_chess").exists()


def test_a_table_that_another_pipeline_gets_meanwhile_stays(tmp_path: Path) -> None:
    lake, other = lake_in(tmp_path), GamesLake(tmp_path, name="other", ledger="ledger_of_other")
    found = owned_by(lake.pipeline)
    assert found.left == ()
    other.land([record("go", 5)])
    removed = [one.name for one in remove(lake.pipeline, found.everything)]
    assert "silver_chess" in removed
    assert "silver_go" not in removed
    assert sorted(row["n"] for row in other.rows("silver_go", "n")) == [2, 5]


def test_pending_files_of_others_stay(tmp_path: Path) -> None:
    lake, other = lake_in(tmp_path), GamesLake(tmp_path, name="other", ledger="ledger_of_other")
    committer = other.committer
    other.committer = FailingCommitter(committer, refusing={"silver_go"})
    other.land([record("go", 5)])
    remove(lake.pipeline, owned_by(lake.pipeline).everything)
    other.committer = committer
    other.land([record("go", 6)])
    assert sorted(row["n"] for row in other.rows("silver_go", "n"))[-2:] == [5, 6]


def test_only_empty_folders_go(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    (lake.path / "exports" / "empty").mkdir(parents=True)
    (lake.path / "exports" / "kept.csv").write_text("1")
    remove(lake.pipeline, owned_by(lake.pipeline).everything)
    assert files(lake.path) == {"exports/kept.csv"}
