"""Landed tables against the ledger: what others did is found, and honest histories are quiet."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headgate
from headgate.inspect.landed_rows import LandedRows, count_rows, read_landed_rows
from headgate.lake.actions import Action
from headgate.lake.ledger import Ledger
from headgate.lake.maintain import MaintenancePolicy, apply_plan, plan_maintenance
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedBatchNote
from headgate.lake.streams import Layout
from headgate.pipeline import Pipeline
from headgate.testing import Crash, FailingCommitter, InProcessLake
from tests.inspect.change_lake import ShopLake, change, make_shop_lake

GAMES = """\
name: {name}
source: {{delta: {{path: ./inbox}}}}
registry: ./schemas
envelope:
  wrapper: {{message: wrapper, route: game_name, schema_id: schema_id, payload: payload}}
lake: ./lake
bronze: bronze_{name}
ledger: {ledger}
"""
NARROW = 'syntax = "proto3"; message event { int32 n = 1; }'
WIDE = 'syntax = "proto3"; message event { int64 n = 1; string player = 2; }'
CHESS = "silver_chess"


def games(folder: Path, name: str = "games", ledger: str = "ledger") -> InProcessLake:
    file = folder / f"{name}.yaml"
    file.write_text(GAMES.format(name=name, ledger=ledger))
    return InProcessLake(file, folder)


def land(lake: InProcessLake, rows: int, schema: str = NARROW, bad: int = 0) -> None:
    number = lake.register("chess", schema)
    records = [lake.record("chess", number, {"n": n}) for n in range(rows)]
    lake.land([*records, *([b"rubbish"] * bad)])


def compared(lake: InProcessLake, table: str = CHESS) -> LandedRows:
    (found,) = read_landed_rows(lake.pipeline, [table])
    return found


def wrong(lake: InProcessLake) -> list[LandedRows]:
    return [rows for rows in read_landed_rows(lake.pipeline) if not rows.is_ok]


@pytest.fixture
def lake(tmp_path: Path) -> InProcessLake:
    """Three batches of 10 rows of chess, and one of 4 rows of the quarantine."""
    lake = games(tmp_path)
    land(lake, 10)
    land(lake, 10, bad=4)
    land(lake, 10)
    return lake


def url(lake: InProcessLake, table: str = CHESS) -> str:
    return str(lake.path / table)


def opened(lake: InProcessLake, table: str = CHESS) -> DeltaTable:
    return DeltaTable(url(lake, table))


def write_entry(lake: InProcessLake, operation: str, actions: Iterable[Action]) -> None:
    """Commit as an engine does that does not look at what others have committed."""
    version = opened(lake).version() + 1
    info = {"operation": operation, "engineInfo": "other-engine", "timestamp": 0}
    lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
    Path(url(lake), "_delta_log", f"{version:020}.json").write_text("\n".join(lines))


def optimize_twice(lake: InProcessLake) -> None:
    """Two OPTIMIZEs that both combine the files of the same version."""
    opened(lake).optimize.compact()
    entry = Path(url(lake), "_delta_log", f"{opened(lake).version():020}.json")
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    kept = [action for action in actions if "add" in action or "remove" in action]
    (added,) = [action["add"] for action in kept if "add" in action]
    again = f"again-{added['path']}"
    shutil.copy(Path(url(lake), added["path"]), Path(url(lake), again))
    added["path"] = again
    write_entry(lake, "OPTIMIZE", kept)


def test_rows_that_landed_are_all_there(lake: InProcessLake) -> None:
    found = {rows.table: rows for rows in read_landed_rows(lake.pipeline)}
    counts = {table: (rows.landed, rows.found) for table, rows in found.items()}
    assert counts == {
        "bronze_games": (30, 30),
        "quarantine": (4, 4),
        CHESS: (30, 30),
    }
    assert all(rows.is_ok and rows.problem is None and not rows.commits for rows in found.values())


def delete(lake: InProcessLake) -> None:
    opened(lake).delete("n < 3")


def restore(lake: InProcessLake) -> None:
    opened(lake).restore(1)


def overwrite(lake: InProcessLake) -> None:
    rows = opened(lake).to_pyarrow_table().slice(0, 7)
    write_deltalake(url(lake), rows, mode="overwrite")


def append(lake: InProcessLake) -> None:
    write_deltalake(url(lake), opened(lake).to_pyarrow_table().slice(0, 5), mode="append")


ACTS: dict[str, tuple[Callable[[InProcessLake], None], int, str]] = {
    "delete": (delete, -9, "DELETE"),
    "restore": (restore, -10, "RESTORE"),
    "overwrite": (overwrite, -23, "WRITE"),
    "append": (append, 5, "WRITE"),
    "optimize twice": (optimize_twice, 30, "OPTIMIZE"),
}


@pytest.mark.parametrize("act", ACTS)
def test_what_others_did_is_found_with_the_commit_that_did_it(
    lake: InProcessLake, act: str
) -> None:
    do, change, operation = ACTS[act]
    do(lake)
    rows = compared(lake)
    assert (rows.landed, rows.found) == (30, 30 + change)
    assert (rows.missing, rows.extra) == (max(0, -change), max(0, change))
    (commit,) = rows.commits
    assert (commit.operation, commit.change) == (operation, change)
    assert commit.version == rows.version
    assert rows.is_explained
    assert commit.keeps_rows == (act == "optimize twice")
    assert [each.table for each in wrong(lake)] == [CHESS]


@pytest.mark.parametrize("act", ACTS)
def test_the_commit_is_found_below_later_batches_and_compactions(
    lake: InProcessLake, act: str
) -> None:
    do, change, operation = ACTS[act]
    do(lake)
    land(lake, 10)
    lake.committer.compact(CHESS, 1 << 20)
    opened(lake).optimize.compact()
    land(lake, 10)
    rows = compared(lake)
    assert (rows.landed, rows.found) == (50, 50 + change)
    assert [(commit.operation, commit.change) for commit in rows.commits] == [(operation, change)]
    assert rows.landed_since == 2


@pytest.mark.parametrize("act", ACTS)
def test_a_difference_is_found_without_the_log(lake: InProcessLake, act: str) -> None:
    ACTS[act][0](lake)
    opened(lake).create_checkpoint()
    expire(lake)
    rows = compared(lake)
    assert (rows.landed, rows.found) == (30, 30 + ACTS[act][1])


def test_several_commits_of_others_add_up(lake: InProcessLake) -> None:
    delete(lake)
    append(lake)
    rows = compared(lake)
    assert rows.difference == -4
    assert [commit.change for commit in rows.commits] == [5, -9]


def test_commits_that_keep_the_number_of_rows_are_not_mentioned(lake: InProcessLake) -> None:
    delete(lake)
    opened(lake).optimize.compact()
    opened(lake).update(predicate="n = 5", updates={"n": "50"})
    rows = compared(lake)
    assert [commit.operation for commit in rows.commits] == ["DELETE"]


def test_rows_of_a_deletion_vector_are_missing(tmp_path: Path) -> None:
    lake = games(tmp_path)
    land(lake, 30)
    entry = Path(url(lake), "_delta_log", f"{0:020}.json").read_text().splitlines()
    (added,) = [json.loads(line)["add"] for line in entry if '"add"' in line]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 0}
    actions: list[Action] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": removed},
        {"add": {**added, "deletionVector": vector}},
    ]
    write_entry(lake, "DELETE", actions)
    rows = compared(lake)
    assert (rows.landed, rows.found) == (30, 24)
    assert [commit.text for commit in rows.commits] == [
        "version 1: DELETE by other-engine, 6 rows fewer"
    ]


def test_rows_are_counted_where_the_log_has_no_numbers(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"n": [1, 2, 3]}))
    entry = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("\n".join(map(json.dumps, actions)))
    table = Snapshot.open(str(tmp_path), "t")
    assert table is not None
    assert count_rows(table) == 3


def test_a_table_that_is_gone(lake: InProcessLake) -> None:
    shutil.rmtree(url(lake))
    rows = compared(lake)
    assert rows.is_behind
    assert rows.problem == "no longer exists; 30 rows have landed"


def test_a_table_that_is_created_again(lake: InProcessLake) -> None:
    few = opened(lake).to_pyarrow_table().slice(0, 2)
    shutil.rmtree(url(lake))
    write_deltalake(url(lake), few)
    rows = compared(lake)
    assert rows.is_behind
    assert rows.problem == "is at version 0, but the ledger knows version 2, 28 rows are missing"
    assert rows.created_again is not None
    for _ in range(2):
        land(lake, 10)
    rows = compared(lake)
    assert not rows.is_behind
    assert (rows.missing, rows.created_again is not None) == (28, True)


def test_a_table_that_cannot_be_read_does_not_hide_the_others(lake: InProcessLake) -> None:
    for entry in Path(url(lake), "_delta_log").iterdir():
        entry.write_text("no entry")
    delete_from_bronze = opened(lake, "bronze_games")
    delete_from_bronze.delete()
    found = {rows.table: rows for rows in wrong(lake)}
    assert found[CHESS].trouble is not None
    assert found["bronze_games"].missing == 30
    assert found.keys() == {CHESS, "bronze_games"}


def expire(lake: InProcessLake) -> None:
    for table in (CHESS, "bronze_games"):
        DeltaTable(url(lake, table)).create_checkpoint()
        found = Snapshot.open(lake.pipeline.lake, table)
        assert found is not None
        done = apply_plan(
            lake.committer, plan_maintenance(found, MaintenancePolicy(keep=timedelta()))
        )
        assert done.versions


def test_maintenance_evolution_and_widening_change_nothing(lake: InProcessLake) -> None:
    land(lake, 10, WIDE, bad=2)
    assert opened(lake).schema().to_arrow().field("n").type == pa.int64()
    lake.committer.compact(CHESS, 1 << 20)
    land(lake, 10, WIDE)
    opened(lake).optimize.compact()
    opened(lake).vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert wrong(lake) == []
    expire(lake)
    assert wrong(lake) == []
    land(lake, 10)
    assert wrong(lake) == []
    assert compared(lake).landed == 60


def test_replays_and_drops_of_the_quarantine_change_nothing(tmp_path: Path) -> None:
    lake = games(tmp_path)
    number = lake.register("chess", NARROW)
    later = number + 1
    records = [lake.record("chess", number, {"n": 1}), lake.record("chess", later, b"\x08\x01")]
    lake.land([*records, b"rubbish", b"rubbish"])
    lake.register("go", WIDE)
    assert lake.pipeline.quarantine.replay().landed == {CHESS: 1}
    assert wrong(lake) == []
    lake.pipeline.quarantine.drop(all_open=True)
    assert wrong(lake) == []
    assert compared(lake).landed == 2
    assert compared(lake, "quarantine").landed == 3


def test_totals_of_the_ledger_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.lake.ledger._TOTALS_EVERY", 5)
    monkeypatch.setattr("headgate.lake.ledger._COMPACTED_EVERY", 3)
    lake = games(tmp_path)
    for _ in range(12):
        land(lake, 2, bad=1)
    assert lake.ledger.snapshot().totals_at == 10
    assert wrong(lake) == []
    delete(lake)
    assert (compared(lake).landed, compared(lake).missing) == (24, 24)


@pytest.mark.parametrize("ledger", ["ledger", "other_ledger"])
def test_two_pipelines_that_land_in_one_table(tmp_path: Path, ledger: str) -> None:
    first = games(tmp_path)
    land(first, 10, bad=1)
    second = games(tmp_path, "more_games", ledger)
    land(second, 7, bad=2)
    for lake in (first, second):
        assert wrong(lake) == []
        assert compared(lake).landed == (17 if ledger == "ledger" else compared(lake).found)
    delete(first)
    assert {compared(lake).missing for lake in (first, second)} == {6}


def test_shards(tmp_path: Path) -> None:
    lake = games(tmp_path)
    land(lake, 10)
    lake.ledger.change_layout(Layout(1, 2))
    for shard in (1, 2):
        of_shard = games(tmp_path)
        stream = f"games.1.{shard}of2"
        of_shard.ledger = Ledger(lake.pipeline.lake, lake.pipeline.ledger, stream)
        of_shard.note = StagedBatchNote(lake.pipeline.lake, stream)
        land(of_shard, 3, bad=1)
    assert wrong(lake) == []
    assert compared(lake).landed == 16


def test_change_files(tmp_path: Path) -> None:
    lake = make_shop_lake(tmp_path)
    found = {rows.table: rows for rows in read_landed_rows(lake.pipeline)}
    assert {"_files", "quarantine", "log_shop_orders"} <= found.keys()
    assert all(rows.is_ok for rows in found.values())
    DeltaTable(str(lake.path / "log_shop_orders")).delete("name = 'paid'")
    (rows,) = wrong(lake)
    assert (rows.table, rows.missing) == ("log_shop_orders", 1)


def test_change_files_of_many_batches_and_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.lake.ledger._COMPACTED_EVERY", 3)
    lake = ShopLake(tmp_path)
    for batch in range(8):
        lake.land_changes(change("orders", batch, "new", at=batch))
    lake.land_changes(change("orders", 99, "late", at=50, series="binlog"))
    assert wrong(lake) == []
    lake.declare_lineages("log:mysql-bin", "log:binlog")
    pipeline = headgate.load(lake.file)
    pipeline.quarantine.replay()
    assert [rows for rows in read_landed_rows(pipeline) if not rows.is_ok] == []


STEPS = ("crashing_before", "crashing_after", "refusing", "losing_response", "well")


@pytest.mark.parametrize("seed", range(6))
def test_runs_that_fail_or_are_killed_change_nothing(tmp_path: Path, seed: int) -> None:
    """Any history of failures, and what others do only in the end."""
    chance = random.Random(seed)
    lake = games(tmp_path)
    tables = [CHESS, "bronze_games", "quarantine", lake.pipeline.ledger]
    committer = FailingCommitter(lake.committer)
    lake.committer = committer
    lake.ledger = Ledger(lake.pipeline.lake, lake.pipeline.ledger, "games", committer)
    land(lake, 5)
    for _ in range(8):
        committer.heal()
        step = chance.choice(STEPS)
        if step != "well":
            getattr(committer, step).update(chance.sample(tables, chance.randint(1, 2)))
        schema = chance.choice((NARROW, WIDE))
        try:
            if chance.random() < 0.3:
                lake.run()
            else:
                land(lake, chance.randint(1, 9), schema, bad=chance.randint(0, 2))
        except (Crash, headgate.HeadgateError, OSError):
            pass
        assert [(rows.table, rows.problem) for rows in wrong(lake)] == []
    committer.heal()
    lake.run()
    assert wrong(lake) == []
    before = compared(lake).landed
    append(lake)
    assert (compared(lake).landed, compared(lake).extra) == (before, min(5, before))


def test_a_batch_that_is_under_way_is_not_a_difference(lake: InProcessLake) -> None:
    committer = FailingCommitter(lake.committer, crashing_after={CHESS})
    lake.committer = committer
    with pytest.raises(Crash):
        land(lake, 8)
    assert (compared(lake).landed, wrong(lake)) == (38, [])
    append(lake)
    assert (compared(lake).landed, compared(lake).extra) == (38, 5)


def test_only_the_wanted_tables_are_opened(lake: InProcessLake) -> None:
    shutil.rmtree(url(lake))
    assert [rows.is_ok for rows in read_landed_rows(lake.pipeline, ["quarantine"])] == [True]
    assert read_landed_rows(lake.pipeline, ["unknown"]) == []


def test_nothing_has_landed(tmp_path: Path) -> None:
    pipeline: Pipeline = games(tmp_path).pipeline
    assert read_landed_rows(pipeline) == []


@pytest.mark.parametrize("failure", ["crashing_after", "losing_response"])
@pytest.mark.parametrize("with_batch", [True, False])
def test_pending_rows_that_land_in_a_run_that_ends_there_are_recorded(
    lake: InProcessLake, failure: str, with_batch: bool
) -> None:
    committer = FailingCommitter(lake.committer, refusing={CHESS})
    lake.committer = committer
    land(lake, 6)
    committer.heal()
    getattr(committer, failure).add(CHESS)
    with suppress(Crash):
        if with_batch:
            land(lake, 5)
        else:
            lake.run()
    assert wrong(lake) == []
    committer.heal()
    lake.run()
    assert wrong(lake) == []
    assert compared(lake).landed == 41 - (0 if with_batch else 5)
