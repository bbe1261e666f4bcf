"""Leftovers of a batch: files of earlier attempts, which no commit can add any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.lake import staged_files
from headgate.lake.commit import Commit, Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.staged import StagedFile
from headgate.lake.staged_files import delete_leftovers, staged_prefix, writer_of
from tests.lake.staged import rows_in, staged

APP = "headgate:games"


def stage(lake: Path, batch: int, number: int) -> StagedFile:
    """Stage a row of a batch."""
    file = staged(lake, "t", {"n": [number]})
    path = file.path.replace("part-", staged_prefix(writer_of(APP), batch))
    (lake / "t" / file.path).rename(lake / "t" / path)
    return replace(file, path=path)


def commit(lake: Path, batch: int, file: StagedFile) -> None:
    marks = (Mark(APP, batch),)
    DeltaRsCommitter(str(lake)).commit(Commit("t", file.schema, (file,), marks))


def exists(lake: Path, file: StagedFile) -> bool:
    return (lake / "t" / file.path).exists()


def test_files_of_earlier_attempts_are_deleted(tmp_path: Path) -> None:
    first, second, later = stage(tmp_path, 3, 1), stage(tmp_path, 3, 2), stage(tmp_path, 4, 3)
    commit(tmp_path, 3, second)
    assert delete_leftovers(str(tmp_path), APP, 3, [second]) == 1
    assert not exists(tmp_path, first)
    assert exists(tmp_path, second)
    assert exists(tmp_path, later)


def test_files_stay_while_their_table_waits(tmp_path: Path) -> None:
    """Another attempt, which was suspended, may still commit them."""
    commit(tmp_path, 2, stage(tmp_path, 2, 0))
    first, second = stage(tmp_path, 3, 1), stage(tmp_path, 3, 2)
    assert delete_leftovers(str(tmp_path), APP, 3, [second]) == 0
    assert exists(tmp_path, first)


def test_files_stay_that_were_committed_and_combined_since(tmp_path: Path) -> None:
    commit(tmp_path, 2, stage(tmp_path, 2, 0))
    first, second = stage(tmp_path, 3, 1), stage(tmp_path, 3, 2)
    commit(tmp_path, 3, first)
    DeltaRsCommitter(str(tmp_path)).compact("t", 1 << 20)
    assert delete_leftovers(str(tmp_path), APP, 3, [second]) == 0
    assert rows_in(tmp_path, "t", "n") == [{"n": 0}, {"n": 1}]
    assert DeltaTable(tmp_path / "t", version=1).to_pyarrow_table().num_rows == 2


def test_files_stay_if_too_much_has_been_committed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_files, "_MAX_COMMITS", 2)
    second = stage(tmp_path, 3, 2)
    commit(tmp_path, 3, second)
    leftover = stage(tmp_path, 3, 1)
    for number in range(3):
        file = staged(tmp_path, "t", {"n": [number]})
        DeltaRsCommitter(str(tmp_path)).commit(Commit("t", file.schema, (file,)))
    assert delete_leftovers(str(tmp_path), APP, 3, [second]) == 0
    assert exists(tmp_path, leftover)
