from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.engine.run_lock import run_lock
from headgate.errors import CheckpointError


def test_second_run_is_refused_and_the_first_one_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints" / "games")
    with run_lock(folder, "games"):
        with pytest.raises(CheckpointError, match="games is already running") as caught:
            run_lock(folder, "games").__enter__()
        assert caught.value.code == "checkpoint-in-use"
        assert f"(process {os.getpid()})" in caught.value.message


def test_run_after_the_other_is_allowed(tmp_path: Path) -> None:
    for folder in (f"{tmp_path}/games", f"{tmp_path}/games/"):
        with run_lock(folder, "games"):
            assert (tmp_path / "games.lock").is_file()


def test_other_checkpoint_has_a_lock_of_its_own(tmp_path: Path) -> None:
    with run_lock(f"{tmp_path}/games", "games"), run_lock(f"{tmp_path}/shop", "shop"):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["games.lock", "shop.lock"]
