"""The versions of sources that a derived table includes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headgate.gold.commit import Derivation, commit_files, source_marks
from headgate.gold.source_table import DerivedTable, SourceRows, SourceTables
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.open_tables import TableCache
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot

ROWS = pa.table({"id": [1]})
APP = "games:gold:1"


def rows_since(lake: Path, was_changed: bool = False) -> SourceRows | None:
    derived = DerivedTable(str(lake), "gold", Snapshot.open(str(lake), "gold"), was_changed)
    return SourceTables(str(lake), TableCache(str(lake))).rows_since("silver", derived, APP)


def land(lake: Path, times: int = 1) -> None:
    for _ in range(times):
        write_deltalake(lake / "silver", ROWS, mode="append")


def derivation(lake: Path, is_one_of_many: bool = True) -> Derivation:
    """Return how new rows are appended."""
    rows = rows_since(lake)
    assert rows is not None
    before = Snapshot.open(str(lake), "gold")
    marks = tuple(source_marks(APP, rows, is_one_of_many))
    return Derivation("gold", before, marks, appends=True)


def derive(lake: Path, derivation: Derivation) -> str | None:
    file = stage_rows(str(lake), "gold", ROWS)
    return commit_files(DeltaRsCommitter(str(lake)), derivation, [file]).error


def test_new_rows_are_derived_once(tmp_path: Path) -> None:
    land(tmp_path, 3)
    assert derive(tmp_path, derivation(tmp_path)) is None
    assert rows_since(tmp_path) is None
    land(tmp_path)
    new = rows_since(tmp_path)
    assert new is not None
    assert (len(new.files), new.marked, new.was_rewritten) == (1, 2, False)


def test_source_that_is_created_again_is_derived_from_its_start(tmp_path: Path) -> None:
    for again in (2, 3, 5):
        shutil.rmtree(tmp_path, ignore_errors=True)
        land(tmp_path, 3)
        derive(tmp_path, derivation(tmp_path))
        shutil.rmtree(tmp_path / "silver")
        land(tmp_path, again)
        new = rows_since(tmp_path)
        assert new is not None
        assert (len(new.files), new.is_whole, new.was_rewritten) == (again, True, True)


def test_table_of_one_source_has_one_mark(tmp_path: Path) -> None:
    """More of them cost Spark's committer a detour."""
    land(tmp_path)
    (mark,) = derivation(tmp_path, is_one_of_many=False).marks
    assert mark.app == f"{APP}@{DeltaTable(tmp_path / 'silver').metadata().id}"


def test_mark_beyond_the_newest_version_does_not_count(tmp_path: Path) -> None:
    land(tmp_path, 2)
    derive(tmp_path, derivation(tmp_path))
    (tmp_path / "silver" / "_delta_log" / f"{1:020}.json").unlink()
    new = rows_since(tmp_path)
    assert new is not None
    assert (new.version, new.is_whole, new.was_rewritten) == (0, True, True)


def test_table_that_others_have_changed_includes_nothing(tmp_path: Path) -> None:
    land(tmp_path)
    derive(tmp_path, derivation(tmp_path))
    new = rows_since(tmp_path, was_changed=True)
    assert new is not None
    assert new.is_whole


def test_rows_that_another_process_has_appended_are_not_appended_again(tmp_path: Path) -> None:
    land(tmp_path)
    derive(tmp_path, derivation(tmp_path))
    land(tmp_path)
    twice = [derivation(tmp_path), derivation(tmp_path)]
    errors = [derive(tmp_path, one) for one in twice]
    assert errors[0] is None
    assert errors[1] is not None
    assert DeltaTable(tmp_path / "gold").to_pyarrow_table().num_rows == 2
