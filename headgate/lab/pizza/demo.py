"""The demo of the pizza chain: wait times that were stale, live beside the true ones.

It writes some days of orders, lands them, trains a model, and serves it while the orders go on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from headgate.config import PipelineConfig
from headgate.engine.events import Listener
from headgate.errors import LandingError
from headgate.lab.destination import TopicsDestination
from headgate.lab.pizza.records import RecordEncoder, WaitTime, stale_waits
from headgate.lab.pizza.simulate import EVENT_TIMES
from headgate.lab.pizza.world import BrokenOven, Event, PizzaPlan, World
from headgate.registry.open import open_registry
from headgate.serve.catalog import Catalog
from headgate.serve.push import Portion
from headgate.serve.query import Query
from headgate.sources.stop_signal import StopSignal

if TYPE_CHECKING:
    from headgate.models.train import Trained

PREDICTION = "wait_times"
BROKEN = 4
"""The store whose oven breaks down."""
_OPENS = timedelta(hours=18)
_BREAKS_AFTER = timedelta(minutes=10)
_BROKEN_FOR = timedelta(minutes=40)
_PORTION = 20_000
_TICK = 0.5
_HISTORY = 60
_TRIGGER_MILLISECONDS = 500


@dataclass(frozen=True)
class DemoPlan:
    """How much of the past there is, and how fast and how long the present goes on."""

    days: int = 14
    speed: float = 60.0
    """Seconds of the world in a second."""
    seconds: float = 90.0
    stores: int = 10
    seed: int = 0

    @property
    def live_from(self) -> datetime:
        """The evening after the last day of the past, when most people order."""
        return PizzaPlan().start + timedelta(days=self.days) + _OPENS

    @property
    def breakdown(self) -> BrokenOven:
        return BrokenOven(BROKEN, self.live_from + _BREAKS_AFTER, _BROKEN_FOR)

    @property
    def world(self) -> PizzaPlan:
        return PizzaPlan(self.stores, self.seed, days=None, broken_ovens=(self.breakdown,))


@dataclass(frozen=True)
class Live:
    """The newest prediction for a store, in minutes."""

    wait: float
    low: float | None
    high: float | None
    model: str


@dataclass(frozen=True)
class StoreWait:
    """The wait of a store at one time, in minutes: as once estimated, as predicted, in truth."""

    store: int
    stale: float
    live: Live | None
    true: float
    oven_broken: bool = False


@dataclass
class Waits:
    """The waits of all stores, and how far the estimates were from the truth so far."""

    at: datetime | None = None
    stores: Sequence[StoreWait] = ()
    history: deque[StoreWait] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    """Of the store whose oven breaks down."""
    compared: int = 0
    stale_error: float = 0.0
    """Sum of minutes."""
    live_error: float = 0.0

    def add(self, at: datetime, stores: Sequence[StoreWait]) -> None:
        self.at, self.stores = at, stores
        for one in stores:
            if one.store == BROKEN:
                self.history.append(one)
            if one.live is not None:
                self.compared += 1
                self.stale_error += abs(one.stale - one.true)
                self.live_error += abs(one.live.wait - one.true)

    @property
    def mean_errors(self) -> tuple[float, float] | None:
        """Mean absolute error of the stale and of the live waits, in minutes."""
        if not self.compared:
            return None
        return self.stale_error / self.compared, self.live_error / self.compared


class PizzaDemo:
    """One world, from its past to the end of the demo."""

    def __init__(
        self,
        pipeline: PipelineConfig,
        destination: TopicsDestination,
        plan: DemoPlan | None = None,
        listener: Listener = lambda _: None,
        show: Callable[[Waits], None] = lambda _: None,
    ) -> None:
        """Pass events of the pipeline to `listener`, and every new state of the waits to `show`."""
        self.waits = Waits()
        self._pipeline, self._destination = pipeline, destination
        self._plan = plan or DemoPlan()
        self._listener, self._show = listener, show
        self._encoder = RecordEncoder(open_registry(pipeline.schema_registry))
        self._world = World(self._plan.world)
        self._stale = stale_waits(self._plan.stores, self._plan.world.start)
        self._live: Mapping[int, Live] = {}
        self._stop = StopSignal()
        self._failure: BaseException | None = None

    def write_past(self) -> int:
        """Write the stale waits and the orders of the past; return the number of records."""
        self._send(self._stale)
        records = len(self._stale)
        past = self._world.events(self._plan.live_from)
        while events := list(islice(past, _PORTION)):
            self._send(events)
            records += len(events)
        return records

    def land_past(self) -> None:
        from headgate.engine.runner import RunOptions
        from headgate.run import run_pipeline

        run_pipeline(self._pipeline, RunOptions(once=True), self._listener)

    def train(self) -> Trained:
        from headgate.models.train import train

        return train(self._pipeline, PREDICTION)

    def serve(self) -> bool:
        """Land and predict while orders go on; return whether that was to the end."""
        from headgate.engine.runner import RunOptions
        from headgate.run import run_pipeline

        for task in (self._write_live, self._watch):
            threading.Thread(target=self._guarded, args=[task], daemon=True).start()
        options = RunOptions(trigger_milliseconds=_TRIGGER_MILLISECONDS)
        ended = run_pipeline(self._pipeline, options, self._listener, stop=self._stop)
        if self._failure is not None:
            raise self._failure
        return ended.stopped and self._is_over

    @property
    def _is_over(self) -> bool:
        at = self.waits.at
        return at is not None and at >= self._plan.live_from + self._length

    @property
    def _length(self) -> timedelta:
        """How long the demo lasts in its world."""
        return timedelta(seconds=self._plan.seconds * self._plan.speed)

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            self._failure = error
            self._stop.request()

    def _write_live(self) -> None:
        began = time.monotonic()
        passed = timedelta()
        while passed < self._length and not self._stop.requested:
            time.sleep(_TICK)
            passed = timedelta(seconds=(time.monotonic() - began) * self._plan.speed)
            now = self._plan.live_from + min(passed, self._length)
            self._send(list(self._world.events(now)))
            self.waits.add(now, self._compare(now))
            self._show(self.waits)
        self._stop.request()

    def _compare(self, now: datetime) -> list[StoreWait]:
        broken = self._plan.breakdown
        is_broken = broken.start <= now < broken.start + broken.lasts
        return [
            StoreWait(
                one.store,
                one.minutes,
                self._live.get(one.store),
                self._world.expected_wait(one.store),
                oven_broken=is_broken and one.store == broken.store,
            )
            for one in self._stale
        ]

    def _watch(self) -> None:
        """Follow the table of predictions, as any reader could."""
        catalog = Catalog(self._pipeline)
        text = f"SELECT store_id, prediction, low, high, model FROM {PREDICTION} EMIT CHANGES"
        while not self._stop.requested:
            with suppress(LandingError):  # there is no table before the first prediction
                for portion in Query(catalog, text).portions():
                    if isinstance(portion, Portion):
                        rows = [change.row for change in portion.changes()]
                        self._live = {**self._live, **{row["store_id"]: _live(row) for row in rows}}
                    elif self._stop.requested:
                        return
                    else:
                        time.sleep(_TICK / 2)
            time.sleep(_TICK)

    def _send(self, events: Iterable[Event | WaitTime]) -> None:
        records = self._encoder.encode((event, EVENT_TIMES) for event in events)
        if len(records):
            self._destination.send(records)
            self._destination.flush()


def _live(row: Mapping[str, Any]) -> Live:
    return Live(row["prediction"], row["low"], row["high"], row["model"])
