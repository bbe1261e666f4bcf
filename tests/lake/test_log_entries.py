"""Commits by entries of the log: which tables they make, and what is read for them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from headgate.lake import delta_rs
from headgate.lake.actions import Action
from headgate.lake.commit import Commit, Mark, MergeCommit, MergeRule, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.files import Identity
from headgate.lake.log import LogEntry, write_entry
from headgate.lake.merge import Rewritten, merge_into_files
from headgate.lake.parquet import write_parquet
from headgate.lake.staged import StagedFile
from headgate.lake.storage import create_file
from headgate.lake.tables import CommitConflict, TableError
from tests.lake.committer_contract import APP, commit, numbers
from tests.lake.staged import staged


def values(lake: Path, table: str = "chess") -> list[int]:
    return sorted(DeltaTable(lake / table).to_pyarrow_table()["n"].to_pylist())


def append(committer: DeltaRsCommitter, lake: Path, *versions: int) -> int:
    for version in versions:
        committer.state("chess", APP)
        last = commit(committer, version, staged(lake, "chess", numbers(version)))
    return last


@pytest.fixture
def committer(tmp_path: Path) -> DeltaRsCommitter:
    """One that knows its table."""
    committer = DeltaRsCommitter(str(tmp_path))
    append(committer, tmp_path, 0, 1)
    return committer


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often delta-rs commits, and how often it reads a log."""
    counts: Counter[str] = Counter()
    for name in ("create_write_transaction", "update_incremental"):
        monkeypatch.setattr(DeltaTable, name, counted(getattr(DeltaTable, name), counts))
    return counts


def counted(function: Callable[..., object], counts: Counter[str]) -> Callable[..., object]:
    @wraps(function)
    def counting(*given: object, **more: object) -> object:
        counts[function.__name__] += 1
        return function(*given, **more)

    return counting


def test_known_table_is_not_read(
    committer: DeltaRsCommitter, tmp_path: Path, reads: Counter[str]
) -> None:
    assert append(committer, tmp_path, *range(2, 9)) == 8
    assert not reads
    assert values(tmp_path) == list(range(9))
    state = committer.state("chess", APP)
    assert state is not None
    assert (state.version, state.marked) == (8, 8)
    assert DeltaTable(tmp_path / "chess").transaction_version(APP) == 8


def checkpoints(lake: Path, table: str = "chess") -> list[int]:
    log = lake / table / "_delta_log"
    return sorted(int(file.name[:20]) for file in log.glob("*.checkpoint.parquet"))


def test_every_fiftieth_version_has_a_checkpoint(
    committer: DeltaRsCommitter, tmp_path: Path, reads: Counter[str]
) -> None:
    append(committer, tmp_path, *range(2, 150))
    first, *others = checkpoints(tmp_path)
    assert others == list(range(first + 50, 150, 50))
    assert not reads
    assert values(tmp_path) == list(range(150))
    for version in range(others[-1]):
        (tmp_path / "chess" / "_delta_log" / f"{version:020d}.json").unlink()
    assert values(tmp_path) == list(range(150))


def test_tables_take_turns_with_checkpoints(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    tables = [f"game_{number}" for number in range(20)]
    for version in range(51):
        for table in tables:
            file = staged(tmp_path, table, numbers(version))
            committer.state(table, APP)
            committer.commit(Commit(table, file.schema, (file,), (Mark(APP, version),)))
    written = Counter(version for table in tables for version in checkpoints(tmp_path, table))
    assert written.total() == len(tables)
    assert max(written.values()) <= len(tables) / 2


def test_commit_is_made_even_if_its_checkpoint_is_not(
    committer: DeltaRsCommitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def no_space(table: DeltaTable) -> None:
        nonlocal tries
        tries += 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", no_space)
    assert append(committer, tmp_path, *range(2, 102)) == 101
    assert tries == 2
    assert values(tmp_path) == list(range(102))
    assert not checkpoints(tmp_path)


def test_commit_of_another_is_kept_and_followed(
    committer: DeltaRsCommitter, tmp_path: Path
) -> None:
    committer.state("chess", APP)
    write_deltalake(tmp_path / "chess", numbers(70), mode="append")
    assert commit(committer, 2, staged(tmp_path, "chess", numbers(2))) == 3
    assert append(committer, tmp_path, 3, 4) == 5
    assert values(tmp_path) == [0, 1, 2, 3, 4, 70]


def test_same_batch_of_another_run_is_a_conflict(
    committer: DeltaRsCommitter, tmp_path: Path
) -> None:
    committer.state("chess", APP)
    append(DeltaRsCommitter(str(tmp_path)), tmp_path, 2)
    file = staged(tmp_path, "chess", numbers(2))
    landing = Commit("chess", file.schema, (file,), (Mark(APP, 2),), required_marks={APP: 1})
    with pytest.raises(CommitConflict):
        committer.commit(landing)
    with pytest.raises(CommitConflict, match="already"):
        committer.commit(Commit("chess", file.schema, (file,), (Mark(APP, 1),)))
    state = committer.state("chess", APP)
    assert state is not None
    assert state.marked == 2
    assert values(tmp_path) == [0, 1, 2]


def test_required_marks_are_those_of_the_newest_version(
    committer: DeltaRsCommitter, tmp_path: Path
) -> None:
    append(committer, tmp_path, 2)
    file = staged(tmp_path, "chess", numbers(3))
    wanted = Commit("chess", file.schema, (file,), (Mark(APP, 3),), required_marks={APP: 1})
    with pytest.raises(CommitConflict):
        committer.commit(wanted)
    assert committer.commit(replace(wanted, required_marks={APP: 2})) == 3


def test_replaced_table_is_not_taken_for_the_known_one(
    committer: DeltaRsCommitter, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "chess")
    for value in (50, 51, 52):
        write_deltalake(tmp_path / "chess", numbers(value), mode="append")
    assert append(committer, tmp_path, 2) == 3
    assert values(tmp_path) == [2, 50, 51, 52]


def test_new_columns_are_added(committer: DeltaRsCommitter, tmp_path: Path) -> None:
    committer.state("chess", APP)
    wider = pa.table({"n": pa.array([2], pa.int64()), "name": ["b"]})
    commit(committer, 2, staged(tmp_path, "chess", wider))
    append(committer, tmp_path, 3)
    found = DeltaTable(tmp_path / "chess").to_pyarrow_table().sort_by("n")
    assert found["name"].to_pylist() == [None, None, "b", None]


ROUTES = ["plain", "with space", "100%", "a/b", "ä?#[]{}|^`", "x=y&z", "\U00020000"]


def test_paths_with_special_characters_are_found(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    for version, route in enumerate([*ROUTES, *ROUTES]):
        committer.state("bronze", APP)
        file = _bronze(tmp_path, version, route)
        committer.commit(
            Commit("bronze", _BRONZE, (file,), (Mark(APP, version),), partition_by=("route",))
        )
    rows = DeltaTable(tmp_path / "bronze").to_pyarrow_table().sort_by("n")
    assert rows["route"].to_pylist() == [*ROUTES, *ROUTES]


_BRONZE = pa.schema([("n", pa.int64()), ("route", pa.string())])


def _bronze(lake: Path, number: int, route: str) -> StagedFile:
    return write_parquet(
        str(lake), "bronze", f"part-{number}.parquet", numbers(number), partition={"route": route}
    )


def test_entry_says_who_wrote_it(committer: DeltaRsCommitter, tmp_path: Path) -> None:
    append(committer, tmp_path, 2)
    entry = LogEntry.read(str(tmp_path / "chess"), 2)
    assert entry.marks == {APP: 2}
    (info,) = (one["commitInfo"] for one in entry.actions if "commitInfo" in one)
    assert info["operation"] == "WRITE"
    assert not list((tmp_path / "chess" / "_delta_log").glob(".*"))


def replaced_by(committer: DeltaRsCommitter, lake: Path, *commits: pa.Table) -> int:
    """Replace a table several times, as derived tables are."""
    for version, rows in enumerate(commits):
        last = commit_rows(committer, "gold", rows, Mark(APP, version), mode="replace")
    return last


def test_known_table_is_replaced_without_reading_it(tmp_path: Path, reads: Counter[str]) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    assert replaced_by(committer, tmp_path, numbers(1, 2), numbers(3), numbers(4, 5)) == 2
    assert not reads
    assert values(tmp_path, "gold") == [4, 5]
    first, second = (LogEntry.read(str(tmp_path / "gold"), version) for version in (0, 1))
    assert [one["path"] for one in second.removed] == [one["path"] for one in first.added]
    assert DeltaTable(tmp_path / "gold").transaction_version(APP) == 2


def test_new_columns_replace_those_of_a_known_table(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    wider = pa.table({"n": pa.array([7], pa.int64()), "name": ["b"]})
    replaced_by(committer, tmp_path, numbers(1), wider, wider, numbers(3))
    assert DeltaTable(tmp_path / "gold").to_pyarrow_table().to_pydict() == {"n": [3]}


def test_rows_appended_to_a_replaced_table_are_replaced_too(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    replaced_by(committer, tmp_path, numbers(1))
    commit_rows(committer, "gold", numbers(2), Mark(APP, 1))
    assert values(tmp_path, "gold") == [1, 2]
    commit_rows(committer, "gold", numbers(3), Mark(APP, 2), mode="replace")
    assert values(tmp_path, "gold") == [3]


def test_rows_of_another_writer_are_replaced_too(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    replaced_by(committer, tmp_path, numbers(1))
    write_deltalake(tmp_path / "gold", numbers(70), mode="append")
    commit_rows(committer, "gold", numbers(3), Mark(APP, 1), mode="replace")
    assert values(tmp_path, "gold") == [3]


def test_table_that_changed_since_it_was_read_is_not_replaced(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    replaced_by(committer, tmp_path, numbers(1), numbers(2))
    write_deltalake(tmp_path / "gold", numbers(70), mode="append")
    with pytest.raises(CommitConflict):
        commit_rows(committer, "gold", numbers(3), Mark(APP, 2), mode="replace", based_on=1)
    assert values(tmp_path, "gold") == [2, 70]


def merged(committer: DeltaRsCommitter, version: int, *numbers_: int) -> int:
    rows = pa.table({"n": pa.array(numbers_, pa.int64()), "v": [version] * len(numbers_)})
    merge = MergeCommit("gold", rows, MergeRule(("n",)), (Mark(APP, version),))
    return committer.merge(merge).version


@pytest.fixture
def merging(tmp_path: Path) -> DeltaRsCommitter:
    """A committer that has merged into a table once."""
    rows = pa.table({"n": pa.array(range(5), pa.int64()), "v": pa.array([0] * 5, pa.int64())})
    commit_rows(DeltaRsCommitter(str(tmp_path)), "gold", rows, Mark(APP, 0))
    committer = DeltaRsCommitter(str(tmp_path))
    assert merged(committer, 1, 3) == 1
    return committer


def test_known_table_is_merged_into_without_delta_rs(
    merging: DeltaRsCommitter, tmp_path: Path, reads: Counter[str]
) -> None:
    assert [merged(merging, version, version, 9) for version in (2, 3, 4)] == [2, 3, 4]
    assert "create_write_transaction" not in reads
    rows = DeltaTable(tmp_path / "gold").to_pyarrow_table().sort_by("n").to_pydict()
    assert rows == {"n": [0, 1, 2, 3, 4, 9], "v": [0, 0, 2, 3, 4, 4]}
    assert DeltaTable(tmp_path / "gold").transaction_version(APP) == 4


def test_merge_is_repeated_after_a_commit_of_another(
    merging: DeltaRsCommitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = pa.table({"n": pa.array([6], pa.int64()), "v": pa.array([6], pa.int64())})
    whole = merge_into_files

    def late(*given: Any) -> Rewritten:
        monkeypatch.setattr(delta_rs, "merge_into_files", whole)
        result = whole(*given)
        write_deltalake(tmp_path / "gold", other, mode="append")
        return result

    monkeypatch.setattr(delta_rs, "merge_into_files", late)
    assert merged(merging, 2, 6, 7) == 3
    rows = DeltaTable(tmp_path / "gold").to_pyarrow_table().sort_by("n").to_pydict()
    assert rows == {"n": [0, 1, 2, 3, 4, 6, 7], "v": [0, 0, 0, 1, 0, 2, 2]}
    committed = {Path(path).name for path in DeltaTable(tmp_path / "gold").file_uris()}
    removed = {
        one["path"]
        for version in range(4)
        for one in LogEntry.read(str(tmp_path / "gold"), version).removed
    }
    assert {file.name for file in (tmp_path / "gold").glob("*.parquet")} == committed | removed


COLUMNS = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False, metadata={"comment": 'a "number"'}),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("place", pa.struct([("x", pa.float32()), ("on", pa.date32())])),
        pa.field("tags", pa.list_(pa.map_(pa.string(), pa.binary()))),
        pa.field("\U00020000 ä", pa.bool_()),
    ]
)


@pytest.mark.parametrize("partition_by", [(), ("n",)])
def test_new_table_is_what_delta_rs_would_make(tmp_path: Path, partition_by: tuple[str]) -> None:
    about = 'It\'s "x"'
    commit = Commit("t", COLUMNS, (), (Mark(APP, 3),), partition_by=partition_by, description=about)
    assert DeltaRsCommitter(str(tmp_path)).commit(commit) == 0
    DeltaTable.create(
        tmp_path / "theirs",
        Schema.from_arrow(COLUMNS),
        partition_by=list(partition_by),
        description=about,
        configuration={"delta.checkpointInterval": "50"},
    )
    ours, theirs = (LogEntry.read(str(tmp_path / name), 0) for name in ("t", "theirs"))
    own = {"id": None, "createdTime": None}
    assert ours.metadata is not None
    assert theirs.metadata is not None
    assert {**ours.metadata, **own} == {**theirs.metadata, **own}
    assert ours.metadata["id"] != theirs.metadata["id"]
    assert ours.protocol == theirs.protocol
    assert ours.marks == {APP: 3}


LOCAL_TIME = pa.field("at", pa.struct([("local", pa.timestamp("us"))]))


def test_features_of_columns_are_declared(tmp_path: Path) -> None:
    required = pa.field("n", pa.int64(), nullable=False)
    DeltaRsCommitter(str(tmp_path)).commit(Commit("t", pa.schema([LOCAL_TIME, required]), ()))
    protocol = DeltaTable(tmp_path / "t").protocol()
    assert protocol.reader_features == ["timestampNtz"]
    assert set(protocol.writer_features or ()) == {"appendOnly", "invariants", "timestampNtz"}


def test_features_of_added_columns_are_declared_beside_those_before(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    commit(committer, 0, staged(tmp_path, "t", numbers(1)))
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    wider = pa.schema([("n", pa.int64()), LOCAL_TIME])
    commit(committer, 1, staged(tmp_path, "t", numbers(2)), schema=wider)
    protocol = DeltaTable(tmp_path / "t").protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["timestampNtz"]
    assert {"changeDataFeed", "timestampNtz", "invariants"} <= set(protocol.writer_features or ())
    assert values(tmp_path, "t") == [1, 2]


@pytest.mark.parametrize("wanted", [pa.field("N", pa.int64()), pa.field("n", pa.string())])
def test_columns_that_a_table_cannot_have_are_refused(tmp_path: Path, wanted: pa.Field) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    commit(committer, 0, staged(tmp_path, "t", numbers(1)))
    with pytest.raises(TableError, match="column"):
        committer.commit(Commit("t", pa.schema([wanted]), ()))
    assert DeltaTable(tmp_path / "t").version() == 0


def test_table_whose_first_entries_are_gone_is_not_created_again(
    committer: DeltaRsCommitter, tmp_path: Path
) -> None:
    DeltaTable(tmp_path / "chess").create_checkpoint()
    log = tmp_path / "chess" / "_delta_log"
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    for mode in ("create", "append"):
        with suppress(TableError):
            commit_rows(DeltaRsCommitter(str(tmp_path)), "chess", numbers(2), mode=mode)
    assert not (log / f"{0:020d}.json").exists()
    assert values(tmp_path) == [0, 1, 2]


def test_table_that_another_creates_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def late(url: str, version: int, actions: Sequence[Action]) -> Identity | None:
        write_deltalake(url, numbers(70))
        return write_entry(url, version, actions)

    monkeypatch.setattr(delta_rs, "write_entry", late)
    with pytest.raises(CommitConflict, match="another writer"):
        commit_rows(DeltaRsCommitter(str(tmp_path)), "chess", numbers(1))
    assert values(tmp_path) == [70]


def test_first_commits_to_a_table_are_entries_of_its_log(
    tmp_path: Path, reads: Counter[str]
) -> None:
    append(DeltaRsCommitter(str(tmp_path)), tmp_path, 0)
    for version in (1, 2):
        commit_rows(DeltaRsCommitter(str(tmp_path)), "chess", numbers(version))
    rows = pa.table({"n": pa.array([2, 9], pa.int64())})
    DeltaRsCommitter(str(tmp_path)).merge(MergeCommit("chess", rows, MergeRule(("n",))))
    assert not reads
    assert values(tmp_path) == [0, 1, 2, 9]


def test_entry_that_is_written_again_is_not_lost_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Counter[str]
) -> None:
    """As clients of object stores do if they get no response."""

    def repeated(url: str, content: bytes) -> Identity | None:
        create_file(url, content)
        return create_file(url, content)

    monkeypatch.setattr("headgate.lake.log.create_file", repeated)
    committer = DeltaRsCommitter(str(tmp_path))
    assert append(committer, tmp_path, *range(4)) == 3
    assert not reads
    assert values(tmp_path) == [0, 1, 2, 3]


def test_commit_after_the_table_was_replaced_is_refused_once(
    committer: DeltaRsCommitter, tmp_path: Path
) -> None:
    append(committer, tmp_path, 2)
    shutil.rmtree(tmp_path / "chess")
    write_deltalake(tmp_path / "chess", numbers(70))
    file = staged(tmp_path, "chess", numbers(3))
    with pytest.raises(CommitConflict, match="replaced by another"):
        committer.commit(Commit("chess", file.schema, (file,)))
    assert committer.commit(Commit("chess", file.schema, (file,))) == 1
    assert values(tmp_path) == [3, 70]
