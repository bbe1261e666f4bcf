"""Rows that are kept from merge to merge, and are always those of the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lake.commit import MergeCommit, MergeRule, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.kept_rows import KeptRows
from headgate.lake.key_index import KeyIndex
from headgate.lake.merge import find_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import CommitConflict
from tests.lake.large_tables import merged_as_if

RULE = MergeRule(("n",))


def counts(numbers: dict[int, int]) -> pa.Table:
    types = pa.schema([("n", pa.int64()), ("v", pa.int64())])
    return pa.table({"n": list(numbers), "v": list(numbers.values())}, schema=types)


def added(lake: str, kept: KeptRows, new: dict[int, int]) -> None:
    """Add to the values of some keys, as a derived table does."""
    table = Snapshot.open(lake, "t")
    assert table is not None
    groups = counts(new)
    found = find_rows(table, KeyIndex(groups, RULE.key), ["n", "v"], kept)
    before = dict(zip(found.rows["n"].to_pylist(), found.rows["v"].to_pylist(), strict=True))
    rows = counts({key: value + before.get(key, 0) for key, value in new.items()})
    DeltaRsCommitter(lake).merge(MergeCommit("t", rows, RULE, based_on=found))


@contextmanager
def files_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    read: list[str] = []
    whole = Snapshot.file_rows

    def recorded(table: Snapshot, path: str, *columns: Any) -> pa.Table:
        read.append(path)
        return whole(table, path, *columns)

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "file_rows", recorded)
        yield read


def stored(lake: str) -> dict[int, int]:
    rows = DeltaTable(f"{lake}/t").to_pyarrow_table()
    return dict(zip(rows["n"].to_pylist(), rows["v"].to_pylist(), strict=True))


def size(kept: KeptRows) -> int:
    return sum(rows.nbytes for files in kept._rows.values() for rows in files.values())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ours", "ours", "ours", "others", "compacted"]),
        st.dictionaries(st.integers(0, 30), st.integers(1, 9), min_size=1, max_size=6),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, large=st.booleans(), limit=st.sampled_from([0, 200, 1 << 20]))
def test_kept_rows_are_those_of_the_table(
    steps: list[tuple[str, dict[int, int]]], large: bool, limit: int
) -> None:
    """Whoever writes to the table in between, and however little is kept."""
    model = dict.fromkeys(range(10), 0)
    kept = KeptRows(limit)
    with TemporaryDirectory() as lake, merged_as_if(large):
        commit_rows(DeltaRsCommitter(lake), "t", counts(model))
        for who, new in steps:
            if who == "compacted":
                DeltaTable(f"{lake}/t").optimize.compact()
                continue
            added(lake, kept if who == "ours" else KeptRows(), new)
            model |= {key: model.get(key, 0) + value for key, value in new.items()}
            assert stored(lake) == model
            assert kept._size == size(kept) <= limit


def test_rows_of_the_last_merge_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptRows()
    commit_rows(DeltaRsCommitter(str(tmp_path)), "t", counts(dict.fromkeys(range(10), 0)))
    with files_read(monkeypatch) as read:
        added(str(tmp_path), kept, {1: 1})
        assert len(read) == 1
        for _ in range(3):
            added(str(tmp_path), kept, {1: 1, 2: 1})
    assert len(read) == 1
    assert stored(str(tmp_path)) == {**dict.fromkeys(range(10), 0), 1: 4, 2: 3}
    assert len(kept._rows[f"{tmp_path}/t"]) == 1, "not those of files that were replaced"


def test_rows_are_read_again_once_the_table_has_another_column(tmp_path: Path) -> None:
    kept, lake = KeptRows(), str(tmp_path)
    commit_rows(DeltaRsCommitter(lake), "t", counts({1: 1}))
    added(lake, kept, {1: 1})
    wider = pa.table({"n": pa.array([2], pa.int64()), "v": pa.array([1], pa.int64()), "w": ["x"]})
    write_deltalake(f"{lake}/t", wider, mode="append", schema_mode="merge")
    table = Snapshot.open(lake, "t")
    assert table is not None
    found = find_rows(table, KeyIndex(wider, RULE.key), table.schema.names, kept)
    DeltaRsCommitter(lake).merge(MergeCommit("t", wider, RULE, based_on=found))
    rows = DeltaTable(f"{lake}/t").to_pyarrow_table().sort_by("n").to_pydict()
    assert rows == {"n": [1, 2], "v": [2, 1], "w": [None, "x"]}


def test_rows_that_are_kept_again_count_once(tmp_path: Path) -> None:
    commit_rows(DeltaRsCommitter(str(tmp_path)), "t", counts({1: 1}))
    table = Snapshot.open(str(tmp_path), "t")
    assert table is not None
    kept = KeptRows()
    for rows in (counts({1: 1}), counts({1: 1, 2: 2})):
        kept.put(table, "file", rows)
        assert kept._size == size(kept) == rows.nbytes


def test_rows_of_a_merge_that_lost_are_not_kept_for_long(tmp_path: Path) -> None:
    kept, lake = KeptRows(), str(tmp_path)
    commit_rows(DeltaRsCommitter(lake), "t", counts({1: 1}))
    table = Snapshot.open(lake, "t")
    assert table is not None
    found = find_rows(table, KeyIndex(counts({1: 5}), RULE.key), ["n", "v"], kept)
    added(lake, KeptRows(), {1: 1})
    with pytest.raises(CommitConflict):
        DeltaRsCommitter(lake).merge(MergeCommit("t", counts({1: 6}), RULE, based_on=found))
    added(lake, kept, {1: 1})
    assert stored(lake) == {1: 3}
    assert [*kept._rows[f"{lake}/t"]] == [
        Path(one).name for one in DeltaTable(f"{lake}/t").file_uris()
    ]
