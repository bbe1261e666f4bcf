from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from headgate.lake.open_tables import OpenTable, TableCache
from headgate.lake.tables import open_table

ROWS = pa.table({"n": [1]})


def add(path: Path, times: int) -> None:
    for _ in range(times):
        write_deltalake(path, ROWS, mode="append")


def version(opened: OpenTable | None) -> int | None:
    return None if opened is None else opened.version


def test_missing_table_is_none(tmp_path: Path) -> None:
    assert open_table(str(tmp_path / "chess")) is None
    assert TableCache(str(tmp_path)).newest("chess") is None


def test_created_and_growing_table_is_up_to_date(tmp_path: Path) -> None:
    tables = TableCache(str(tmp_path))
    assert version(tables.newest("chess")) is None
    for expected in range(3):
        add(tmp_path / "chess", 1)
        assert version(tables.newest("chess")) == expected


def test_dropped_and_recreated_table_is_opened_again(tmp_path: Path) -> None:
    tables = TableCache(str(tmp_path))
    add(tmp_path / "chess", 3)
    assert version(tables.newest("chess")) == 2
    shutil.rmtree(tmp_path / "chess")
    assert version(tables.newest("chess")) is None
    add(tmp_path / "chess", 2)
    assert version(tables.newest("chess")) == 1
    shutil.rmtree(tmp_path / "chess")
    add(tmp_path / "chess", 1)
    assert version(tables.newest("chess")) == 0


def test_recreated_table_with_more_versions_is_opened_again(tmp_path: Path) -> None:
    tables = TableCache(str(tmp_path))
    add(tmp_path / "chess", 2)
    assert version(tables.newest("chess")) == 1
    shutil.rmtree(tmp_path / "chess")
    add(tmp_path / "chess", 4)
    opened = tables.newest("chess")
    assert opened is not None
    assert opened.delta.count() == 4
