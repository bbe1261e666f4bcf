"""The world of the pizza chain: what happens in all stores, in order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heapify, heapreplace

from headgate.lab.pizza.kitchen import Breakdown, Kitchen, next_breakdown
from headgate.lab.pizza.orders import OrderLine, orders
from headgate.lab.pizza.stores import MINUTE, make_store

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class BrokenOven:
    """An oven of a store that breaks down at a given time."""

    store: int
    start: datetime
    lasts: timedelta


@dataclass(frozen=True)
class PizzaPlan:
    """A world; the same plan gives the same events."""

    stores: int = 10
    seed: int = 0
    start: datetime = datetime(2026, 1, 5, tzinfo=UTC)
    """The kitchens are empty then."""
    days: float | None = 7
    """Length; None for a world without an end."""
    broken_ovens: tuple[BrokenOven, ...] = ()
    days_between_breakdowns: float | None = 8
    """Mean time between other breakdowns of a store; None for none."""

    @property
    def end(self) -> datetime | None:
        return None if self.days is None else self.start + timedelta(days=self.days)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Somebody ordered."""

    store: int
    number: int
    """Orders are numbered by store, from 1."""
    at: datetime
    lines: tuple[OrderLine, ...]
    coupon: int
    """0 for none."""
    channel: str


@dataclass(frozen=True, slots=True)
class Completed:
    """An order is ready to be picked up."""

    store: int
    number: int
    at: datetime
    wait: float
    """Minutes since it was placed."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody waited too long, or thought better of it."""

    store: int
    number: int
    at: datetime
    wait: float
    """Minutes since it was placed."""


Event = Ordered | Completed | Cancelled


class World:
    """All stores; their state is that of the last event yielded."""

    def __init__(self, plan: PizzaPlan) -> None:
        self.plan = plan
        self._stores = [_OpenStore(plan, number) for number in range(1, plan.stores + 1)]

    def events(self, until: datetime | None = None) -> Iterator[Event]:
        """Yield what happens, in order of time; orders open at the end have no second event.

        After `until`, another call continues.
        """
        ends = [_milliseconds(each) for each in (self.plan.end, until) if each is not None]
        end = min(ends, default=None)
        agenda = [(store.next_time, store.number) for store in self._stores]
        heapify(agenda)
        while True:
            time, number = agenda[0]
            if end is not None and time >= end:
                return
            store = self._stores[number - 1]
            event = store.step()
            heapreplace(agenda, (store.next_time, number))
            if event is not None:
                yield event

    def waiting(self, store: int) -> int:
        """Return the number of orders of a store that no cook has begun."""
        return self._stores[store - 1].kitchen.waiting

    def expected_wait(self, store: int) -> float:
        """Return the minutes that an order of two pizzas would take if it were placed now.

        The kitchen is copied and simulated until that order is completed.
        """
        return self._stores[store - 1].kitchen.expected_wait() / MINUTE


def world(plan: PizzaPlan) -> Iterator[Event]:
    """Yield what happens in all stores, in order of time."""
    return World(plan).events()


def true_waits(plan: PizzaPlan) -> dict[tuple[int, int], float]:
    """Return the minutes from order to completion, by store and order number.

    Cancelled orders have none, nor do those that are open at the end.
    """
    return {
        (event.store, event.number): event.wait
        for event in world(plan)
        if isinstance(event, Completed)
    }


class _OpenStore:
    """A store with its next order and its next breakdown."""

    def __init__(self, plan: PizzaPlan, number: int) -> None:
        start = _milliseconds(plan.start)
        store = make_store(plan.seed, number)
        self.number = number
        self.kitchen = Kitchen(store, start)
        self._orders = orders(plan.seed, store, start)
        self._order = next(self._orders)
        for broken in plan.broken_ovens:
            if broken.store == number:
                self.kitchen.break_oven(_breakdown(broken))
        self._seed = plan.seed
        self._days_between = plan.days_between_breakdowns
        self._breakdown: Breakdown | None = None
        self._plan_breakdown(start)

    @property
    def next_time(self) -> int:
        return min(self._order.at, self.kitchen.next_time)

    def step(self) -> Event | None:
        """Let the next thing happen."""
        if self._order.at <= self.kitchen.next_time:
            order, self._order = self._order, next(self._orders)
            self.kitchen.place(order)
            return Ordered(
                self.number,
                order.number,
                _datetime(order.at),
                order.lines,
                order.coupon,
                order.channel,
            )
        ended = self.kitchen.step()
        if self._breakdown is not None and self.kitchen.now >= self._breakdown.start:
            self._plan_breakdown(self._breakdown.end)
        if ended is None:
            return None
        kind = Completed if ended.completed else Cancelled
        wait = (self.kitchen.now - ended.order.at) / MINUTE
        return kind(self.number, ended.order.number, _datetime(self.kitchen.now), wait)

    def _plan_breakdown(self, after: int) -> None:
        if self._days_between is not None:
            self._breakdown = next_breakdown(self._seed, self.number, self._days_between, after)
            self.kitchen.break_oven(self._breakdown)


def _breakdown(broken: BrokenOven) -> Breakdown:
    return Breakdown(_milliseconds(broken.start), _milliseconds(broken.start + broken.lasts))


def _milliseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND


def _datetime(time: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time)
