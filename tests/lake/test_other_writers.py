"""Who has changed the rows of a table that is computed from another one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.lake import other_writers
from headgate.lake.commit import Mark, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.log import LogEntry
from headgate.lake.open_tables import KnownVersion
from headgate.lake.other_writers import changed_by_others
from headgate.lake.snapshot import Snapshot

ROWS = pa.table({"id": [1, 2]})


class Table:
    """A table with two commits of ours, of versions 0 and 1."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        for version in range(2):
            self.commit(version)

    def commit(self, version: int) -> None:
        mark = Mark("shop:merge@1", version)
        commit_rows(DeltaRsCommitter(str(self.lake)), "shop", ROWS, mark)

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.lake / "shop")

    def is_changed(self, written: int | None, app: str = "shop:merge") -> bool:
        table = Snapshot.open(str(self.lake), "shop")
        assert table is not None
        return changed_by_others(table, app, written)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.mark.parametrize("written", [None, 0, 1, 9])
def test_commits_of_ours_are_known(table: Table, written: int | None) -> None:
    assert not table.is_changed(written)
    assert table.is_changed(None, "another app")


@pytest.mark.parametrize("written", [None, 0, 1])
@pytest.mark.parametrize("does", ["restore", "delete", "append", "overwrite", "update"])
def test_others_change_rows(table: Table, does: str, written: int | None) -> None:
    match does:
        case "restore":
            table.delta.restore(0)
        case "delete":
            table.delta.delete("id = 1")
        case "update":
            table.delta.update({"id": "5"}, predicate="id = 1")
        case "append":
            write_deltalake(table.lake / "shop", ROWS, mode="append")
        case "overwrite":
            write_deltalake(table.lake / "shop", ROWS, mode="overwrite")
    assert table.is_changed(written)
    assert not table.is_changed(2)


def test_change_before_a_commit_of_ours_is_noticed_if_it_came_after_a_known_version(
    table: Table,
) -> None:
    table.delta.delete("id = 1")
    table.commit(2)
    assert table.is_changed(1)
    assert not table.is_changed(2)


def test_what_changes_no_rows_does_not_count(table: Table) -> None:
    table.delta.optimize.compact()
    table.delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 5 days"})
    assert table.delta.version() == 3
    assert not table.is_changed(1)
    assert not table.is_changed(None)


def test_entries_that_are_gone_may_have_changed_rows(table: Table) -> None:
    table.delta.optimize.compact()
    (table.lake / "shop" / "_delta_log" / f"{1:020}.json").rename(table.lake / "gone")
    (table.lake / "shop" / "_delta_log" / f"{0:020}.json").unlink()
    snapshot = Snapshot.of(str(table.lake), "shop", KnownVersion(2, ROWS.schema))
    assert changed_by_others(snapshot, "shop:merge", None)
    assert not changed_by_others(snapshot, "shop:merge", 1)


def test_nothing_is_read_of_a_table_without_new_versions(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotRead(LogEntry):
        @classmethod
        def read(cls, url: str, version: int) -> LogEntry:  # type: ignore[override]
            raise AssertionError(version)

    monkeypatch.setattr(other_writers, "LogEntry", NotRead)
    assert not table.is_changed(1)
