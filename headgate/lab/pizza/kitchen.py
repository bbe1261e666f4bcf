"""A kitchen: cooks prepare orders, ovens bake them, and people who wait too long cancel."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from random import Random

from headgate.lab.pizza.orders import Order, typical_order
from headgate.lab.pizza.stores import DAY, HOUR, SECOND, Store

_PACKING = 45 * SECOND


@dataclass(frozen=True)
class Breakdown:
    """A time in which one oven of a store cannot be filled."""

    start: int
    end: int


def next_breakdown(seed: int, store: int, days_between: float, start: int) -> Breakdown:
    """Return the first random breakdown of a store after `start`."""
    random = Random(f"{seed}/{store}/{start}/oven")
    begin = start + round(random.expovariate(1 / days_between) * DAY)
    return Breakdown(begin, begin + round(random.uniform(3, 8) * HOUR))


class _Kind(IntEnum):
    """What happens next in a kitchen."""

    SHIFT = 0
    OVEN_BREAKS = 1
    OVEN_WORKS = 2
    PREPARED = 3
    BAKED = 4
    PACKED = 5
    IMPATIENT = 6


@dataclass(slots=True)
class _Job:
    """An order in the kitchen."""

    order: Order
    started: bool = False
    cancelled: bool = False
    unbaked: int = 0
    """Items that are not baked yet."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An order that left the kitchen."""

    order: Order
    completed: bool
    """False if it was cancelled."""


@dataclass
class Kitchen:
    """The state of a kitchen at `now`; `step` moves it to the next thing that happens.

    A cook prepares an order alone, in the sequence in which orders came, and then puts it beside
    the ovens; a cook does not begin another while a full load is waiting there. The items of an
    order are baked when there is room. An order is completed when its last item is packed, and can
    be cancelled until a cook begins it.
    """

    store: Store
    now: int
    waiting: int = 0
    """Orders that no cook has begun."""
    preparing: int = 0
    """Orders that a cook is preparing."""
    baking: int = 0
    """Items in the ovens."""
    broken: int = 0
    """Ovens that do not work."""
    cooks: int = 0
    _agenda: list[tuple[int, int, _Kind, _Job | None]] = field(default_factory=list)
    _sequence: int = 0
    _queue: deque[_Job] = field(default_factory=deque)
    _unbaked: deque[tuple[_Job, int]] = field(default_factory=deque)
    """Prepared items and how long each has to bake."""

    def __post_init__(self) -> None:
        self.cooks = self.store.cooks[self.now % DAY // HOUR]
        self._plan(self.now // HOUR * HOUR + HOUR, _Kind.SHIFT)

    @property
    def next_time(self) -> int:
        """When the next thing happens."""
        return self._agenda[0][0]

    @property
    def capacity(self) -> int:
        """Items that fit into the ovens that work; the last oven always does."""
        working = self.store.ovens[min(self.broken, len(self.store.ovens) - 1) :]
        return sum(working)

    def break_oven(self, breakdown: Breakdown) -> None:
        """Plan a breakdown; what is in the oven is still finished."""
        self._plan(max(self.now, breakdown.start), _Kind.OVEN_BREAKS)
        self._plan(max(self.now, breakdown.end), _Kind.OVEN_WORKS)

    def place(self, order: Order) -> None:
        """Accept an order, at its time."""
        self.now = order.at
        job = _Job(order)
        self._queue.append(job)
        self.waiting += 1
        self._plan(order.at + order.patience, _Kind.IMPATIENT, job)
        self._work()

    def step(self) -> Ended | None:
        """Let the next thing happen; return the order that left the kitchen, if one did."""
        self.now, _, kind, job = heappop(self._agenda)
        ended = None
        if job is None:
            self._change(kind)
        elif kind is _Kind.PREPARED:
            self.preparing -= 1
            self._prepared(job)
        elif kind is _Kind.BAKED:
            self.baking -= 1
            job.unbaked -= 1
            if not job.unbaked:
                self._plan(self.now + _PACKING, _Kind.PACKED, job)
        elif kind is _Kind.PACKED:
            ended = Ended(job.order, completed=True)
        elif not job.started:
            job.cancelled = True
            self.waiting -= 1
            ended = Ended(job.order, completed=False)
        self._work()
        return ended

    def expected_wait(self) -> int:
        """Return the wait of an order of two pizzas placed now.

        A copy of the kitchen is simulated until that order is completed: later orders do not
        delay it.
        """
        unchanging = [self.store, *(job.order for *_, job in self._agenda if job is not None)]
        kitchen = deepcopy(self, {id(each): each for each in unchanging})
        order = typical_order(self.now)
        kitchen.place(order)
        while True:
            ended = kitchen.step()
            if ended is not None and ended.order is order:
                return kitchen.now - order.at

    def _plan(self, time: int, kind: _Kind, job: _Job | None = None) -> None:
        self._sequence += 1
        heappush(self._agenda, (time, self._sequence, kind, job))

    def _change(self, kind: _Kind) -> None:
        if kind is _Kind.SHIFT:
            self.cooks = self.store.cooks[self.now % DAY // HOUR]
            self._plan(self.now + HOUR, _Kind.SHIFT)
        elif kind is _Kind.OVEN_BREAKS:
            self.broken += 1
        else:
            self.broken -= 1

    def _prepared(self, job: _Job) -> None:
        job.unbaked = len(job.order.baking)
        if not job.unbaked:
            self._plan(self.now + _PACKING, _Kind.PACKED, job)
        self._unbaked.extend((job, time) for time in job.order.baking)

    def _work(self) -> None:
        """Fill the ovens, then give orders to the cooks who are free."""
        capacity = self.capacity
        while self._unbaked and self.baking < capacity:
            job, time = self._unbaked.popleft()
            self.baking += 1
            self._plan(self.now + time, _Kind.BAKED, job)
        while self.waiting and self.preparing < self.cooks and len(self._unbaked) < capacity:
            job = self._queue.popleft()
            if job.cancelled:
                continue
            job.started = True
            self.waiting -= 1
            self.preparing += 1
            time = round(job.order.preparation * self.store.slowness)
            self._plan(self.now + time, _Kind.PREPARED, job)
