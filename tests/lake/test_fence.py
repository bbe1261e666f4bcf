"""Two runs of one pipeline: only the one that took over last can complete a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import CheckpointError
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import BatchEntry, RunEntry

DONE = [BatchEntry(1)]


def opened(folder: Path) -> Ledger:
    return Ledger(str(folder), "ledger", "games")


def test_runs_are_numbered(tmp_path: Path) -> None:
    assert [opened(tmp_path).take_over(f"process {n}") for n in range(3)] == [1, 2, 3]
    rows = opened(tmp_path).snapshot().entries(RunEntry)
    assert [row.entry for row in rows] == [RunEntry(n + 1, f"process {n}") for n in range(3)]


def test_run_that_was_replaced_cannot_complete_a_batch(tmp_path: Path) -> None:
    old, new = opened(tmp_path), opened(tmp_path)
    old.take_over("process 1 of ann on alpha")
    old.complete(0, 0, DONE, None)
    new.take_over("process 2 of ben on beta")
    with pytest.raises(CheckpointError) as caught:
        old.complete(1, 1, DONE, 0)
    assert caught.value.code == "run-replaced"
    assert "process 2 of ben on beta" in caught.value.message
    with pytest.raises(CheckpointError, match="taken over"):
        old.require_ownership()
    new.complete(1, 1, DONE, 0)
    assert new.landed() == 1


def test_batch_that_is_not_the_next_one_cannot_complete(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.complete(0, 0, DONE, None)
    second.complete(1, 1, DONE, 0)
    with pytest.raises(CheckpointError) as caught:
        first.complete(1, 1, DONE, 0)
    assert caught.value.code == "ledger-ahead"
    assert second.snapshot().batches().count == 2


def test_other_pipelines_of_the_ledger_do_not_matter(tmp_path: Path) -> None:
    games, shop = opened(tmp_path), Ledger(str(tmp_path), "ledger", "shop")
    games.take_over("games")
    shop.take_over("shop")
    for version in range(3):
        games.complete(version, version, DONE, version - 1 if version else None)
        shop.complete(version, version, DONE, version - 1 if version else None)
    assert (games.landed(), shop.landed()) == (2, 2)


def test_commit_between_the_check_and_the_commit_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes over after this one has read the ledger for its commit."""
    old, new = opened(tmp_path), opened(tmp_path)
    old.take_over("old")
    commit = old._committer.commit

    def late(wanted: object) -> int:
        old._committer.state("ledger", old.app)
        if new.run is None:
            new.take_over("new")
        return commit(wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(old._committer, "commit", late)
    with pytest.raises(CheckpointError) as caught:
        old.complete(0, 0, DONE, None)
    assert caught.value.code == "run-replaced"
    assert new.landed() is None
