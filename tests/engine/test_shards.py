"""Shards: each record in one of them, and a change of their number in mid-life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.config.shards import Shard
from headgate.errors import CheckpointError, UsageError
from headgate.lake.layout import current_streams, lock_all, open_stream
from headgate.lake.ledger import Ledger
from headgate.lake.run_lock import run_lock
from headgate.sources.batch import Extent
from headgate.testing import Crash, FailingCommitter
from headgate.testing.lake import stage_in_process
from tests.engine.games import UNKNOWN, GamesLake, record, records
from tests.quarantine.replaying import learn, replay

ROUTES = [f"game {number}" for number in range(12)]


class ShardLake(GamesLake):
    """One stream of a lake that other streams land in, too; the source is a list of records."""

    def __init__(self, folder: Path, shards: int = 1, number: int | None = None) -> None:
        super().__init__(folder, shards=shards)
        shard = None if number is None else Shard(number, shards)
        stream = open_stream(self.pipeline, shard)
        self.pipeline = self.pipeline.on(stream)
        self.ledger = Ledger(self.pipeline.lake, self.pipeline.ledger, stream.name)
        self.note = type(self.note)(self.pipeline.lake, stream.name)

    def _next(self) -> tuple[int, Any]:
        batch, start = super()._next()
        return batch, start if start is not None else self.pipeline.stream.start


def values(first: int) -> list[bytes | None]:
    """Records of all routes, and two that cannot be opened."""
    return [*(record(route, first) for route in ROUTES), b"\xff", None]


def test_every_route_is_in_exactly_one_shard() -> None:
    for count in (1, 2, 4, 64):
        shards = [Shard(number, count) for number in range(1, count + 1)]
        for route in (*ROUTES, "", "é", "\ud800"):
            assert sum(shard.has(route) for shard in shards) == 1
    assert [str(one) for one in map(Shard.parse, ("1/1", " 2/4 "))] == ["1/1", "2/4"]


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "1/0", "2", "a/b", "1/65", "-1/4", "1/4/2"])
def test_other_shards_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a shard"):
        Shard.parse(text)


def all_rows(lake: GamesLake) -> list[tuple[str, int]]:
    """Route and offset of everything that has landed or is in quarantine."""
    rows = [
        (table, row["_offset"])
        for table in lake.tables()
        if table.startswith("silver_")
        for row in lake.rows(table)
    ]
    return sorted([*rows, *(("quarantine", row["_offset"]) for row in lake.rows("quarantine"))])


def test_four_shards_land_each_record_once(tmp_path: Path) -> None:
    one = GamesLake(tmp_path / "one")
    one.land(values(0))
    lakes = [ShardLake(tmp_path / "four", 4, number) for number in (1, 2, 3, 4)]
    for lake in lakes:
        lake.land(values(0))
    assert all_rows(lakes[0]) == all_rows(one)
    assert len({one.ledger.app for one in lakes}) == 4
    status = lakes[0].pipeline.status()
    assert [(shard.shard, shard.batches) for shard in status.shards] == [
        ("1/4", 1),
        ("2/4", 1),
        ("3/4", 1),
        ("4/4", 1),
    ]
    assert status.rows == len(ROUTES)
    assert status.batches == 4
    assert sum(status.quarantined.values()) == 2


def test_from_one_stream_to_four_and_back(tmp_path: Path) -> None:
    whole = GamesLake(tmp_path / "whole")
    for number in range(4):
        whole.land(values(number))
    one = ShardLake(tmp_path / "lake")
    one.land(values(0))
    one.land(values(1))
    for number in (1, 2, 3, 4):
        four = ShardLake(tmp_path / "lake", 4, number)
        assert four.pipeline.stream.start == {"games": {"0": 28}}
        four.land(values(2))
    again = ShardLake(tmp_path / "lake")
    assert again.pipeline.stream.name == "games.2.1of1"
    again.land(values(3))
    assert all_rows(again) == all_rows(whole)
    names = {Path(stream.name).name for stream in current_streams(again.pipeline)}
    assert names == {"games.2.1of1"}
    assert again.pipeline.status().batches == 2 + 4 + 1


def test_position_of_a_new_layout_counts_in_what_the_one_before_has_read(tmp_path: Path) -> None:
    one = ShardLake(tmp_path)
    ids = {"games": "the topic's id"}
    start, end = None, {"games": {"0": 14}}
    one.start().land(Extent(0, start, end, source_ids=ids), stage_in_process(records(values(0))))
    for shards in (2, 4):
        assert ShardLake(tmp_path, shards, 1).pipeline.stream.source_ids == ids


def test_the_run_before_can_land_no_more(tmp_path: Path) -> None:
    one = ShardLake(tmp_path)
    one.land(values(0))
    lander = one.start()
    ShardLake(tmp_path, 4, 1)
    with pytest.raises(CheckpointError) as caught:
        lander.ledger.require_ownership()
    assert caught.value.code == "run-replaced"


def test_shards_that_run_keep_their_number(tmp_path: Path) -> None:
    ShardLake(tmp_path, 2, 1).land(values(0))
    running = run_lock(str(tmp_path / "lake"), "games.1.2of2", "games")
    with running, pytest.raises(CheckpointError) as caught:
        ShardLake(tmp_path, 4, 1)
    assert caught.value.code == "pipeline-in-use"
    assert "2 shards" in caught.value.message


def test_shards_that_end_apart_keep_their_number(tmp_path: Path) -> None:
    ShardLake(tmp_path, 2, 1).land(values(0))
    with pytest.raises(CheckpointError) as caught:
        ShardLake(tmp_path, 4, 1)
    assert caught.value.code == "shards-apart"
    ShardLake(tmp_path, 2, 2).land(values(0))
    assert ShardLake(tmp_path, 4, 1).pipeline.stream.name == "games.2.1of4"


def test_an_unfinished_batch_is_finished_by_its_own_shards(tmp_path: Path) -> None:
    one = ShardLake(tmp_path)
    one.land(values(0))
    table = "silver_game_1" if "silver_game_1" in one.tables() else one.tables()[-1]
    one.committer = FailingCommitter(one.committer, refusing={table})
    one.land(values(1))
    with pytest.raises(CheckpointError) as caught:
        ShardLake(tmp_path, 4, 1)
    assert caught.value.code == "shards-unfinished"
    ShardLake(tmp_path).run()
    assert ShardLake(tmp_path, 4, 1).pipeline.stream.start is not None


def test_a_pipeline_can_begin_with_shards(tmp_path: Path) -> None:
    lake = ShardLake(tmp_path, 4, 3)
    assert lake.pipeline.stream.start is None
    assert lake.pipeline.stream.name == "games.1.3of4"
    assert lake.pipeline.checkpoint.endswith("_checkpoints/games.1.3of4")


def test_runs_say_which_shard(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, shards=4)
    for shard, expected in ((None, "1/4"), (Shard(1, 2), "`shards: 4`")):
        with pytest.raises(UsageError) as caught:
            open_stream(lake.pipeline, shard)
        assert expected in f"{caught.value.message} {caught.value.hint}"


def test_all_streams_are_locked_together(tmp_path: Path) -> None:
    lake = ShardLake(tmp_path, 2, 1)
    second = run_lock(lake.pipeline.lake, "games.1.2of2", "games")
    with lock_all(lake.pipeline), pytest.raises(CheckpointError), second:
        pass


def test_routes_must_be_known_without_a_schema(tmp_path: Path) -> None:
    with pytest.raises(headgate.InvalidPipeline, match="record"):
        GamesLake(tmp_path, shards=2, envelope=headgate.Confluent(route="record"))


def test_quarantine_of_shards_is_replayed_once(tmp_path: Path) -> None:
    unknown = [record(route, number, UNKNOWN) for number, route in enumerate(ROUTES)]
    for number in (1, 2):
        ShardLake(tmp_path, 2, number).land(unknown)
    lake = GamesLake(tmp_path, shards=2)
    assert lake.pipeline.status().quarantined == {"schema_unknown": len(ROUTES)}
    learn(lake)
    replay(lake)
    assert len(all_rows(lake)) == 2 * len(ROUTES), "each has landed, and is known as replayed"
    assert lake.pipeline.status().quarantined == {}
    ShardLake(tmp_path, 2, 1).land(values(1))
    ShardLake(tmp_path, 2, 2).land(values(1))
    assert lake.pipeline.status().rows == 2 * len(ROUTES)


def test_batch_of_a_new_layout_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    ShardLake(tmp_path).land(values(0))
    for number in (1, 2):
        lake = ShardLake(tmp_path, 2, number)
        silver = {table for table in lake.tables() if table.startswith("silver_")}
        lake.committer = FailingCommitter(lake.committer, crashing_after=silver)
        with pytest.raises(Crash):
            lake.land(values(1))
        ShardLake(tmp_path, 2, number).run()
    found = GamesLake(tmp_path, shards=2)
    assert found.pipeline.status().rows == 2 * len(ROUTES)
    assert {offset for _, offset in all_rows(found)} == {*range(2 * len(values(0)))}
    for table in (name for name in found.tables() if name.startswith("silver_")):
        history = [one.change for one in found.pipeline.schema(table).history]
        assert history == ["CreateTable"], "tables of the layout before are not created again"
