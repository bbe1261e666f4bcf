"""Merges rewrite the right files, and come to the rows of a plain model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lake import delta_rs, merge
from headgate.lake.commit import Mark, MergeCommit, MergeRule, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.key_index import KeyIndex
from headgate.lake.merge import Rewritten, find_rows, merge_into_files
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.staged import StagedFile
from headgate.lake.tables import NotWritable
from tests.lake.large_tables import merged_as_if

SCHEMA = pa.schema(
    [
        ("game", pa.string()),
        ("player", pa.int64()),
        ("order", pa.int64()),
        ("tags", pa.list_(pa.string())),
    ]
)
CHANGES = SCHEMA.append(pa.field("gone", pa.bool_()))
RULE = MergeRule(("game", "player"), newer="order", deleted="gone")

games = st.sampled_from([None, "chess", "go", "gö", "whist" * 20])
players = st.one_of(st.none(), st.integers(-3, 40))
orders = st.integers(0, 9)
batches = st.lists(
    st.dictionaries(st.tuples(games, players), st.tuples(orders, st.booleans()), max_size=12),
    min_size=1,
    max_size=12,
)


def as_changes(batch: Mapping[tuple[Any, Any], tuple[int, bool]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"game": game, "player": player, "order": order, "tags": [f"{order}"], "gone": gone}
            for (game, player), (order, gone) in batch.items()
        ],
        CHANGES,
    )


@settings(max_examples=40, deadline=None)
@given(batches=batches, large=st.booleans())
def test_merges_come_to_the_rows_of_a_model(
    batches: list[dict[tuple[Any, Any], tuple[int, bool]]], large: bool
) -> None:
    model: dict[tuple[Any, Any], int] = {}
    table: Snapshot | None = None
    with TemporaryDirectory() as lake, merged_as_if(large):
        committer = DeltaRsCommitter(lake)
        commit_rows(committer, "t", SCHEMA.empty_table())
        for number, batch in enumerate(batches):
            inserted = updated = deleted = 0
            for key, (order, gone) in batch.items():
                if key not in model and not gone:
                    model[key], inserted = order, inserted + 1
                elif key in model and order > model[key] and gone:
                    del model[key]
                    deleted += 1
                elif key in model and order > model[key]:
                    model[key], updated = order, updated + 1
            mark = Mark("app", number)
            counts = committer.merge(MergeCommit("t", as_changes(batch), RULE, (mark,)))
            assert (counts.inserted, counts.updated, counts.deleted) == (inserted, updated, deleted)
            table = Snapshot.open(lake, "t")
            assert table is not None
            assert (table.version, table.mark("app")) == (counts.version, number)
        assert table is not None
        rows = table.rows().to_pylist()
        assert {(row["game"], row["player"]): row["order"] for row in rows} == model
        assert len(rows) == len(model)
        assert all(row["tags"] == [str(row["order"])] for row in rows)
        wanted = as_changes(batches[0])
        found = find_rows(table, KeyIndex(wanted, RULE.key), ["player", "game"]).rows
        assert {
            (row["game"], row["player"]) for row in found.to_pylist()
        } == model.keys() & batches[0].keys()


@settings(max_examples=100, deadline=None)
@given(
    values=st.one_of(
        st.lists(st.one_of(st.none(), st.integers(-5, 5))),
        st.lists(st.one_of(st.none(), st.floats())),
        st.lists(st.one_of(st.none(), st.text(max_size=3))),
        st.lists(st.one_of(st.none(), st.binary(max_size=3))),
        st.lists(st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2))),
    )
)
def test_every_row_is_in_one_of_the_files(values: list[Any]) -> None:
    with merged_as_if(large=True):
        rows = pa.table({"key": values, "row": pa.array(range(len(values)), pa.int64())})
        parts = list(merge.split_into_files(rows, ["key"]))
    assert sorted(row for part in parts for row in part["row"].to_pylist()) == [*range(len(values))]


def test_files_of_large_tables_have_ranges_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "FILE_ROWS", 1_000)
    keys = np.random.default_rng(1).permutation(10_000)
    texts = np.char.add("player_", np.char.zfill(keys.astype(str), 6))
    for column in (pa.array(keys), pa.array(texts)):
        parts = list(merge.split_into_files(pa.table({"key": column}), ["key"]))
        bounds = [(pc.min(part["key"]).as_py(), pc.max(part["key"]).as_py()) for part in parts]
        assert all(greatest < least for (_, greatest), (least, _) in pairwise(bounds))
        assert 8 <= len(parts) <= 12
        assert max(map(len, parts)) < 1_500


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64()), "v": pa.array(values, pa.int64())})


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A table of 1,000 rows in ten files, by key."""
    for start in range(0, 1000, 100):
        commit_rows(DeltaRsCommitter(str(tmp_path)), "t", numbers(*range(start, start + 100)))
    return tmp_path


def files(lake: Path) -> set[str]:
    return set(DeltaTable(lake / "t").file_uris())


def test_only_files_with_touched_keys_are_rewritten(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FILE_ROWS", 100)
    read: list[str] = []
    whole = Snapshot.file_rows

    def recorded(table: Snapshot, path: str, *columns: Any) -> pa.Table:
        read.append(path)
        return whole(table, path, *columns)

    monkeypatch.setattr(Snapshot, "file_rows", recorded)
    before = files(large)
    changes = pa.table(
        {"n": pa.array([310, 5000], pa.int64()), "v": pa.array([-1, -2], pa.int64())}
    )
    committer = DeltaRsCommitter(str(large))
    counts = committer.merge(MergeCommit("t", changes, MergeRule(("n",))))
    assert (counts.inserted, counts.updated) == (1, 1)
    assert len(set(read)) == 1
    assert (len(before - files(large)), len(files(large) - before)) == (1, 2)
    assert DeltaTable(large / "t").count() == 1001


def merged_rows(
    lake: Path, keys: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Merge changes of some keys; return how many rows were written, and how many files are new."""
    written: list[int] = []

    def recorded(lake: str, table: str, rows: pa.Table, **given: Any) -> StagedFile:
        written.append(len(rows))
        return stage_rows(lake, table, rows, **given)

    with monkeypatch.context() as patch:
        patch.setattr(merge, "stage_rows", recorded)
        before = files(lake)
        DeltaRsCommitter(str(lake)).merge(MergeCommit("t", numbers(*keys), MergeRule(("n",))))
    return sum(written), len(files(lake) - before)


def test_rows_near_changes_are_rewritten_without_the_others(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FILE_ROWS", 100)
    assert merged_rows(large, range(975, 998, 2), monkeypatch) == (100, 3)
    for start in (976, 977, 975):
        assert merged_rows(large, range(start, start + 20), monkeypatch) == (23, 1)
    assert merged_rows(large, [*range(980, 1000), *range(2000, 2010)], monkeypatch) == (35, 1)
    assert DeltaTable(large / "t").count() == 1010
    assert len(files(large)) == 11


def test_few_or_scattered_changes_do_not_split_files(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FILE_ROWS", 100)
    for keys in ([310, 311], range(400, 500, 9), [510, 530, 550, 610, 630]):
        merged_rows(large, keys, monkeypatch)
        assert len(files(large)) == 10


def test_small_files_are_combined_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "FILE_ROWS", 100)
    committer = DeltaRsCommitter(str(tmp_path))
    commit_rows(committer, "t", numbers(*range(1000, 2000)))
    most = 0
    for number in range(1, 40):
        committer.merge(MergeCommit("t", numbers(number), MergeRule(("n",))))
        most = max(most, len(files(tmp_path)))
    assert most == merge._MAX_SMALL_FILES + 1
    assert DeltaTable(tmp_path / "t").count() == 1039


def test_rows_of_others_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone commits between reading and committing: the merge is done again."""
    committer, other = DeltaRsCommitter(str(tmp_path)), DeltaRsCommitter(str(tmp_path))
    commit_rows(committer, "t", numbers(1))
    overtaken: list[int] = []

    def overtaken_once(*given: Any) -> Rewritten:
        rewritten = merge_into_files(*given)
        if not overtaken:
            overtaken.append(commit_rows(other, "t", numbers(2)))
        return rewritten

    monkeypatch.setattr(delta_rs, "merge_into_files", overtaken_once)
    counts = committer.merge(MergeCommit("t", numbers(2, 3), MergeRule(("n",))))
    assert (counts.inserted, counts.updated) == (1, 1)
    assert DeltaTable(tmp_path / "t").count() == 3
    on_disk = {path.name for path in (tmp_path / "t").glob("*.parquet")}
    in_log = {Path(one).name for one in files(tmp_path)}
    assert len(on_disk - in_log) == 2, "the files before, and none of the merge that lost"


def test_partitioned_tables_are_left_to_spark(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "t", numbers(1), partition_by=["v"])
    with pytest.raises(NotWritable, match="partitions"):
        DeltaRsCommitter(str(tmp_path)).merge(MergeCommit("t", numbers(1), MergeRule(("n",))))
