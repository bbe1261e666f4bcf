from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from headgate.lab.pizza.kitchen import Breakdown, Ended, Kitchen
from headgate.lab.pizza.orders import Order, orders, typical_order
from headgate.lab.pizza.stores import DAY, HOUR, MINUTE, Store, make_store

NOON = 12 * HOUR
STORE = Store(1, orders_per_day=300, ovens=(2, 2), cooks=(2,) * 24, slowness=1.0)


def _order(number: int, at: int, items: int = 1, patience: int = DAY) -> Order:
    typical = typical_order(at)
    return replace(typical, number=number, baking=(8 * MINUTE,) * items, patience=patience)


def _steps(kitchen: Kitchen, coming: list[Order]) -> Iterator[Ended | None]:
    """Place the orders at their times; yield after everything that happens."""
    left = len(coming)
    coming = [*coming]
    while left:
        if coming and coming[0].at <= kitchen.next_time:
            kitchen.place(coming.pop(0))
            yield None
        else:
            ended = kitchen.step()
            left -= ended is not None
            yield ended


def _ended(kitchen: Kitchen, coming: list[Order]) -> dict[int, tuple[bool, float]]:
    """Whether each order was completed, and after how many minutes it ended."""
    return {
        ended.order.number: (ended.completed, (kitchen.now - ended.order.at) / MINUTE)
        for ended in _steps(kitchen, coming)
        if ended is not None
    }


def test_an_order_is_prepared_baked_and_packed() -> None:
    assert _ended(Kitchen(STORE, NOON), [_order(1, NOON)]) == {1: (True, 4.5 + 8 + 0.75)}


def test_a_slow_store_takes_longer_to_prepare() -> None:
    kitchen = Kitchen(replace(STORE, slowness=2.0), NOON)
    assert _ended(kitchen, [_order(1, NOON)]) == {1: (True, 9 + 8 + 0.75)}


def test_an_order_without_baking_needs_no_oven() -> None:
    kitchen = Kitchen(STORE, NOON)
    assert _ended(kitchen, [_order(1, NOON, items=0)]) == {1: (True, 4.5 + 0.75)}


def test_the_third_order_waits_for_one_of_two_cooks() -> None:
    ended = _ended(Kitchen(STORE, NOON), [_order(number, NOON) for number in (1, 2, 3)])
    assert ended[3] == (True, ended[1][1] + 4.5)


def test_items_wait_for_room_in_the_ovens() -> None:
    kitchen = Kitchen(STORE, NOON)
    assert _ended(kitchen, [_order(1, NOON, items=5)]) == {1: (True, 4.5 + 2 * 8 + 0.75)}


def test_more_cooks_come_at_their_hour() -> None:
    store = replace(STORE, cooks=(1,) * 13 + (3,) * 11)
    kitchen = Kitchen(store, NOON + HOUR - MINUTE)
    ended = _ended(kitchen, [_order(number, kitchen.now) for number in (1, 2)])
    assert (kitchen.cooks, ended[2]) == (3, (True, ended[1][1] + 1))


def test_people_who_wait_too_long_for_a_cook_cancel() -> None:
    kitchen = Kitchen(replace(STORE, cooks=(1,) * 24), NOON)
    coming = [_order(1, NOON, patience=MINUTE), _order(2, NOON, patience=MINUTE), _order(3, NOON)]
    ended = _ended(kitchen, coming)
    assert ended[1] == (True, 13.25), "a cook has begun it"
    assert ended[2] == (False, 1.0)
    assert ended[3] == (True, 13.25 + 4.5)


def test_cooks_do_not_begin_while_a_full_load_waits_for_the_ovens() -> None:
    kitchen = Kitchen(STORE, NOON)
    coming = [_order(number, NOON, items=4) for number in range(1, 6)]
    for _ in _steps(kitchen, coming):
        assert kitchen.preparing <= 2
    assert kitchen.now - NOON > 5 * 8 * MINUTE


def test_a_broken_oven_finishes_its_items_and_takes_no_more() -> None:
    whole, broken = Kitchen(STORE, NOON), Kitchen(STORE, NOON)
    broken.break_oven(Breakdown(NOON + 5 * MINUTE, NOON + 2 * HOUR))
    coming = [_order(1, NOON, items=8)]
    assert _ended(whole, coming)[1][1] == 4.5 + 2 * 8 + 0.75
    assert _ended(broken, coming)[1][1] == 4.5 + 3 * 8 + 0.75


def test_the_last_oven_never_breaks() -> None:
    kitchen = Kitchen(STORE, NOON)
    for _ in range(3):
        kitchen.break_oven(Breakdown(NOON, NOON + HOUR))
    assert _ended(kitchen, [_order(1, NOON, items=4)])[1][1] == 4.5 + 2 * 8 + 0.75
    while kitchen.next_time <= NOON + HOUR:
        kitchen.step()
    assert kitchen.capacity == sum(STORE.ovens)


def test_expected_wait_is_that_of_the_same_order_placed_now() -> None:
    kitchen = Kitchen(STORE, NOON)
    for number in range(1, 8):
        kitchen.place(_order(number, NOON, items=2))
    expected = kitchen.expected_wait()
    assert kitchen.waiting == 5
    assert expected == kitchen.expected_wait()
    kitchen.place(replace(typical_order(NOON), number=8))
    later = [_order(number, NOON + number * MINUTE) for number in range(9, 20)]
    waits = {
        ended.order.number: kitchen.now - ended.order.at
        for ended in _steps(kitchen, later)
        if ended is not None
    }
    assert waits[8] == expected


@given(seed=st.integers(0, 10_000), start=st.integers(0, 7 * 24), count=st.integers(1, 150))
def test_ovens_and_cooks_are_never_overloaded(seed: int, start: int, count: int) -> None:
    store = make_store(seed, 1)
    kitchen = Kitchen(store, start * HOUR)
    kitchen.break_oven(Breakdown(kitchen.now, kitchen.now + 100 * DAY))
    coming = list(islice(orders(seed, store, kitchen.now), count))
    ended = 0
    for each in _steps(kitchen, coming):
        ended += each is not None
        assert 0 <= kitchen.baking <= sum(store.ovens[1:])
        assert 0 <= kitchen.preparing <= max(store.cooks)
        assert 0 <= kitchen.waiting <= count
    assert ended == count
    assert (kitchen.baking, kitchen.preparing, kitchen.waiting) == (0, 0, 0)
