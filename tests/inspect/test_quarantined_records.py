from __future__ import annotations

from pathlib import Path

import pytest

from headgate.engine.quarantine_table import QuarantineState
from headgate.errors import LandingError, UsageError
from headgate.inspect.quarantine import (
    Position,
    count_quarantined,
    find_quarantined,
    read_quarantined,
)
from headgate.inspect.status import read_status
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import drop_quarantine, replay_quarantine
from tests.inspect.quarantined_lake import RUBBISH, UNKNOWN, make_quarantined_lake
from tests.inspect.small_lake import SmallLake


def test_quarantined_records_come_newest_batch_first(lake: SmallLake) -> None:
    records, total = read_quarantined(lake.pipeline, limit=100)
    assert len(records) == total == sum(read_status(lake.pipeline).quarantined.values())
    batches = [each.batch for each in records]
    assert batches == sorted(batches, reverse=True)
    assert {0, 1} == set(batches)


def test_quarantined_records_are_limited_but_counted(lake: SmallLake) -> None:
    records, total = read_quarantined(lake.pipeline, limit=2)
    assert len(records) == 2 < total


def test_quarantined_records_by_reason(lake: SmallLake) -> None:
    for reason, count in read_status(lake.pipeline).quarantined.items():
        records, total = read_quarantined(lake.pipeline, QuarantineFilter(reason=reason), 100)
        assert total == count
        assert {each.reason for each in records} == {reason}


def test_quarantined_records_by_route_and_by_table(lake: SmallLake) -> None:
    all_records, _ = read_quarantined(lake.pipeline, limit=100)
    route = next(each.route for each in all_records if each.route and each.route.isalpha())
    by_route = read_quarantined(lake.pipeline, QuarantineFilter(route=route))
    by_table = read_quarantined(lake.pipeline, QuarantineFilter(route=f"silver_{route}"))
    assert by_route == by_table
    assert {each.route for each in by_route[0]} == {route}


def test_a_quarantined_record_is_found_by_its_position(lake: SmallLake) -> None:
    (first, *_), _ = read_quarantined(lake.pipeline, limit=1)
    assert first.position is not None
    assert find_quarantined(lake.pipeline, first.position) == [first]


def test_a_record_that_landed_is_not_in_quarantine(lake: SmallLake) -> None:
    with pytest.raises(LandingError) as caught:
        find_quarantined(lake.pipeline, Position("it's none", 0, 0))
    assert caught.value.code == "record-unknown"


def test_nothing_is_in_quarantine_before_the_first_run(tmp_path: Path) -> None:
    assert read_quarantined(SmallLake(tmp_path).pipeline) == ([], 0)


@pytest.mark.parametrize("text", ["games:0:12", "a.b-c:3:0"])
def test_a_position_reads_as_it_is_written(text: str) -> None:
    assert str(Position.parse(text)) == text


@pytest.mark.parametrize("text", ["", "games", "games:0", ":0:1", "games:x:1", "games:0:-1"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="topic:partition:offset"):
        Position.parse(text)


def test_records_that_were_settled_are_still_to_be_seen(tmp_path: Path) -> None:
    pipeline = make_quarantined_lake(tmp_path).pipeline
    replay_quarantine(pipeline, QuarantineFilter(reason="schema_unknown"))
    drop_quarantine(pipeline, QuarantineFilter())
    assert read_quarantined(pipeline) == ([], 0)
    (record, *_), replayed = read_quarantined(
        pipeline, QuarantineFilter(state=QuarantineState.REPLAYED)
    )
    assert replayed == UNKNOWN
    assert record.settled_at is not None
    assert record.position is not None
    assert find_quarantined(pipeline, record.position) == [record]
    _, dropped = read_quarantined(pipeline, QuarantineFilter(state=QuarantineState.DROPPED))
    assert dropped == RUBBISH
    counts = count_quarantined(pipeline)
    assert (counts.open, counts.replayed, counts.dropped) == ({}, UNKNOWN, RUBBISH)
