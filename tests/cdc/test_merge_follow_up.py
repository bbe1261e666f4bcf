"""Merges that fail, and are tried again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.cdc import merge as merge_module
from headgate.cdc.merge import MergeFollowUp
from headgate.cdc.plan import ChangePlan
from headgate.engine.events import Event, MergeFailed, TableRebuilt
from headgate.lab.shop.datastream import write_changes
from headgate.lake.commit import Commit
from headgate.lake.ledger_entries import MergeEntry
from headgate.lake.tables import CommitConflict
from headgate.run import batch_plan
from headgate.testing import FailingCommitter
from tests.cdc.change_lake import ChangeLake
from tests.cdc.test_redelivered import SEAT


@dataclass
class OvertakenCommitter(FailingCommitter):
    """Loses against another writer for a number of times."""

    overtaken: int = 0
    tries: list[str] = field(default_factory=list)

    def commit(self, commit: Commit) -> int:
        self.tries.append(commit.table)
        if len(self.tries) <= self.overtaken:
            raise CommitConflict("another commit was first")
        return super().commit(commit)


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    lake = ChangeLake(tmp_path, merges=False)
    lake.land_files(write_changes([SEAT], tmp_path / "files"))
    return lake


def follow_up(lake: ChangeLake, committer: FailingCommitter, events: list[Event]) -> MergeFollowUp:
    plan = batch_plan(lake.pipeline)
    assert isinstance(plan, ChangePlan)
    return MergeFollowUp.of(None, committer, lake.pipeline, plan, "app", events.append)


def test_failed_merge_is_tried_again_though_its_log_has_not_changed(lake: ChangeLake) -> None:
    events: list[Event] = []
    failing = FailingCommitter(lake.committer, refusing={"theatre_seats"})
    follows = follow_up(lake, failing, events)
    (failed,) = follows.follow((), 1).entries
    assert isinstance(failed, MergeEntry)
    assert (failed.table, failed.table_version) == ("theatre_seats", None)
    assert "cannot be written" in str(failed.error)
    assert not follows.follow((), 2).entries, "the same error is recorded once"
    assert [type(event) for event in events] == [MergeFailed, MergeFailed]
    failing.heal()
    (entry,) = follows.follow((), 3).entries
    assert isinstance(entry, MergeEntry)
    assert entry.table == "theatre_seats"
    assert [row["id"] for row in lake.rows("theatre_seats")] == [1]
    assert not follows.follow((), 4).entries


def test_merge_that_is_overtaken_starts_again(
    lake: ChangeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(merge_module, "sleep", waits.append)
    events: list[Event] = []
    overtaken = OvertakenCommitter(lake.committer, overtaken=3)
    assert follow_up(lake, overtaken, events).follow((), 1).entries
    assert len(overtaken.tries) == 4
    assert waits == sorted(waits)
    assert not [event for event in events if isinstance(event, MergeFailed)]


def test_merge_of_a_killed_run_is_recorded_and_followed_by_the_next(lake: ChangeLake) -> None:
    """It was killed after the merge: neither the ledger nor derived tables have it."""
    committer = FailingCommitter(lake.committer)
    assert follow_up(lake, committer, []).follow((), 1).entries
    followed = follow_up(lake, committer, []).follow((), 1)
    (entry,) = followed.entries
    assert isinstance(entry, MergeEntry)
    assert (entry.table, entry.rows, entry.log_version) == ("theatre_seats", 0, 0)
    assert [one.table for one in followed.tables] == ["theatre_seats"]
    lake.ledger.add(0, followed.entries)
    assert not follow_up(lake, committer, []).follow((), 2).entries


def merge_again(lake: ChangeLake, follows: MergeFollowUp | None = None) -> list[TableRebuilt]:
    """Merge in a run that has all of the ledger; return what was rebuilt."""
    events: list[Event] = []
    follows = follows or follow_up(lake, FailingCommitter(lake.committer), events)
    follows.listener = events.append
    follows.behind |= follows.plan.known
    lake.ledger.add(0, follows.follow((), 1).entries)
    return [event for event in events if isinstance(event, TableRebuilt)]


@pytest.mark.parametrize("is_same_run", [True, False])
def test_table_that_others_change_is_rebuilt_and_reported(
    lake: ChangeLake, is_same_run: bool
) -> None:
    follows = follow_up(lake, FailingCommitter(lake.committer), [])
    assert not merge_again(lake, follows)
    merged = Path(lake.pipeline.lake, "theatre_seats")
    DeltaTable(merged).delete()
    (rebuilt,) = merge_again(lake, follows if is_same_run else None)
    assert rebuilt.notice == ("theatre_seats", "rebuilt: another writer has changed its rows")
    assert [row["id"] for row in lake.rows("theatre_seats")] == [1]
    assert not merge_again(lake)
    DeltaTable(merged).optimize.compact()
    assert not merge_again(lake)


@pytest.mark.parametrize("is_same_run", [True, False])
def test_log_that_is_created_again_is_merged_from_its_start(
    lake: ChangeLake, is_same_run: bool
) -> None:
    follows = follow_up(lake, FailingCommitter(lake.committer), [])
    assert not merge_again(lake, follows)
    log = Path(lake.pipeline.lake, "log_theatre_seats")
    rows = DeltaTable(log).to_pyarrow_table()
    shutil.rmtree(log)
    other = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array([2], pa.int64()))
    write_deltalake(log, other)
    (rebuilt,) = merge_again(lake, follows if is_same_run else None)
    assert rebuilt.table == "theatre_seats"
    assert [row["id"] for row in lake.rows("theatre_seats")] == [2]
    assert not merge_again(lake)
