"""Follow-ups run behind the batches: none is skipped, and those that wait are combined."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import ClassVar

import pytest

from headgate.engine import follow_up
from headgate.engine.follow_up import Followed, FollowedUpTo, Follower, TableChanged
from headgate.lake.ledger_entries import GoldEntry
from headgate.lake.staged import StagedFile

CHESS, GO = TableChanged("silver_chess"), TableChanged("silver_go")


class FollowUp:
    """Waits in each call until it may go on."""

    while_idle: ClassVar = False
    of_all_tables: ClassVar = False

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], int | None]] = []
        self.begun, self.may_go_on = Event(), Event()
        self.error: Exception | None = None

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        self.calls.append(([one.table for one in changed], batch))
        self.begun.set()
        assert self.may_go_on.wait(10)
        if self.error:
            raise self.error
        entries = [GoldEntry(f"gold_{one.table}", 1, len(self.calls)) for one in changed]
        return Followed(entries, [TableChanged(f"gold_{one.table}") for one in changed])


class WhileIdle(FollowUp):
    while_idle: ClassVar = True


class OfAllTables(FollowUp):
    of_all_tables: ClassVar = True


def test_batches_that_land_meanwhile_are_followed_together() -> None:
    slow = FollowUp()
    with Follower([slow]) as follower:
        follower.follow([CHESS], 7, batch=7)
        assert slow.begun.wait(10)
        for version, table in ((8, GO), (9, CHESS), (10, GO)):
            follower.follow([table], version, batch=version)
        assert follower.is_busy
        assert follower.finished() == FollowedUpTo([], None)
        slow.may_go_on.set()
        done = follower.wait()
    assert slow.calls == [(["silver_chess"], 7), (["silver_go", "silver_chess"], 10)]
    assert done.version == 10
    assert [entry.kind for entry in done.entries] == ["gold"] * 3
    assert not follower.is_busy


def test_what_waits_does_not_grow_with_the_batches() -> None:
    slow = FollowUp()
    file = StagedFile("silver_chess", "part.parquet", 1, 1, "{}", b"")
    with Follower([slow]) as follower:
        follower.follow([GO], 0, batch=0)
        assert slow.begun.wait(10)
        for version in range(1, 500):
            follower.follow(
                [TableChanged("silver_chess", files=(file,), version=version)], version, version
            )
        waiting = follower._waiting
        assert waiting is not None
        assert waiting.tables == {"silver_chess": TableChanged("silver_chess", version=499)}
        assert len(follower._under_way) == 2
        slow.may_go_on.set()
        assert follower.wait().version == 499
    assert [batch for _, batch in slow.calls] == [0, 499]


def test_follow_ups_rest_while_batches_land_but_not_when_they_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow_up, "_MAX_REST", 600.0)
    monkeypatch.setattr(
        follow_up, "monotonic", iter((0.0, 0.0, 600.0, 600.0, 601.0, 601.0)).__next__
    )
    quick = FollowUp()
    quick.may_go_on.set()
    with Follower([quick]) as follower:
        follower.follow([CHESS], 0, batch=0)
        assert quick.begun.wait(10)
        quick.begun.clear()
        follower.follow([GO], 1, batch=1)
        assert not quick.begun.wait(0.1)
        assert follower.wait().version == 1
    assert [tables for tables, _ in quick.calls] == [["silver_chess"], ["silver_go"]]


def test_each_follow_up_gets_the_tables_of_the_one_before() -> None:
    first, second = FollowUp(), FollowUp()
    first.may_go_on.set()
    second.may_go_on.set()
    with Follower([first, second]) as follower:
        follower.follow([CHESS], 0)
        follower.wait()
    assert second.calls == [(["gold_silver_chess"], None)]


def test_follow_up_of_all_tables_gets_landed_and_written_ones() -> None:
    first, last = FollowUp(), OfAllTables()
    first.may_go_on.set()
    last.may_go_on.set()
    own = TableChanged("quarantine", is_own=True)
    with Follower([first, last]) as follower:
        follower.follow([CHESS, own], 0)
        follower.wait()
    assert first.calls == [(["silver_chess"], None)]
    assert last.calls == [(["silver_chess", "quarantine", "gold_silver_chess"], None)]


def test_error_is_raised_where_results_are_taken() -> None:
    broken = FollowUp()
    broken.error = OSError("the disk is full")
    broken.may_go_on.set()
    with Follower([broken]) as follower:
        follower.follow([CHESS], 0, batch=0)
        with pytest.raises(OSError, match="the disk is full"):
            follower.wait()


def test_only_some_follow_ups_are_called_while_idle() -> None:
    eager, other = WhileIdle(), FollowUp()
    eager.may_go_on.set()
    with Follower([other, eager]) as follower:
        follower.follow_while_idle()
        assert follower.wait().version is None
    assert (eager.calls, other.calls) == ([([], None)], [])


def test_nothing_is_recorded_without_follow_ups() -> None:
    with Follower(()) as follower:
        follower.follow([CHESS], 3, batch=3)
        assert follower.wait() == FollowedUpTo([], None)
