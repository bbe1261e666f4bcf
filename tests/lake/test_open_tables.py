from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

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


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tables that delta-rs has brought up to date."""
    found: list[str] = []
    update = DeltaTable.update_incremental

    def updating(table: DeltaTable) -> None:
        found.append(table.table_uri)
        update(table)

    monkeypatch.setattr(DeltaTable, "update_incremental", updating)
    return found


def assert_newest(tables: TableCache, path: Path) -> None:
    opened, fresh = tables.newest("chess"), DeltaTable(path / "chess")
    assert opened is not None
    assert opened.version == fresh.version()
    assert opened.schema.equals(pa.schema(fresh.schema()), check_metadata=True)
    added = pa.table(fresh.get_add_actions())
    sizes = zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), strict=True)
    assert opened.sizes == dict(sizes)
    assert [opened.mark(app) for app in "ab"] == [fresh.transaction_version(app) for app in "ab"]


def write(path: Path, number: int, **more: Any) -> None:
    properties = CommitProperties(app_transactions=[Transaction("ab"[number % 2], number)])
    write_deltalake(path / "chess", ROWS, commit_properties=properties, **more)


def test_commits_that_change_files_are_followed_without_delta_rs(
    tmp_path: Path, updates: list[str]
) -> None:
    tables = TableCache(str(tmp_path))
    write(tmp_path, 0)
    assert_newest(tables, tmp_path)
    for number, mode in enumerate(["append", "append", "overwrite", "append"], 1):
        write(tmp_path, number, mode=mode)
        assert_newest(tables, tmp_path)
    write(tmp_path, 5, mode="append")
    write(tmp_path, 6, mode="append")
    DeltaTable(tmp_path / "chess").delete("n = 2")
    assert_newest(tables, tmp_path)
    DeltaTable(tmp_path / "chess").optimize.compact()
    updates.clear()
    assert_newest(tables, tmp_path)
    assert not updates


def test_commits_that_change_columns_and_features_are_followed_too(
    tmp_path: Path, updates: list[str]
) -> None:
    tables = TableCache(str(tmp_path))
    write(tmp_path, 0)
    assert_newest(tables, tmp_path)
    write(tmp_path, 1, mode="append")
    wider = pa.table({"n": [2], "m": [2]})
    write_deltalake(tmp_path / "chess", wider, mode="append", schema_mode="merge")
    updates.clear()
    assert_newest(tables, tmp_path)
    write(tmp_path, 3, mode="append", schema_mode="merge")
    assert_newest(tables, tmp_path)
    DeltaTable(tmp_path / "chess").alter.set_table_properties({"delta.appendOnly": "true"})
    opened = tables.newest("chess")
    assert opened is not None
    assert opened.definition.constraints.append_only
    local = pa.table({"n": [4], "at": pa.array([None], pa.timestamp("us"))})
    write_deltalake(tmp_path / "chess", local, mode="append", schema_mode="merge")
    assert_newest(tables, tmp_path)
    opened = tables.newest("chess")
    assert opened is not None
    assert "timestampNtz" in opened.definition.protocol.features
    assert not updates


def test_table_with_many_commits_is_read_again(tmp_path: Path, updates: list[str]) -> None:
    tables = TableCache(str(tmp_path))
    write(tmp_path, 0)
    assert_newest(tables, tmp_path)
    for number in range(1, 26):
        write(tmp_path, number, mode="append")
        assert_newest(tables, tmp_path)
    assert not updates
    add(tmp_path / "chess", 30)
    assert_newest(tables, tmp_path)
    assert updates


def test_version_stays_as_it_is_while_others_commit(tmp_path: Path) -> None:
    tables = TableCache(str(tmp_path))
    write(tmp_path, 0)
    first = tables.newest("chess")
    write(tmp_path, 1, mode="append")
    second = tables.newest("chess")
    write(tmp_path, 2, mode="overwrite")
    third = tables.newest("chess")
    assert first is not None
    assert second is not None
    assert third is not None
    assert third.delta.version() == 2
    assert [len(one.sizes) for one in (first, second)] == [1, 2]
    assert [one.delta.version() for one in (second, first)] == [1, 0]
    assert [one.mark("b") for one in (first, second)] == [None, 1]
