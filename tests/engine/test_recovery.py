"""Batches that must not land: of another copy of the lake, of another run, or out of order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.engine.batch import BatchLander, Stage
from headgate.engine.events import FilesLost
from headgate.engine.pending import drop_pending, list_pending
from headgate.errors import CheckpointError, LandingError
from headgate.inspect.status import read_status
from headgate.sources.batch import Extent, continues
from headgate.testing import Crash, FailingCommitter
from headgate.testing.lake import stage_in_process
from tests.engine.games import GamesLake, extent, record, records
from tests.lake.staged import files_in


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    return GamesLake(tmp_path)


@pytest.fixture
def failing(lake: GamesLake) -> FailingCommitter:
    lake.committer = failing = FailingCommitter(lake.committer)
    return failing


def batch(number: int) -> tuple[Extent, Stage]:
    """A batch of one record each for chess and go, whose offsets tell the batch."""
    values = [record("chess", number), record("go", number)]
    return extent(number), stage_in_process(records(values, 10 * number))


def test_positions_continue_where_both_have_one() -> None:
    assert continues({"games": {"0": 3}}, {"games": {"0": 3, "1": 0}})
    assert not continues({"games": {"0": 3, "1": 5}}, {"games": {"0": 3, "1": 4}})
    assert continues(None, {"games": {"0": 3}})
    assert not continues({"version": 3}, {"version": 4})


@pytest.mark.parametrize(
    "later",
    [
        Extent(2, {"games": 2}, {"games": 3}),
        Extent(1, {"games": 2}, {"games": 3}),
        Extent(0, {"games": 0}, {"games": 9}),
    ],
    ids=["a batch is missing", "it starts later", "another batch of the same number"],
)
def test_batch_that_does_not_follow_the_ledger_never_lands(lake: GamesLake, later: Extent) -> None:
    lake.start().land(*batch(0))
    _, stage = batch(1)
    with pytest.raises(CheckpointError) as caught:
        lake.start().land(later, stage)
    assert caught.value.code == "batch-out-of-order"
    assert "--from-ledger" in str(caught.value.hint)
    assert lake.offsets()["silver_chess"] == [0]
    lake.start().land(*batch(1))
    assert lake.offsets()["silver_chess"] == [0, 10]


def test_lake_that_was_put_back_does_not_skip_what_it_had(lake: GamesLake, tmp_path: Path) -> None:
    lake.start().land(*batch(0))
    shutil.copytree(lake.path, tmp_path / "copy")
    lake.start().land(*batch(1))
    shutil.rmtree(lake.path)
    shutil.copytree(tmp_path / "copy", lake.path)
    with pytest.raises(CheckpointError) as caught:
        lake.start().land(*batch(2))
    assert caught.value.code == "batch-out-of-order"
    for number in (1, 2):
        lake.start().land(*batch(number))
    assert lake.offsets()["silver_chess"] == [0, 10, 20]


def test_run_that_was_replaced_commits_nothing(lake: GamesLake) -> None:
    old = lake.start()
    old.land(*batch(0))
    new = GamesLake(lake.folder).start()
    with pytest.raises(CheckpointError) as caught:
        old.land(*batch(1))
    assert caught.value.code == "run-replaced"
    assert lake.offsets()["silver_chess"] == [0]
    new.land(*batch(1))
    assert lake.offsets()["silver_chess"] == [0, 10]


def test_run_that_was_replaced_says_so_when_the_other_has_staged_other_records(
    lake: GamesLake,
) -> None:
    old = lake.start()
    old.land(*batch(0))
    new = GamesLake(lake.folder).start()
    new.land(Extent(1, {"games": 1}, {"games": 8}), batch(1)[1])
    with pytest.raises(CheckpointError) as caught:
        old.land(*batch(1))
    assert caught.value.code == "run-replaced"


def replace_late(lake: GamesLake, monkeypatch: pytest.MonkeyPatch) -> BatchLander:
    """Let a run commit its tables after another has taken over, and return the other."""
    old = lake.start()
    old.land(*batch(0))
    new = GamesLake(lake.folder).start()
    checks = iter([lambda: None])
    check = old.ledger.require_ownership
    monkeypatch.setattr(old.ledger, "require_ownership", lambda: next(checks, check)())
    with pytest.raises(CheckpointError, match="taken over"):
        old.land(*batch(1))
    return new


def test_rows_of_a_replaced_run_are_never_taken_for_those_of_another(
    lake: GamesLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = replace_late(lake, monkeypatch)
    assert lake.offsets()["silver_chess"] == [0, 10]
    other = stage_in_process(records([record("chess", 7)], 70))
    with pytest.raises(CheckpointError) as caught:
        new.land(Extent(1, {"games": 1}, {"games": 8}), other)
    assert caught.value.code == "checkpoint-foreign"
    new.note.clear()
    with pytest.raises(CheckpointError) as caught:
        new.land(Extent(1, {"games": 1}, {"games": 8}), other)
    assert caught.value.code == "table-ahead"
    assert "of run 1" in caught.value.message


def test_batch_that_a_replaced_run_has_staged_is_landed_once(
    lake: GamesLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = replace_late(lake, monkeypatch)
    new.land(*batch(1))
    new.land(*batch(2))
    assert lake.offsets() == {"silver_chess": [0, 10, 20], "silver_go": [1, 11, 21]}


def test_pending_files_survive_vacuum(lake: GamesLake, failing: FailingCommitter) -> None:
    lander = lake.start()
    lander.land(*batch(0))
    failing.refusing.add("silver_chess")
    lander.land(*batch(1))
    _vacuum(lake, "silver_chess")
    failing.heal()
    lander.land(*batch(2))
    assert lake.offsets()["silver_chess"] == [0, 10, 20]
    assert not list((lake.path / "_staged" / "pending").rglob("*.parquet"))


def test_pending_file_that_a_commit_has_added_after_all_stays(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    """All responses are lost, so a table looks pending that has its rows."""
    lander = lake.start()
    lander.land(*batch(0))
    failing.losing_response.add("silver_chess")
    failing.unreadable.add("nothing")
    state = failing.state

    def unreadable_once_written(table: str, app: str) -> object:
        if len(lake.offsets()["silver_chess"]) > 1 and table == "silver_chess":
            raise OSError("cannot be read")
        return state(table, app)

    failing.state = unreadable_once_written  # type: ignore[method-assign, assignment]
    lander.land(*batch(1))
    assert [one.file.table for one in lander.pending] == ["silver_chess"]
    failing.state = state  # type: ignore[method-assign]
    failing.heal()
    assert lake.offsets()["silver_chess"] == [0, 10]
    drop_pending(lake.pipeline, "silver_chess")
    lake.start().land(*batch(2))
    assert lake.offsets()["silver_chess"] == [0, 10, 20]


def test_files_that_are_gone_are_reported_and_the_rest_is_committed(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    lander = lake.start()
    lander.land(*batch(0))
    failing.refusing |= {"silver_chess", "silver_go"}
    lander.land(*batch(1))
    lander.land(*batch(2))
    first = next(one.file for one in lander.pending if one.version == 1)
    for path in lake.path.rglob(f"*{first.path}"):
        path.unlink()
    failing.heal()
    lake.start()
    [lost] = [event for event in lake.events if isinstance(event, FilesLost)]
    assert (lost.table, lost.rows, lost.paths) == ("silver_chess", 1, (first.path,))
    assert lake.offsets() == {"silver_chess": [0, 20], "silver_go": [1, 11, 21]}
    status = read_status(lake.pipeline)
    assert status.pending == ()
    assert [(one.table, one.rows, one.files) for one in status.lost] == [("silver_chess", 1, 1)]
    lake.start().land(*batch(3))
    assert len([event for event in lake.events if isinstance(event, FilesLost)]) == 1


def test_table_whose_files_are_all_gone_no_longer_waits(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    failing.refusing.add("silver_chess")
    lake.start().land(*batch(0))
    for path in lake.path.rglob("part-*.parquet"):
        if "silver_chess" in str(path):
            path.unlink()
    failing.heal()
    lake.start().land(*batch(1))
    assert lake.offsets() == {"silver_chess": [10], "silver_go": [1, 11]}
    assert read_status(lake.pipeline).pending == ()


def test_pending_file_can_be_dropped(lake: GamesLake, failing: FailingCommitter) -> None:
    lander = lake.start()
    failing.refusing |= {"silver_chess", "silver_go"}
    lander.land(*batch(0))
    lander.land(*batch(1))
    waiting = list_pending(lake.pipeline)
    assert [(one.table, one.batch, one.exists) for one in waiting] == [
        ("silver_chess", 0, True),
        ("silver_chess", 1, True),
        ("silver_go", 0, True),
        ("silver_go", 1, True),
    ]
    dropped = drop_pending(lake.pipeline, "silver_chess", waiting[0].file)
    assert dropped == [waiting[0]]
    drop_pending(lake.pipeline, "silver_go")
    failing.heal()
    lake.start().land(*batch(2))
    assert lake.offsets() == {"silver_chess": [10, 20], "silver_go": [21]}
    assert sum(one.rows for one in read_status(lake.pipeline).lost) == 3


def test_dropping_what_is_not_pending_is_refused(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    failing.refusing.add("silver_chess")
    lake.start().land(*batch(0))
    with pytest.raises(LandingError, match="silver_go") as caught:
        drop_pending(lake.pipeline, "silver_go")
    assert "silver_chess" in str(caught.value.hint)
    with pytest.raises(LandingError, match="no pending file"):
        drop_pending(lake.pipeline, "silver_chess", "other.parquet")


def test_files_of_a_batch_that_was_killed_are_deleted(
    lake: GamesLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.start().land(*batch(0))
    lander = lake.start()
    monkeypatch.setattr(lander.note, "write", _crash)
    for _ in range(2):
        with pytest.raises(Crash):
            lander.land(*batch(1))
    monkeypatch.undo()
    assert len(files_in(lake.path, "silver_chess")) == 3
    lander = lake.start()
    lander.after_failure = True
    lander.land(*batch(1))
    assert lake.offsets()["silver_chess"] == [0, 10]
    assert len(files_in(lake.path, "silver_chess")) == 2
    assert lander.after_failure is False


def test_staged_batch_whose_files_are_gone_is_staged_again(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    lake.start().land(*batch(0))
    failing.crashing_after.add("silver_chess")
    with pytest.raises(Crash):
        lake.start().land(*batch(1))
    failing.heal()
    for name in files_in(lake.path, "silver_go"):
        if name not in {Path(uri).name for uri in DeltaTable(lake.path / "silver_go").file_uris()}:
            (lake.path / "silver_go" / name).unlink()
    lander = lake.start()
    lander.after_failure = True
    lander.land(*batch(1))
    assert lake.offsets() == {"silver_chess": [0, 10], "silver_go": [1, 11]}
    assert not [event for event in lake.events if isinstance(event, FilesLost)]


def _crash(_: object) -> None:
    raise Crash("before the note")


def _vacuum(lake: GamesLake, table: str) -> None:
    DeltaTable(lake.path / table).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )
