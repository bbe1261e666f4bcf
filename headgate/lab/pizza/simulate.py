"""Write the records of the pizza chain: its past at once, what follows at the pace of a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from headgate.lab.destination import TopicsDestination
from headgate.lab.pizza.records import RecordEncoder, WaitTime, stale_waits
from headgate.lab.pizza.world import Cancelled, Completed, Event, Ordered, PizzaPlan, world
from headgate.registry.registry import SchemaRegistry

EVENT_TIMES = 2
"""The first version with event times."""
_PORTION = 20_000
_TICK = 0.5
"""Minimum seconds between two portions of live records."""


@dataclass(frozen=True)
class Pace:
    """The pace of live records: a clock, or a number of orders per second."""

    live_from: datetime
    """Everything before is written as fast as possible."""
    speed: float = 1.0
    """How much faster the clock of the world runs than a real one."""
    orders_per_second: float | None = None
    """Orders of all stores per real second, instead of `speed`: the clock runs faster at night."""
    seconds: float | None = None
    """How long to write live records, in real time; None for unlimited."""


@dataclass(frozen=True)
class Writing:
    """How to write the records of a world."""

    pace: Pace | None = None
    """None to write everything as fast as possible."""
    versions: tuple[int, ...] = (EVENT_TIMES,)
    """Schema versions, used in turn for equal parts of the past, or of the live records if the
    world has no past."""


@dataclass
class SimulatedPizza:
    """What has been written so far."""

    records: int = 0
    orders: int = 0
    completed: int = 0
    cancelled: int = 0
    minutes_waited: float = 0.0
    """By all completed orders together."""
    seconds: float = 0.0
    at: datetime | None = None
    """Time of the last event."""

    @property
    def mean_wait(self) -> float | None:
        return self.minutes_waited / self.completed if self.completed else None

    def add(self, event: Event | WaitTime) -> None:
        self.records += 1
        self.at = event.at
        match event:
            case Ordered():
                self.orders += 1
            case Completed():
                self.completed += 1
                self.minutes_waited += event.wait
            case Cancelled():
                self.cancelled += 1


def simulate_pizza(
    plan: PizzaPlan,
    registry: SchemaRegistry,
    destination: TopicsDestination,
    writing: Writing | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[SimulatedPizza]:
    """Write stale wait times, then the events of a world; yield the totals after each portion."""
    encoder = RecordEncoder(registry)
    written = SimulatedPizza()
    began = clock()
    for portion in _portions(plan, writing or Writing(), sleep, clock):
        destination.send(encoder.encode(portion))
        destination.flush()
        for event, _ in portion:
            written.add(event)
        written.seconds = clock() - began
        yield written


Portion = list[tuple[Event | WaitTime, int]]
"""Events and the schema versions to write them with."""


def _portions(
    plan: PizzaPlan, writing: Writing, sleep: Callable[[float], None], clock: Callable[[], float]
) -> Iterator[Portion]:
    """Yield what is due; sleep while nothing is."""
    portion: Portion = [
        (wait_time, writing.versions[0]) for wait_time in stale_waits(plan.stores, plan.start)
    ]
    live_began: float | None = None
    for event, due in _due(plan, writing.pace):
        if due is not None:
            if live_began is None:
                live_began = clock()
            if portion and due > clock() - live_began:
                yield portion
                portion = []
            ahead = due - (clock() - live_began)
            if ahead > 0:
                sleep(max(ahead, _TICK))
        portion.append((event, _version(plan, writing, event, due)))
        if len(portion) >= _PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def _due(plan: PizzaPlan, pace: Pace | None) -> Iterator[tuple[Event, float | None]]:
    """Yield events, and after how many seconds of live records each is due; None for the past."""
    orders = 0
    for event in world(plan):
        if pace is None or event.at < pace.live_from:
            yield event, None
            continue
        if pace.orders_per_second is None:
            due = (event.at - pace.live_from) / timedelta(seconds=pace.speed)
        else:
            orders += isinstance(event, Ordered)
            due = orders / pace.orders_per_second
        if pace.seconds is not None and due > pace.seconds:
            return
        yield event, due


def _version(plan: PizzaPlan, writing: Writing, event: Event, due: float | None) -> int:
    count = len(writing.versions)
    if count == 1:
        return writing.versions[0]
    return writing.versions[min(int(_share(plan, writing.pace, event, due) * count), count - 1)]


def _share(plan: PizzaPlan, pace: Pace | None, event: Event, due: float | None) -> float:
    """Return how far the simulation has come, from 0 to 1."""
    past_ends = plan.end if pace is None else pace.live_from
    if past_ends is not None and past_ends > plan.start:
        return (event.at - plan.start) / (past_ends - plan.start)
    if due is not None and pace is not None and pace.seconds is not None:
        return due / pace.seconds
    return 1.0
