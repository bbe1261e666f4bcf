from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.lab.destination import TOPIC_RECORDS, DeltaTopics
from headgate.lab.pizza.records import CANCELLED, COMPLETED, ORDERS, WAIT_TIMES
from headgate.lab.pizza.simulate import Pace, SimulatedPizza, Writing, simulate_pizza
from headgate.lab.pizza.world import Cancelled, Completed, Ordered, PizzaPlan, world
from headgate.registry.folder import FolderRegistry

NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)
PAST = PizzaPlan(stores=2, seed=3, start=NOON - timedelta(hours=6), days=0.25)
ENDLESS = PizzaPlan(stores=2, seed=3, start=NOON, days=None)


@dataclass
class Memory:
    """A destination that keeps what it gets, and when; its clock moves only by sleep."""

    sent: list[tuple[float, pa.Table]] = field(default_factory=list)
    time: float = 0.0

    def send(self, records: pa.Table) -> None:
        self.sent.append((self.time, records))

    def flush(self) -> None:
        """Do nothing."""

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def clock(self) -> float:
        return self.time

    @property
    def topics(self) -> Counter[str]:
        return Counter(topic for _, sent in self.sent for topic in sent["topic"].to_pylist())


def _simulate(
    folder: Path, memory: Memory, plan: PizzaPlan, writing: Writing | None = None
) -> SimulatedPizza:
    steps = simulate_pizza(
        plan, FolderRegistry(folder), memory, writing, memory.sleep, memory.clock
    )
    *_, last = steps
    return last


def test_the_past_is_written_without_pauses_after_the_stale_waits(tmp_path: Path) -> None:
    memory = Memory()
    last = _simulate(tmp_path, memory, PAST)
    events = list(world(PAST))
    kinds = Counter(type(event) for event in events)
    assert memory.time == 0
    assert memory.sent[0][1]["topic"].to_pylist()[:3] == [WAIT_TIMES, WAIT_TIMES, ORDERS]
    assert memory.topics == +Counter(
        {
            WAIT_TIMES: 2,
            ORDERS: kinds[Ordered],
            COMPLETED: kinds[Completed],
            CANCELLED: kinds[Cancelled],
        }
    )
    assert (last.orders, last.completed) == (kinds[Ordered], kinds[Completed])
    assert (last.records, last.cancelled) == (len(events) + 2, kinds[Cancelled])
    waits = [event.wait for event in events if isinstance(event, Completed)]
    assert last.mean_wait == pytest.approx(sum(waits) / len(waits))


def test_same_plan_gives_the_same_records(tmp_path: Path) -> None:
    first, second = Memory(), Memory()
    for number, memory in enumerate((first, second)):
        _simulate(tmp_path / str(number), memory, PAST)
    assert first.sent == second.sent


def test_live_records_keep_the_pace_of_the_clock(tmp_path: Path) -> None:
    memory = Memory()
    pace = Pace(NOON, speed=60, seconds=30)
    _simulate(tmp_path, memory, ENDLESS, Writing(pace))
    end = NOON + timedelta(minutes=30)
    events = takewhile(lambda event: event.at <= end, world(ENDLESS))
    expected = Counter(type(event) for event in events)
    assert memory.topics[ORDERS] == expected[Ordered]
    assert memory.topics[COMPLETED] == expected[Completed]
    times = [time for time, _ in memory.sent]
    assert all(late - early >= 0.5 for early, late in pairwise(times[1:]))
    assert 25 < times[-1] <= 31


def test_orders_per_second_are_kept_whatever_the_hour(tmp_path: Path) -> None:
    memory = Memory()
    pace = Pace(NOON, orders_per_second=50, seconds=20)
    last = _simulate(tmp_path, memory, ENDLESS, Writing(pace))
    assert last.orders == 1_000
    for time, sent in memory.sent[1:]:
        assert sent["topic"].to_pylist().count(ORDERS) <= 51, time


def test_the_past_comes_before_live_records(tmp_path: Path) -> None:
    memory = Memory()
    plan = PizzaPlan(stores=2, seed=3, start=NOON - timedelta(hours=6), days=None)
    last = _simulate(tmp_path, memory, plan, Writing(Pace(NOON, speed=60, seconds=10)))
    past = len(list(takewhile(lambda event: event.at < NOON, world(plan))))
    assert memory.sent[0][0] == 0
    assert len(memory.sent[0][1]) == past + 2
    assert last.at is not None
    assert NOON < last.at <= NOON + timedelta(minutes=10)


def test_live_records_go_on_without_an_end(tmp_path: Path) -> None:
    memory = Memory()
    steps = simulate_pizza(
        ENDLESS,
        FolderRegistry(tmp_path),
        memory,
        Writing(Pace(NOON, speed=600)),
        memory.sleep,
        memory.clock,
    )
    counts = [step.records for step in islice(steps, 50)]
    assert counts == sorted(set(counts))


def _versions(memory: Memory, topic: str) -> list[int]:
    """Ids of the schemas of a topic's records, each once, in order."""
    ids = [
        int.from_bytes(row["value"][1:5], "big")
        for _, sent in memory.sent
        for row in sent.to_pylist()
        if row["topic"] == topic
    ]
    return list(dict.fromkeys(ids))


def test_versions_follow_each_other_in_the_past(tmp_path: Path) -> None:
    memory = Memory()
    _simulate(tmp_path, memory, PAST, Writing(versions=(1, 2, 3)))
    assert len(_versions(memory, ORDERS)) == 3
    assert len(_versions(memory, COMPLETED)) == 2
    assert len(_versions(memory, WAIT_TIMES)) == 1


def test_versions_follow_each_other_in_live_records_without_a_past(tmp_path: Path) -> None:
    memory = Memory()
    pace = Pace(NOON, speed=600, seconds=30)
    _simulate(tmp_path, memory, ENDLESS, Writing(pace, (2, 3)))
    assert len(_versions(memory, ORDERS)) == 2


def _records(*topics: str) -> pa.Table:
    rows = [{"topic": topic, "key": b"1", "value": topic.encode()} for topic in topics]
    return pa.Table.from_pylist(rows, schema=TOPIC_RECORDS)


def test_delta_table_has_offsets_by_topic_that_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / "inbox")
    for topics in (["a", "b", "a"], ["b", "c"]):
        destination = DeltaTopics(path)
        destination.send(_records(*topics))
        destination.flush()
    rows = (
        DeltaTable(path)
        .to_pyarrow_table()
        .sort_by([("topic", "ascending"), ("offset", "ascending")])
    )
    places = list(zip(rows["topic"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert places == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]
    assert rows["value"].to_pylist() == [b"a", b"a", b"b", b"b", b"c"]
    assert set(rows["key"].to_pylist()) == {b"1"}
