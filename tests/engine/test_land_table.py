from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.config import Contract
from headgate.engine.land_table import (
    BatchMark,
    RequestedChange,
    TableLanded,
    TablePending,
    land_table,
)
from headgate.engine.plan import TableShape
from headgate.errors import CheckpointError
from headgate.lake.commit import Mark
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Pending
from headgate.lake.staged import StagedFile
from headgate.schema.changes import (
    AddColumn,
    AddNestedField,
    CreateTable,
    RetypeColumn,
    TableHistory,
)
from headgate.testing import FailingCommitter
from tests.lake.staged import files_in, rows_in, staged

SHAPE = TableShape(pa.schema([("n", pa.int64()), ("_key", pa.binary())]))


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


class Chess:
    """One table, and a committer that can be made to fail."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.committer = FailingCommitter(DeltaRsCommitter(str(lake)))
        self.history = TableHistory()
        self.contract = Contract()

    def stage(self, rows: pa.Table, schema_id: int = 1) -> StagedFile:
        return staged(self.lake, "chess", rows, schema_ids=(schema_id,))

    def land(
        self, version: int, *files: StagedFile, waiting: tuple[Pending, ...] = ()
    ) -> TableLanded | TablePending:
        mark = BatchMark(Mark("headgate:games", version))
        return land_table(
            self.committer,
            str(self.lake),
            "chess",
            SHAPE,
            files,
            waiting,
            mark,
            self.history,
            self.contract,
        )

    def landed(
        self, version: int, *files: StagedFile, waiting: tuple[Pending, ...] = ()
    ) -> TableLanded:
        outcome = self.land(version, *files, waiting=waiting)
        assert isinstance(outcome, TableLanded)
        return outcome

    def pending(
        self, version: int, *files: StagedFile, waiting: tuple[Pending, ...] = ()
    ) -> TablePending:
        outcome = self.land(version, *files, waiting=waiting)
        assert isinstance(outcome, TablePending)
        return outcome

    @property
    def numbers(self) -> list[int]:
        return [row["n"] for row in rows_in(self.lake, "chess", "n")]


@pytest.fixture
def chess(tmp_path: Path) -> Chess:
    return Chess(tmp_path)


def test_new_table_has_its_first_columns(chess: Chess) -> None:
    file = chess.stage(numbers(1, 2))
    assert chess.landed(0, file) == TableLanded(
        "chess",
        version=0,
        rows=2,
        bytes=file.size,
        files=1,
        route="chess",
        schema_ids=(1,),
        changes=(RequestedChange(CreateTable("chess", 2), (1,)),),
        schema=pa.schema([("n", pa.int64()), ("_key", pa.binary())]),
        refitted=False,
    )
    assert rows_in(chess.lake, "chess", "n") == [{"n": 1, "_key": None}, {"n": 2, "_key": None}]


def test_further_batch_is_appended(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1)))
    outcome = chess.landed(1, chess.stage(numbers(2)), chess.stage(numbers(3)))
    assert (outcome.version, outcome.rows, outcome.files, outcome.changes) == (1, 2, 2, ())
    assert chess.numbers == [1, 2, 3]


def test_new_column_is_added(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1)))
    outcome = chess.landed(1, chess.stage(numbers(2).append_column("name", [["b"]]), 2))
    assert outcome.changes == (RequestedChange(AddColumn("name", "string"), (2,)),)
    assert outcome.schema_ids == (2,)
    assert [row["name"] for row in rows_in(chess.lake, "chess", "n")] == [None, "b"]


def test_new_nested_field_is_added(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1).append_column("p", [[{"x": 1}]])))
    outcome = chess.landed(1, chess.stage(numbers(2).append_column("p", [[{"x": 2, "y": 3}]]), 2))
    assert outcome.changes == (RequestedChange(AddNestedField("p.y", "long"), (2,)),)
    assert [row["p"] for row in rows_in(chess.lake, "chess", "n")] == [
        {"x": 1, "y": None},
        {"x": 2, "y": 3},
    ]


def test_smaller_numbers_are_cast_up(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1)))
    chess.landed(1, chess.stage(pa.table({"n": pa.array([2], pa.int32())})))
    assert chess.numbers == [1, 2]
    assert len(files_in(chess.lake, "chess")) == 2


def test_older_schema_of_a_batch_names_the_column(chess: Chess) -> None:
    newer = chess.stage(numbers(2).append_column("c", [["text"]]), schema_id=2)
    older = chess.stage(numbers(1).append_column("c", [[5]]), schema_id=1)
    outcome = chess.landed(0, newer, older)
    assert outcome.changes == (
        RequestedChange(CreateTable("chess", 4), (1, 2)),
        RequestedChange(RetypeColumn("c", "long", "string", "c__string"), (2,)),
    )
    assert [(row["c"], row["c__string"]) for row in rows_in(chess.lake, "chess", "n")] == [
        (5, None),
        (None, "text"),
    ]


def test_batch_that_is_retried_is_skipped_and_keeps_its_files(chess: Chess) -> None:
    chess.landed(0, file := chess.stage(numbers(1)))
    again = chess.landed(0, file)
    assert (again.version, again.rows) == (0, 1)
    assert chess.numbers == [1]
    assert files_in(chess.lake, "chess") == [file.path]


def test_missing_staged_file_is_not_committed(chess: Chess) -> None:
    file = chess.stage(numbers(1))
    Path(chess.lake, "chess", file.path).unlink()
    pending = chess.pending(0, file)
    assert (pending.files, [one.file for one in pending.lost]) == ((), [file])


def test_table_ahead_of_the_batch_is_an_error_and_nothing_is_removed(chess: Chess) -> None:
    chess.landed(5, chess.stage(numbers(1)))
    file = chess.stage(numbers(2))
    with pytest.raises(CheckpointError, match="chess already has batch 5") as caught:
        chess.land(4, file)
    assert caught.value.code == "table-ahead"
    assert file.path in files_in(chess.lake, "chess")


def test_pending_files_that_a_later_batch_committed_have_landed(chess: Chess) -> None:
    chess.committer.refusing.add("chess")
    waiting = chess.pending(0, chess.stage(numbers(1))).files
    chess.committer.heal()
    chess.landed(1, chess.stage(numbers(2)), waiting=waiting)
    assert chess.landed(0, waiting=waiting).version == 0
    assert chess.numbers == [1, 2]


def test_table_that_cannot_be_written_is_pending(chess: Chess) -> None:
    chess.committer.refusing.add("chess")
    file = chess.stage(numbers(1))
    assert chess.pending(0, file) == TablePending(
        "chess", (Pending(0, file),), "OSError: chess cannot be written"
    )
    assert files_in(chess.lake, "chess") == [file.path]


def test_pending_files_land_with_the_next_batch(chess: Chess) -> None:
    chess.committer.refusing.add("chess")
    waiting = chess.pending(0, chess.stage(numbers(1))).files
    waiting = chess.pending(1, chess.stage(numbers(2)), waiting=waiting).files
    assert [one.version for one in waiting] == [0, 1]
    chess.committer.heal()
    outcome = chess.landed(2, chess.stage(numbers(3)), waiting=waiting)
    assert (outcome.rows, outcome.files) == (3, 3)
    assert chess.numbers == [1, 2, 3]


def test_pending_files_land_without_a_batch(chess: Chess) -> None:
    chess.committer.refusing.add("chess")
    waiting = chess.pending(0, chess.stage(numbers(1))).files
    chess.committer.heal()
    chess.landed(0, waiting=waiting)
    chess.landed(0, waiting=waiting)
    chess.landed(1, waiting=waiting)
    assert chess.numbers == [1]


def test_pending_files_that_have_landed_do_not_land_again(chess: Chess) -> None:
    chess.committer.refusing.add("chess")
    waiting = chess.pending(0, chess.stage(numbers(1))).files
    chess.committer.heal()
    chess.landed(1, chess.stage(numbers(2)), waiting=waiting)
    chess.landed(1, chess.stage(numbers(2)), waiting=waiting)
    chess.landed(2, chess.stage(numbers(3)), waiting=waiting)
    assert chess.numbers == [1, 2, 3]


def test_pending_file_is_fitted_when_it_lands(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1)))
    chess.committer.refusing.add("chess")
    waiting = chess.pending(1, chess.stage(pa.table({"n": pa.array([2], pa.int32())}))).files
    chess.committer.heal()
    chess.landed(2, chess.stage(numbers(3)), waiting=waiting)
    assert chess.numbers == [1, 2, 3]


def test_commit_without_a_response_keeps_its_files(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1)))
    chess.committer.losing_response.add("chess")
    outcome = chess.landed(1, chess.stage(numbers(2)))
    assert outcome.version == 1
    assert chess.numbers == [1, 2]


def test_commit_without_a_response_for_long_is_not_repeated(chess: Chess) -> None:
    chess.landed(0, chess.stage(numbers(1)))
    chess.committer.unreadable.add("chess")
    waiting = chess.pending(1, file := chess.stage(numbers(2))).files
    chess.committer.heal()
    chess.committer.losing_response.add("chess")
    chess.landed(1, waiting=waiting)
    chess.committer.heal()
    chess.landed(2, chess.stage(numbers(3)), waiting=waiting)
    assert file.path in files_in(chess.lake, "chess")
    assert chess.numbers == [1, 2, 3]


def test_commit_that_conflicts_with_another_writer_is_retried(chess: Chess) -> None:
    tries: list[int] = []

    class OnceInTheWay(FailingCommitter):
        def commit(self, commit: object) -> int:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("another writer was faster")
            return super().commit(commit)  # type: ignore[arg-type]

    chess.committer = OnceInTheWay(chess.committer.inner)
    chess.landed(0, chess.stage(numbers(1)))
    assert chess.numbers == [1]


def test_partitioned_table_is_partitioned(tmp_path: Path) -> None:
    shape = TableShape(pa.schema([("route", pa.string()), ("n", pa.int64())]), ("route",))
    committer = DeltaRsCommitter(str(tmp_path))
    for version, route in enumerate(["chess", "go"]):
        file = staged(tmp_path, "bronze", numbers(version), partition={"route": route})
        mark = BatchMark(Mark("headgate:games", version))
        history = TableHistory()
        land_table(committer, str(tmp_path), "bronze", shape, [file], [], mark, history, Contract())
    assert rows_in(tmp_path, "bronze", "n") == [
        {"route": "chess", "n": 0},
        {"route": "go", "n": 1},
    ]
