"""A store that throttles, drops connections and loses responses, also in the middle of a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.config.storage import declare_storage
from headgate.lab.object_store import ObjectStore
from headgate.lake.commit import Mark, MergeCommit, MergeRule, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import CommitConflict
from tests.engine.games import GamesLake, record
from tests.rounds import some
from tests.storage.faulty_proxy import Faults, faulty_proxy


class RemoteLake(GamesLake):
    """A lake of games in the object store."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        super().__init__(folder)
        self.committer = DeltaRsCommitter(url)

    def _moved(self, declared):  # type: ignore[no-untyped-def]
        moved = {"lake": self.url, "checkpoint": f"{self.url}/_checkpoints/games"}
        return super()._moved(declared).model_copy(update=moved)


def through(port: int, storage: ObjectStore, url: str) -> None:
    endpoint = f"http://127.0.0.1:{port}"
    declare_storage(storage.settings.model_copy(update={"endpoint": endpoint}), url)


def rows(url: str, table: str) -> list[int]:
    found = Snapshot.open(url, table)
    assert found is not None
    numbers: list[int] = sorted(found.rows(["n"])["n"].to_pylist())
    return numbers


@pytest.mark.parametrize("seed", some([0, 1, 2, 3, 4], 1))
def test_batches_land_once_through_a_faulty_store(
    storage: ObjectStore, new_lake: Callable[[], str], tmp_path: Path, seed: int
) -> None:
    url = new_lake()
    faults = Faults(0.15, seed)
    with faulty_proxy(storage.port, faults) as port:
        through(port, storage, url)
        lake = RemoteLake(tmp_path, url)
        for number in range(4):
            lake.land([record("chess", number)])
    through(storage.port, storage, url)
    assert rows(url, "silver_chess") == [*range(4)]
    assert lake.ledger.landed() == 3
    assert min(faults.throttled, faults.dropped, faults.lost) > 0


def test_merges_and_compactions_lose_nothing_through_a_faulty_store(
    storage: ObjectStore, new_lake: Callable[[], str]
) -> None:
    url = new_lake()
    faults = Faults(0.08, seed=7)
    with faulty_proxy(storage.port, faults) as port:
        through(port, storage, url)
        committer = DeltaRsCommitter(url)
        commit_rows(committer, "t", pa.table({"n": [-1], "v": [0]}))
        for number in range(25):
            changes = pa.table({"n": [number, number // 2], "v": [number, number]}).slice(
                0, 2 if number else 1
            )
            for _ in range(5):
                marked = committer.state("t", "app")
                if marked is not None and marked.marked == number:
                    break
                try:
                    merge = MergeCommit("t", changes, MergeRule(("n",)), (Mark("app", number),))
                    committer.merge(merge)
                except CommitConflict:
                    continue
    through(storage.port, storage, url)
    assert rows(url, "t") == [-1, *range(25)]
    assert faults.lost
