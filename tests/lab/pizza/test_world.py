from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from statistics import mean

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lab.pizza.world import (
    BrokenOven,
    Cancelled,
    Completed,
    Event,
    Ordered,
    PizzaPlan,
    World,
    true_waits,
    world,
)

SATURDAY = datetime(2026, 1, 10, tzinfo=UTC)
DAY = PizzaPlan(stores=3, seed=1, start=SATURDAY, days=1, days_between_breakdowns=None)


def _of(events: list[Event], *stores: int) -> list[Event]:
    return [event for event in events if event.store in stores]


def test_same_plan_gives_the_same_events() -> None:
    assert list(world(DAY)) == list(world(DAY))


def test_other_seed_gives_other_events() -> None:
    assert list(world(DAY)) != list(world(replace(DAY, seed=2)))


def test_stores_do_not_depend_on_each_other() -> None:
    assert _of(list(world(DAY)), 2) == _of(list(world(replace(DAY, stores=2))), 2)


def test_a_world_without_an_end_begins_like_one_that_ends() -> None:
    events = list(world(DAY))
    assert list(islice(world(replace(DAY, days=None)), len(events))) == events


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    stores=st.integers(1, 3),
    hour=st.integers(0, 7 * 24),
    days=st.floats(0.05, 0.6),
    between=st.sampled_from([None, 0.1, 8.0]),
)
def test_orders_end_at_most_once_and_in_time(
    seed: int, stores: int, hour: int, days: float, between: float | None
) -> None:
    start = SATURDAY + timedelta(hours=hour)
    plan = PizzaPlan(stores, seed, start, days, days_between_breakdowns=between)
    placed: dict[tuple[int, int], datetime] = {}
    open_orders: set[tuple[int, int]] = set()
    numbers: dict[int, int] = defaultdict(int)
    last = start
    for event in world(plan):
        assert last <= event.at < start + timedelta(days=days)
        last = event.at
        key = event.store, event.number
        if isinstance(event, Ordered):
            numbers[event.store] += 1
            assert event.number == numbers[event.store]
            assert event.lines
            placed[key] = event.at
            open_orders.add(key)
        else:
            open_orders.remove(key)
            assert event.wait == (event.at - placed[key]) / timedelta(minutes=1)


def test_true_waits_are_those_of_the_completed_orders() -> None:
    waits = true_waits(DAY)
    completed = [event for event in world(DAY) if isinstance(event, Completed)]
    cancelled = {(each.store, each.number) for each in world(DAY) if isinstance(each, Cancelled)}
    assert waits == {(event.store, event.number): event.wait for event in completed}
    assert not cancelled & waits.keys()


def test_dinner_on_saturday_takes_longer_than_the_afternoon() -> None:
    by_hour = defaultdict(list)
    for event in world(DAY):
        if isinstance(event, Completed):
            by_hour[event.at.hour].append(event.wait)
    assert mean(by_hour[20]) > mean(by_hour[15]) + 5


def _with_broken_oven(store: int) -> PizzaPlan:
    dinner = BrokenOven(store, SATURDAY + timedelta(hours=16), timedelta(hours=6))
    return replace(DAY, broken_ovens=(dinner,))


def test_a_broken_oven_raises_the_waits_of_its_store_alone() -> None:
    whole, broken = list(world(DAY)), list(world(_with_broken_oven(2)))
    assert _of(broken, 1, 3) == _of(whole, 1, 3)
    dinner = [
        mean(
            event.wait
            for event in _of(events, 2)
            if isinstance(event, Completed) and 18 <= event.at.hour < 22
        )
        for events in (whole, broken)
    ]
    assert dinner[1] > dinner[0] + 8


def test_a_broken_oven_does_not_change_the_orders() -> None:
    whole, broken = (
        [event for event in world(plan) if isinstance(event, Ordered)]
        for plan in (DAY, _with_broken_oven(2))
    )
    assert whole == broken


def test_expected_wait_follows_the_state_of_the_kitchen() -> None:
    expected = {}
    for plan in (DAY, _with_broken_oven(2)):
        chain = World(plan)
        for event in chain.events():
            # Orders are the same in both worlds; what happens to them is not.
            if isinstance(event, Ordered) and event.at >= SATURDAY + timedelta(hours=20):
                break
        expected[plan] = [chain.expected_wait(store) for store in (1, 2, 3)]
    whole, broken = expected.values()
    assert broken[1] > whole[1] + 5
    assert (broken[0], broken[2]) == (whole[0], whole[2])


def test_asking_for_the_expected_wait_changes_nothing() -> None:
    chain = World(DAY)
    asked = []
    for place, event in enumerate(chain.events()):
        asked.append(event)
        if place % 50 == 0:
            chain.expected_wait(event.store)
    assert asked == list(world(DAY))
