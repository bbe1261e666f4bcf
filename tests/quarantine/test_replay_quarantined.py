from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.config import Contract, Mode
from headgate.engine.events import BatchLanded, Event
from headgate.errors import LandingError
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import QuarantineEntry, SchemaEntry, TableEntry
from headgate.quarantine.filter import OffsetRange, QuarantineFilter
from headgate.quarantine.outcome import OutcomeNote
from headgate.quarantine.replay import PortionLimit, replay_quarantined
from headgate.registry.registry import SchemaText
from tests.engine.in_process import (
    PLAIN,
    UNKNOWN,
    WIDER,
    Pipeline,
    extent,
    record,
    records,
    staged_by,
)
from tests.lake.failing_committer import Crash, FailingCommitter
from tests.lake.recorded import all_rows
from tests.quarantine.replaying import Step, crash_at, in_quarantine, lander, learn, places, replay
from tests.readers import by_deltalake

BAD = b"\xff"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Offsets 0 and 3 have landed; 1, 2 and 5 have a schema that is unknown, 4 is rubbish."""
    made = Pipeline(tmp_path)
    values = [record("chess", 0), record("chess", 1, UNKNOWN), record("go", 2, UNKNOWN)]
    run = made.run()
    run.land(extent(0), staged_by(records(values)))
    values = [record("go", 3), BAD, record("chess", 5, UNKNOWN)]
    run.land(extent(1), staged_by(records(values, 3)))
    return made


@pytest.fixture
def failing(pipeline: Pipeline) -> FailingCommitter:
    pipeline.committer = failing = FailingCommitter(pipeline.committer)
    return failing


ALL_LANDED = Counter(
    {
        **{("silver_chess", offset): 1 for offset in (0, 1, 5)},
        **{("silver_go", offset): 1 for offset in (2, 3)},
        ("open", 4): 1,
    }
)


def test_records_land_once_their_schema_is_known(pipeline: Pipeline) -> None:
    learn(pipeline)
    done = replay(pipeline)
    assert (done.taken, done.landed) == (4, {"silver_chess": 2, "silver_go": 1})
    assert (done.remaining, done.waiting) == ({"envelope_undecodable": 1}, {})
    assert places(pipeline) == ALL_LANDED
    rows = by_deltalake(str(pipeline.lake / "silver_chess")).sort_by("_offset").to_pylist()
    assert [(row["n"], row["_schema_id"]) for row in rows] == [
        (0, PLAIN),
        (1, UNKNOWN),
        (5, UNKNOWN),
    ]


def test_quarantine_keeps_the_row_of_a_record_that_landed(pipeline: Pipeline) -> None:
    before = {row["_offset"]: row for row in pipeline.rows("quarantine")}
    learn(pipeline)
    replay(pipeline)
    after = {row["_offset"]: row for row in pipeline.rows("quarantine")}
    assert in_quarantine(pipeline) == {1: "replayed", 2: "replayed", 4: "open", 5: "replayed"}
    assert after[4] == before[4]
    changed = {name for name, value in after[1].items() if value != before[1][name]}
    assert changed == {"state", "settled_at"}


def test_replay_that_lands_nothing_does_not_change_the_quarantine(pipeline: Pipeline) -> None:
    before = DeltaTable(pipeline.lake / "quarantine").version()
    for _ in range(2):
        done = replay(pipeline)
        assert (done.taken, done.landed) == (4, {})
        assert done.remaining == {"schema_unknown": 3, "envelope_undecodable": 1}
    assert DeltaTable(pipeline.lake / "quarantine").version() == before


def test_record_that_stays_gets_its_new_reason_in_its_row(pipeline: Pipeline) -> None:
    old = {row["_offset"]: row for row in pipeline.rows("quarantine")}
    pipeline.schemas.register("event", SchemaText("PROTOBUF", "nonsense too"))
    assert replay(pipeline).remaining == {"schema_refused": 3, "envelope_undecodable": 1}
    new = {row["_offset"]: row for row in pipeline.rows("quarantine")}
    assert new[1]["reason"] == "schema_refused"
    changed = {name for name, value in new[1].items() if value != old[1][name]}
    assert changed == {"reason", "detail"}
    assert in_quarantine(pipeline) == dict.fromkeys((1, 2, 4, 5), "open")


def test_replay_takes_only_matching_records(pipeline: Pipeline) -> None:
    learn(pipeline)
    assert replay(pipeline, QuarantineFilter(reason="route_missing")).taken == 0
    assert replay(pipeline, QuarantineFilter(route="silver_go")).landed == {"silver_go": 1}
    wanted = QuarantineFilter(offsets=OffsetRange("games", 0, 2, 4))
    assert replay(pipeline, wanted).remaining == {"envelope_undecodable": 1}
    early = QuarantineFilter(until=datetime(2020, 1, 1, tzinfo=UTC))
    assert replay(pipeline, early).taken == 0
    assert in_quarantine(pipeline) == {1: "open", 2: "replayed", 4: "open", 5: "open"}


def test_replay_with_a_limit_takes_the_oldest(pipeline: Pipeline) -> None:
    learn(pipeline)
    assert replay(pipeline, limit=2).taken == 2
    assert in_quarantine(pipeline) == {1: "replayed", 2: "replayed", 4: "open", 5: "open"}


def test_many_records_are_taken_in_portions(pipeline: Pipeline) -> None:
    learn(pipeline)
    done = replay(pipeline, portion=PortionLimit(records=1))
    events = [event for event in pipeline.events if isinstance(event, BatchLanded)][2:]
    assert len(events) == done.taken == 4
    assert sum(event.rows for event in events) == 3
    assert [event.quarantined for event in events if event.quarantined] == [
        {"envelope_undecodable": 1}
    ]
    assert places(pipeline) == ALL_LANDED


def test_portions_are_bounded_by_bytes_too(pipeline: Pipeline) -> None:
    learn(pipeline)
    replay(pipeline, portion=PortionLimit(bytes=1))
    events = [event for event in pipeline.events if isinstance(event, BatchLanded)][2:]
    assert len(events) > 1
    assert places(pipeline) == ALL_LANDED


@pytest.mark.parametrize("records_at_a_time", [50_000, 2])
@pytest.mark.parametrize("step", Step)
def test_interrupted_replay_is_completed(
    pipeline: Pipeline, step: Step, records_at_a_time: int
) -> None:
    learn(pipeline)
    portion = PortionLimit(records_at_a_time)
    with crash_at(step), pytest.raises(Crash):
        replay(pipeline, portion=portion)
    done = replay(pipeline, portion=portion)
    begun = step not in (Step.BEFORE_OUTCOME_NOTE, Step.BEFORE_NOTE, Step.AFTER_LEDGER)
    assert done.completed == begun
    assert places(pipeline) == ALL_LANDED
    assert replay(pipeline).taken == 1


@pytest.mark.parametrize("table", ["silver_chess", "silver_go"])
@pytest.mark.parametrize("after", [False, True])
def test_replay_interrupted_between_two_tables_is_completed(
    pipeline: Pipeline, failing: FailingCommitter, table: str, after: bool
) -> None:
    learn(pipeline)
    (failing.crashing_after if after else failing.crashing_before).add(table)
    with pytest.raises(Crash):
        replay(pipeline)
    failing.heal()
    assert replay(pipeline).completed
    assert places(pipeline) == ALL_LANDED


def test_interrupted_replay_is_completed_whatever_the_next_filter(pipeline: Pipeline) -> None:
    learn(pipeline)
    with crash_at(Step.AFTER_NOTE), pytest.raises(Crash):
        replay(pipeline, QuarantineFilter(route="go"))
    done = replay(pipeline, QuarantineFilter(reason="route_missing"))
    assert (done.taken, done.landed, done.completed) == (1, {"silver_go": 1}, True)


def test_interrupted_replay_without_its_note_fails(pipeline: Pipeline) -> None:
    learn(pipeline)
    with crash_at(Step.AFTER_NOTE), pytest.raises(Crash):
        replay(pipeline)
    OutcomeNote(str(pipeline.lake), "games.replay").clear()
    with pytest.raises(LandingError) as caught:
        replay(pipeline)
    assert caught.value.code == "lake-unreadable"


def test_table_that_cannot_be_written_waits_for_the_next_replay(
    pipeline: Pipeline, failing: FailingCommitter
) -> None:
    learn(pipeline)
    failing.refusing.add("silver_go")
    done = replay(pipeline)
    assert (done.landed, done.waiting) == ({"silver_chess": 2}, {"silver_go": 1})
    done = replay(pipeline, QuarantineFilter(route="go"))
    assert (done.taken, done.landed, done.waiting) == (0, {}, {"silver_go": 1})
    failing.heal()
    done = replay(pipeline)
    assert (done.landed, done.waiting) == ({"silver_go": 1}, {})
    assert places(pipeline) == ALL_LANDED


def test_replay_creates_tables_that_exceeded_the_limit_before(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, max_tables=1)
    values = [record(route, n) for n, route in enumerate(["chess", "go", "shogi"])]
    pipeline.run().land(extent(0), staged_by(records(values)))
    assert sorted(in_quarantine(pipeline).values()) == ["open", "open"]
    assert replay(pipeline).remaining == {"too_many_tables": 2}
    pipeline.max_tables = 2
    assert replay(pipeline).remaining == {"too_many_tables": 1}
    pipeline.max_tables = 3
    assert replay(pipeline).remaining == {}
    assert sum(places(pipeline).values()) == 3
    assert sum(len(pipeline.rows(f"silver_{route}")) for route in ("chess", "go", "shogi")) == 3


def test_records_land_once_the_contract_allows_it(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, contract=Contract(columns=Mode.FREEZE))
    run = pipeline.run()
    run.land(extent(0), staged_by(records([record("chess", 0)])))
    run.land(extent(1), staged_by(records([record("chess", 1, WIDER)], 1)))
    assert replay(pipeline).remaining == {"contract_columns": 1}
    pipeline.contract = Contract()
    assert replay(pipeline).landed == {"silver_chess": 1}
    assert [row["name"] for row in pipeline.rows("silver_chess")] == [None, "x"]


def test_records_without_a_position_land_once_too(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    value, other = record("chess", 1, UNKNOWN), record("chess", 2, UNKNOWN)
    batch = records([value, value, other, None, None])
    for name in ("topic", "partition", "offset", "timestamp"):
        at = batch.schema.get_field_index(name)
        field = batch.schema.field(name)
        batch = batch.set_column(at, field, pa.nulls(batch.num_rows, field.type))
    pipeline.run().land(extent(0), staged_by(batch))
    learn(pipeline)
    done = replay(pipeline)
    assert (done.taken, done.remaining) == (5, {"null_value": 2})
    assert sorted(row["n"] for row in pipeline.rows("silver_chess")) == [1, 1, 2]
    states = Counter(row["state"] for row in pipeline.rows("quarantine"))
    assert states == {"replayed": 3, "open": 2}


def test_ledger_records_replays_apart_from_the_stream(pipeline: Pipeline) -> None:
    learn(pipeline)
    stream = all_rows(pipeline.ledger)
    replay(pipeline, QuarantineFilter(reason="schema_unknown"))
    assert all_rows(pipeline.ledger) == stream
    ledger = Ledger(str(pipeline.lake), "ledger", "games:replay").snapshot()
    [row] = ledger.entries(QuarantineEntry)
    assert row.entry == QuarantineEntry(
        "quarantine",
        rows=3,
        table_version=DeltaTable(pipeline.lake / "quarantine").version(),
        state="replayed",
        taken=3,
        remaining={},
        filter={"reason": "schema_unknown", "state": "open"},
    )
    events = {row.entry.table: row.entry.rows for row in ledger.entries(TableEntry)}
    assert events == {"silver_chess": 2, "silver_go": 1}


def test_repeated_replay_reports_no_table_as_new(
    pipeline: Pipeline, failing: FailingCommitter
) -> None:
    learn(pipeline)
    failing.crashing_after.add("silver_go")
    with pytest.raises(Crash):
        replay(pipeline)
    failing.heal()
    replay(pipeline)
    ledger = Ledger(str(pipeline.lake), "ledger", "games:replay").snapshot()
    assert {row.entry.change for row in ledger.entries(SchemaEntry)} == {"AddColumn"}


def test_stream_lands_batches_between_two_portions(pipeline: Pipeline) -> None:
    learn(pipeline)
    stream, landed = pipeline.run(), 6

    def land_more(event: Event) -> None:
        nonlocal landed
        if isinstance(event, BatchLanded):
            values = [record("chess", landed), BAD]
            stream.land(extent(landed // 2 - 1), staged_by(records(values, landed)))
            landed += 2

    settler = lander(pipeline)
    settler.listener = land_more
    done = replay_quarantined(settler, QuarantineFilter(), portion=PortionLimit(1))
    assert (done.taken, landed) == (4, 14)
    more = {("silver_chess", offset): 1 for offset in range(6, 14, 2)}
    bad = {("open", offset): 1 for offset in range(7, 14, 2)}
    assert places(pipeline) == ALL_LANDED + Counter(more) + Counter(bad)


def test_stream_and_replay_land_concurrently(pipeline: Pipeline) -> None:
    stream = pipeline.run()
    values = [record("chess", offset, UNKNOWN) for offset in range(6, 14)]
    stream.land(extent(2), staged_by(records(values, 6)))
    learn(pipeline)
    failures: list[BaseException] = []

    def land() -> None:
        try:
            for batch in range(3, 15):
                offset = 8 + batch * 2
                more = [record("chess", offset), BAD]
                stream.land(extent(batch), staged_by(records(more, offset)))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=land)
    thread.start()
    done = replay(pipeline, QuarantineFilter(reason="schema_unknown"), portion=PortionLimit(1))
    thread.join()
    assert (failures, done.waiting, done.remaining) == ([], {}, {})
    assert done.landed == {"silver_chess": 10, "silver_go": 1}
    found = places(pipeline)
    assert (set(found.values()), len(found)) == ({1}, 14 + 24)
    assert Counter(in_quarantine(pipeline).values()) == {"replayed": 11, "open": 13}
