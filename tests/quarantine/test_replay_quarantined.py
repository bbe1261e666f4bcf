from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
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
from headgate.testing import Crash, FailingCommitter
from headgate.testing.lake import stage_in_process
from tests.engine.games import PLAIN, UNKNOWN, WIDER, GamesLake, extent, record, records
from tests.lake.recorded import all_rows
from tests.quarantine.replaying import Step, crash_at, in_quarantine, lander, learn, places, replay
from tests.readers import by_deltalake
from tests.rounds import some

BAD = b"\xff"


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    """Offsets 0 and 3 have landed; 1, 2 and 5 have a schema that is unknown, 4 is rubbish."""
    made = GamesLake(tmp_path)
    values = [record("chess", 0), record("chess", 1, UNKNOWN), record("go", 2, UNKNOWN)]
    run = made.start()
    run.land(extent(0), stage_in_process(records(values)))
    values = [record("go", 3), BAD, record("chess", 5, UNKNOWN)]
    run.land(extent(1), stage_in_process(records(values, 3)))
    return made


@pytest.fixture
def failing(lake: GamesLake) -> FailingCommitter:
    lake.committer = failing = FailingCommitter(lake.committer)
    return failing


ALL_LANDED = Counter(
    {
        **{("silver_chess", offset): 1 for offset in (0, 1, 5)},
        **{("silver_go", offset): 1 for offset in (2, 3)},
        ("open", 4): 1,
    }
)


def test_records_land_once_their_schema_is_known(lake: GamesLake) -> None:
    learn(lake)
    done = replay(lake)
    assert (done.taken, done.landed) == (4, {"silver_chess": 2, "silver_go": 1})
    assert (done.remaining, done.waiting) == ({"envelope_undecodable": 1}, {})
    assert places(lake) == ALL_LANDED
    rows = by_deltalake(str(lake.path / "silver_chess")).sort_by("_offset").to_pylist()
    assert [(row["n"], row["_schema_id"]) for row in rows] == [
        (0, PLAIN),
        (1, UNKNOWN),
        (5, UNKNOWN),
    ]


def test_quarantine_keeps_the_row_of_a_record_that_landed(lake: GamesLake) -> None:
    before = {row["_offset"]: row for row in lake.rows("quarantine")}
    learn(lake)
    replay(lake)
    after = {row["_offset"]: row for row in lake.rows("quarantine")}
    assert in_quarantine(lake) == {1: "replayed", 2: "replayed", 4: "open", 5: "replayed"}
    assert after[4] == before[4]
    changed = {name for name, value in after[1].items() if value != before[1][name]}
    assert changed == {"state", "settled_at"}


def test_replay_that_lands_nothing_does_not_change_the_quarantine(lake: GamesLake) -> None:
    before = DeltaTable(lake.path / "quarantine").version()
    for _ in range(2):
        done = replay(lake)
        assert (done.taken, done.landed) == (4, {})
        assert done.remaining == {"schema_unknown": 3, "envelope_undecodable": 1}
    assert DeltaTable(lake.path / "quarantine").version() == before


def test_record_that_stays_gets_its_new_reason_in_its_row(lake: GamesLake) -> None:
    old = {row["_offset"]: row for row in lake.rows("quarantine")}
    lake.register("event", "nonsense too")
    assert replay(lake).remaining == {"schema_refused": 3, "envelope_undecodable": 1}
    new = {row["_offset"]: row for row in lake.rows("quarantine")}
    assert new[1]["reason"] == "schema_refused"
    changed = {name for name, value in new[1].items() if value != old[1][name]}
    assert changed == {"reason", "detail"}
    assert in_quarantine(lake) == dict.fromkeys((1, 2, 4, 5), "open")


def test_replay_takes_only_matching_records(lake: GamesLake) -> None:
    learn(lake)
    assert replay(lake, QuarantineFilter(reason="route_missing")).taken == 0
    assert replay(lake, QuarantineFilter(route="silver_go")).landed == {"silver_go": 1}
    wanted = QuarantineFilter(offsets=OffsetRange("games", 0, 2, 4))
    assert replay(lake, wanted).remaining == {"envelope_undecodable": 1}
    early = QuarantineFilter(until=datetime(2020, 1, 1, tzinfo=UTC))
    assert replay(lake, early).taken == 0
    assert in_quarantine(lake) == {1: "open", 2: "replayed", 4: "open", 5: "open"}


def test_replay_with_a_limit_takes_the_oldest(lake: GamesLake) -> None:
    learn(lake)
    assert replay(lake, limit=2).taken == 2
    assert in_quarantine(lake) == {1: "replayed", 2: "replayed", 4: "open", 5: "open"}


def test_many_records_are_taken_in_portions(lake: GamesLake) -> None:
    learn(lake)
    done = replay(lake, portion=PortionLimit(records=1))
    events = [event for event in lake.events if isinstance(event, BatchLanded)][2:]
    assert len(events) == done.taken == 4
    assert sum(event.rows for event in events) == 3
    assert [event.quarantined for event in events if event.quarantined] == [
        {"envelope_undecodable": 1}
    ]
    assert places(lake) == ALL_LANDED


def test_portions_are_bounded_by_bytes_too(lake: GamesLake) -> None:
    learn(lake)
    replay(lake, portion=PortionLimit(bytes=1))
    events = [event for event in lake.events if isinstance(event, BatchLanded)][2:]
    assert len(events) > 1
    assert places(lake) == ALL_LANDED


@pytest.mark.parametrize("records_at_a_time", some([50_000, 2], 2))
@pytest.mark.parametrize("step", Step)
def test_interrupted_replay_is_completed(
    lake: GamesLake, step: Step, records_at_a_time: int
) -> None:
    learn(lake)
    portion = PortionLimit(records_at_a_time)
    with crash_at(step), pytest.raises(Crash):
        replay(lake, portion=portion)
    done = replay(lake, portion=portion)
    begun = step not in (Step.BEFORE_OUTCOME_NOTE, Step.BEFORE_NOTE, Step.AFTER_LEDGER)
    assert done.completed == begun
    assert places(lake) == ALL_LANDED
    assert replay(lake).taken == 1


@pytest.mark.parametrize("table", ["silver_chess", "silver_go"])
@pytest.mark.parametrize("after", [False, True])
def test_replay_interrupted_between_two_tables_is_completed(
    lake: GamesLake, failing: FailingCommitter, table: str, after: bool
) -> None:
    learn(lake)
    (failing.crashing_after if after else failing.crashing_before).add(table)
    with pytest.raises(Crash):
        replay(lake)
    failing.heal()
    assert replay(lake).completed
    assert places(lake) == ALL_LANDED


def test_interrupted_replay_is_completed_whatever_the_next_filter(lake: GamesLake) -> None:
    learn(lake)
    with crash_at(Step.AFTER_NOTE), pytest.raises(Crash):
        replay(lake, QuarantineFilter(route="go"))
    done = replay(lake, QuarantineFilter(reason="route_missing"))
    assert (done.taken, done.landed, done.completed) == (1, {"silver_go": 1}, True)


def test_interrupted_replay_without_its_note_fails(lake: GamesLake) -> None:
    learn(lake)
    with crash_at(Step.AFTER_NOTE), pytest.raises(Crash):
        replay(lake)
    OutcomeNote(str(lake.path), "games.replay").clear()
    with pytest.raises(LandingError) as caught:
        replay(lake)
    assert caught.value.code == "lake-unreadable"


def test_table_that_cannot_be_written_waits_for_the_next_replay(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    learn(lake)
    failing.refusing.add("silver_go")
    done = replay(lake)
    assert (done.landed, done.waiting) == ({"silver_chess": 2}, {"silver_go": 1})
    done = replay(lake, QuarantineFilter(route="go"))
    assert (done.taken, done.landed, done.waiting) == (0, {}, {"silver_go": 1})
    failing.heal()
    done = replay(lake)
    assert (done.landed, done.waiting) == ({"silver_go": 1}, {})
    assert places(lake) == ALL_LANDED


def test_replay_creates_tables_that_exceeded_the_limit_before(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, max_tables=1)
    values = [record(route, n) for n, route in enumerate(["chess", "go", "shogi"])]
    lake.start().land(extent(0), stage_in_process(records(values)))
    assert sorted(in_quarantine(lake).values()) == ["open", "open"]
    assert replay(lake).remaining == {"too_many_tables": 2}
    lake.declare(max_tables=2)
    assert replay(lake).remaining == {"too_many_tables": 1}
    lake.declare(max_tables=3)
    assert replay(lake).remaining == {}
    assert sum(places(lake).values()) == 3
    assert sum(len(lake.rows(f"silver_{route}")) for route in ("chess", "go", "shogi")) == 3


def test_records_land_once_the_contract_allows_it(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, contract=Contract(columns=Mode.FREEZE))
    run = lake.start()
    run.land(extent(0), stage_in_process(records([record("chess", 0)])))
    run.land(extent(1), stage_in_process(records([record("chess", 1, WIDER)], 1)))
    assert replay(lake).remaining == {"contract_columns": 1}
    lake.declare(contract=Contract())
    assert replay(lake).landed == {"silver_chess": 1}
    assert [row["name"] for row in lake.rows("silver_chess")] == [None, "x"]


def test_records_without_a_position_land_once_too(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path)
    value, other = record("chess", 1, UNKNOWN), record("chess", 2, UNKNOWN)
    batch = records([value, value, other, None, None])
    for name in ("topic", "partition", "offset", "timestamp"):
        at = batch.schema.get_field_index(name)
        field = batch.schema.field(name)
        batch = batch.set_column(at, field, pa.nulls(batch.num_rows, field.type))
    lake.start().land(extent(0), stage_in_process(batch))
    learn(lake)
    done = replay(lake)
    assert (done.taken, done.remaining) == (5, {"null_value": 2})
    assert sorted(row["n"] for row in lake.rows("silver_chess")) == [1, 1, 2]
    states = Counter(row["state"] for row in lake.rows("quarantine"))
    assert states == {"replayed": 3, "open": 2}


def test_ledger_records_replays_apart_from_the_stream(lake: GamesLake) -> None:
    learn(lake)
    stream = all_rows(lake.ledger)
    replay(lake, QuarantineFilter(reason="schema_unknown"))
    assert all_rows(lake.ledger) == stream
    ledger = Ledger(str(lake.path), "ledger", "games:replay").snapshot()
    [row] = ledger.entries(QuarantineEntry)
    assert row.entry == QuarantineEntry(
        "quarantine",
        rows=3,
        table_version=DeltaTable(lake.path / "quarantine").version(),
        state="replayed",
        taken=3,
        remaining={},
        filter={"reason": "schema_unknown", "state": "open"},
    )
    events = {row.entry.table: row.entry.rows for row in ledger.entries(TableEntry)}
    assert events == {"silver_chess": 2, "silver_go": 1}


def test_repeated_replay_reports_no_table_as_new(
    lake: GamesLake, failing: FailingCommitter
) -> None:
    learn(lake)
    failing.crashing_after.add("silver_go")
    with pytest.raises(Crash):
        replay(lake)
    failing.heal()
    replay(lake)
    ledger = Ledger(str(lake.path), "ledger", "games:replay").snapshot()
    assert {row.entry.change for row in ledger.entries(SchemaEntry)} == {"AddColumn"}


def test_stream_lands_batches_between_two_portions(lake: GamesLake) -> None:
    learn(lake)
    stream, landed = lake.start(), 6

    def land_more(event: Event) -> None:
        nonlocal landed
        if isinstance(event, BatchLanded):
            values = [record("chess", landed), BAD]
            stream.land(extent(landed // 2 - 1), stage_in_process(records(values, landed)))
            landed += 2

    settler = lander(lake)
    settler.listener = land_more
    done = replay_quarantined(settler, QuarantineFilter(), portion=PortionLimit(1))
    assert (done.taken, landed) == (4, 14)
    more = {("silver_chess", offset): 1 for offset in range(6, 14, 2)}
    bad = {("open", offset): 1 for offset in range(7, 14, 2)}
    assert places(lake) == ALL_LANDED + Counter(more) + Counter(bad)


def test_stream_and_replay_land_concurrently(lake: GamesLake) -> None:
    stream = lake.start()
    values = [record("chess", offset, UNKNOWN) for offset in range(6, 14)]
    stream.land(extent(2), stage_in_process(records(values, 6)))
    learn(lake)
    failures: list[BaseException] = []

    def land() -> None:
        try:
            for batch in range(3, 15):
                offset = 8 + batch * 2
                more = [record("chess", offset), BAD]
                stream.land(extent(batch), stage_in_process(records(more, offset)))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=land)
    thread.start()
    done = replay(lake, QuarantineFilter(reason="schema_unknown"), portion=PortionLimit(1))
    thread.join()
    assert (failures, done.waiting, done.remaining) == ([], {}, {})
    assert done.landed == {"silver_chess": 10, "silver_go": 1}
    found = places(lake)
    assert (set(found.values()), len(found)) == ({1}, 14 + 24)
    assert Counter(in_quarantine(lake).values()) == {"replayed": 11, "open": 13}


def test_stream_goes_on_while_a_replay_forgets_its_schemas(lake: GamesLake) -> None:
    plan = lake.plan

    def batches() -> Iterator[pa.RecordBatch]:
        yield records([record("chess", 1)], 6)
        plan.forget()

    staged = [row for batch in plan.stage(batches()) for row in batch.to_pylist()]
    assert staged
