"""Commits to tables in an object store: the contract of all committers, and many writers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.config import Storage
from headgate.config.storage import declare_storage
from headgate.lab.object_store import ObjectStore
from headgate.lake.commit import Commit, Committer, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.parquet import stage_rows
from headgate.lake.tables import CommitConflict
from tests.lake.committer_contract import CommitterContract, numbers


class TestDeltaRsInAnObjectStore(CommitterContract):
    @pytest.fixture
    def url(self, new_lake: Callable[[], str]) -> str:
        return new_lake()

    @pytest.fixture
    def lake(self, storage: ObjectStore, url: str) -> Path:
        return storage.folder_of(url)

    @pytest.fixture
    def committer(self, lake: Path, url: str) -> Committer:
        return DeltaRsCommitter(url)


WRITERS, COMMITS = 8, 12


def write(lake: str, settings: Storage, writer: int) -> None:
    declare_storage(settings, lake)
    committer = DeltaRsCommitter(lake)
    for number in range(COMMITS):
        rows = numbers(writer * COMMITS + number)
        file = stage_rows(lake, "chess", rows)
        for _ in range(100):
            committer.state("chess", f"app-{writer}")
            try:
                committer.commit(
                    Commit("chess", rows.schema, (file,), (Mark(f"app-{writer}", number),))
                )
            except CommitConflict:
                continue
            break


def test_eight_writers_of_one_table(storage: ObjectStore, new_lake: Callable[[], str]) -> None:
    lake = new_lake()
    DeltaRsCommitter(lake).commit(
        Commit("chess", numbers().schema, (stage_rows(lake, "chess", numbers(-1)),))
    )
    with ProcessPoolExecutor(WRITERS, get_context("spawn")) as pool:
        for one in [pool.submit(write, lake, storage.settings, n) for n in range(WRITERS)]:
            one.result()
    table = DeltaTable(storage.folder_of(lake) / "chess")
    assert table.version() == WRITERS * COMMITS
    found = sorted(table.to_pyarrow_table()["n"].to_pylist())
    assert found == list(range(-1, WRITERS * COMMITS))


def test_a_batch_takes_three_requests(storage: ObjectStore, new_lake: Callable[[], str]) -> None:
    lake = new_lake()
    committer = DeltaRsCommitter(lake)
    counts = []
    for version in range(9):
        before = len(storage.requests.read_text().splitlines())
        committer.state("chess", "app")
        file = stage_rows(lake, "chess", numbers(version))
        marks, seldom = (Mark("app", version),), {"delta.checkpointInterval": "1000"}
        committer.commit(Commit("chess", file.schema, (file,), marks, properties=seldom))
        counts.append(len(storage.requests.read_text().splitlines()) - before)
    assert counts[1:] == [3] * 8
