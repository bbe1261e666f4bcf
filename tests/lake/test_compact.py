"""Compaction: which files are combined, and that nothing but their number changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import sleep

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.lake import delta_rs
from headgate.lake.actions import Action
from headgate.lake.changes import ChangeReader
from headgate.lake.commit import Commit, Mark, MergeCommit, MergeRule, commit_rows
from headgate.lake.compact import combine_files, files_to_combine
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.log import LogEntry, write_entry
from headgate.lake.snapshot import DataFile, Snapshot
from headgate.lake.tables import CommitConflict, NotWritable
from tests.lake.staged import files_in, rows_in, staged

MB = 1 << 20


class Files(Snapshot):
    """A table that has only the sizes of files."""

    sizes_in_order: tuple[int, ...] = ()

    @property
    def data_files(self) -> list[DataFile]:
        return [
            DataFile(f"{at}.parquet", size, 1, at) for at, size in enumerate(self.sizes_in_order)
        ]

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def is_plain(self) -> bool:
        return True


def groups_of(*sizes: int, fewest: int = 2) -> list[list[int]]:
    """Return the places of the files that are combined, of a table with these sizes in MB."""
    table = Files("lake", "t", 0, None)  # type: ignore[arg-type]
    object.__setattr__(table, "sizes_in_order", tuple(size * MB // 10 for size in sizes))
    found = files_to_combine(table, 64 * MB, fewest)
    return [[int(file.path.removesuffix(".parquet")) for file in group] for group in found]


def test_files_of_a_similar_size_are_combined() -> None:
    assert groups_of(1, 1, 1) == [[0, 1, 2]]
    assert groups_of(1, 1, 1, fewest=4) == []
    assert groups_of(1, 1, 1, 1, 400, fewest=4) == [[0, 1, 2, 3]]


def test_larger_files_stay_until_there_are_enough_of_them() -> None:
    assert groups_of(20, 1, 20, 1, 1, 1, fewest=4) == [[1, 3, 4, 5]]
    assert groups_of(20, 1, 20, 20, 20, 1, fewest=4) == [[0, 1, 2, 3, 4, 5]]
    assert groups_of(100, 100, 100, 1, fewest=3) == [[0, 1, 2, 3]]


def test_files_are_filled_in_the_order_of_their_rows() -> None:
    assert groups_of(300, 300, 300, 300, 100) == [[0, 1], [2, 3]]
    assert groups_of(300, 310, 100, 300) == [[0, 1], [2, 3]]


def test_large_files_are_left_alone() -> None:
    assert groups_of(320, 640, 6400) == []


def test_one_file_is_not_combined() -> None:
    assert groups_of(1) == []
    assert groups_of() == []


def lake_with(
    tmp_path: Path, count: int, committer: DeltaRsCommitter | None = None, first: int = 0
) -> None:
    writes = committer or DeltaRsCommitter(str(tmp_path))
    for number in range(first, count):
        file = staged(tmp_path, "t", {"n": [number]})
        writes.commit(Commit("t", file.schema, (file,), (Mark("app", number),)))


def test_rows_of_every_type_and_added_columns_are_kept(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    first = pa.table({"n": pa.array([1], pa.int64()), "x": pa.array([Decimal("0.1")])})
    nested = pa.array([{"a": [1, None], "é\U0001f600": None}])
    at = pa.array([datetime(1500, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    second = pa.table({"n": pa.array([2], pa.int64()), "s": nested, "at": at})
    for rows in (first, second):
        commit_rows(committer, "t", rows)
    before = rows_in(tmp_path, "t", "n")
    assert committer.compact("t", MB).into == 1
    assert rows_in(tmp_path, "t", "n") == before
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 1


def test_partitions_stay_apart(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    schema = pa.schema([("n", pa.int64()), ("route", pa.string())])
    for number in range(6):
        route = "a/b é" if number % 2 else "go"
        file = staged(tmp_path, "t", {"n": [number]}, partition={"route": route})
        committer.commit(Commit("t", schema, (file,), partition_by=("route",)))
    before = rows_in(tmp_path, "t", "n")
    done = committer.compact("t", MB)
    assert (done.files, done.into) == (6, 2)
    assert rows_in(tmp_path, "t", "n") == before


def test_order_of_rows_stays(tmp_path: Path) -> None:
    lake_with(tmp_path, 6)
    before = in_order(tmp_path)
    committer = DeltaRsCommitter(str(tmp_path))
    committer.compact("t", MB)
    sleep(0.002)
    file = staged(tmp_path, "t", {"n": [6]})
    committer.commit(Commit("t", file.schema, (file,)))
    assert in_order(tmp_path) == [*before, 6]


def in_order(lake: Path) -> list[int]:
    table = Snapshot.open(str(lake), "t")
    assert table is not None
    return [row for batch in table.portions_in_order(["n"]) for row in batch["n"].to_pylist()]


def test_readers_of_changes_see_nothing(tmp_path: Path) -> None:
    lake_with(tmp_path, 4)
    table = Snapshot.open(str(tmp_path), "t")
    assert table is not None
    reader = ChangeReader(table)
    DeltaRsCommitter(str(tmp_path)).compact("t", MB)
    seen = []
    while (changes := reader.next()) is not None:
        seen.append(len(changes.rows))
    assert seen
    assert set(seen) == {0}
    entries = [LogEntry.read(table.url, version) for version in range(4, 4 + len(seen))]
    assert [entry.is_compaction for entry in entries][-1]


def test_rows_that_are_appended_meanwhile_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_with(tmp_path, 4)

    def combine_and_append(table: Snapshot, files: list[DataFile]) -> object:
        file = staged(tmp_path, "t", {"n": [4]})
        DeltaRsCommitter(str(tmp_path)).commit(Commit("t", file.schema, (file,)))
        return combine_files(table, files)

    monkeypatch.setattr(delta_rs, "combine_files", combine_and_append)
    DeltaRsCommitter(str(tmp_path)).compact("t", MB)
    assert [row["n"] for row in rows_in(tmp_path, "t", "n")] == [0, 1, 2, 3, 4]
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 2


OTHERS: dict[str, Callable[[Path], object]] = {
    "delete": lambda path: DeltaTable(path).delete("n = 2"),
    "optimize": lambda path: DeltaTable(path).optimize.compact(),
    "compact": lambda path: DeltaRsCommitter(str(path.parent)).compact(path.name, MB),
}


@pytest.mark.parametrize("other", OTHERS)
def test_files_that_others_replace_meanwhile_are_not_replaced_again(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_with(tmp_path, 4)
    DeltaRsCommitter(str(tmp_path)).compact("t", MB)  # which also sets a property
    lake_with(tmp_path, 8, first=4)
    others = [OTHERS[other]]

    def combine_while_others_do(table: Snapshot, files: list[DataFile]) -> object:
        combined = combine_files(table, files)
        while others:
            others.pop()(tmp_path / "t")
        return combined

    monkeypatch.setattr(delta_rs, "combine_files", combine_while_others_do)
    DeltaRsCommitter(str(tmp_path)).compact("t", MB)
    deleted = {2} if other == "delete" else set()
    left = [number for number in range(8) if number not in deleted]
    assert [row["n"] for row in rows_in(tmp_path, "t", "n")] == left
    table = DeltaTable(tmp_path / "t")
    assert len(table.file_uris()) == 1
    known = {Path(file).name for file in table.file_uris()} | {
        Path(file["path"]).name
        for version in range(table.version() + 1)
        for file in LogEntry.read(str(tmp_path / "t"), version).removed_files
    }
    assert {Path(file).name for file in files_in(tmp_path, "t")} == known


def test_compaction_gives_up_if_others_keep_replacing_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_with(tmp_path, 40)
    numbers = iter(range(40))

    def combine_and_delete(table: Snapshot, files: list[DataFile]) -> object:
        combined = combine_files(table, files)
        DeltaTable(tmp_path / "t").delete(f"n = {next(numbers)}")
        return combined

    monkeypatch.setattr(delta_rs, "combine_files", combine_and_delete)
    with pytest.raises(CommitConflict, match="replaced already"):
        DeltaRsCommitter(str(tmp_path)).compact("t", MB)
    deleted = next(numbers)
    assert [row["n"] for row in rows_in(tmp_path, "t", "n")] == list(range(deleted, 40))


def test_merge_that_loses_its_response_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may repeat a request whose response was lost, and refuse it the second time."""
    lake_with(tmp_path, 2)
    committer = DeltaRsCommitter(str(tmp_path))

    def write_and_lose(url: str, version: int, actions: Sequence[Action]) -> None:
        write_entry(url, version, actions)

    monkeypatch.setattr(delta_rs, "write_entry", write_and_lose)
    changes = pa.table({"n": pa.array([1, 5], pa.int64())})
    done = committer.merge(MergeCommit("t", changes, MergeRule(("n",)), (Mark("app", 2),)))
    assert done.version == 2
    assert [row["n"] for row in rows_in(tmp_path, "t", "n")] == [0, 1, 5]


def test_checkpoints_do_not_list_removed_files_for_long(tmp_path: Path) -> None:
    lake_with(tmp_path, 4)
    DeltaRsCommitter(str(tmp_path)).compact("t", MB)
    kept = DeltaTable(tmp_path / "t").metadata().configuration
    assert kept["delta.deletedFileRetentionDuration"] == "interval 1 hours"


def test_files_of_several_partition_columns_are_left_alone(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2], "day": ["a", "b"], "hour": ["x", "y"]})
    for _ in range(3):
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["day", "hour"])
        write_deltalake(tmp_path / "u", rows, mode="append", partition_by=["n"])
    committer = DeltaRsCommitter(str(tmp_path))
    for table in ("t", "u"):
        with pytest.raises(NotWritable):
            committer.compact(table, MB)
        opened = Snapshot.open(str(tmp_path), table)
        assert opened is not None
        assert files_to_combine(opened, MB) == []
