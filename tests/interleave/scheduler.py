"""A scheduler that lets actors take turns, and changes turns where a test asks for it.

Each actor is a thread, but only one of them runs at a time. Which one goes on is decided by a
seed, so the same seed always leads to the same interleaving.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import Any
from unittest.mock import patch

_STUCK = 100.0
"""Seconds without a step after which a test fails: an actor waits for another one."""
_SHOWN = 400
"""Steps of a trace that are printed."""


class Abandoned(BaseException):
    """Ends an actor because another one has failed. No handler of `Exception` catches it."""


class InterleavingFailed(AssertionError):
    """A failure of an actor or of a check, with all steps that led to it."""


@dataclass
class _Actor:
    name: str
    run: Callable[[], None]
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    priority: float = 0.0
    is_done: bool = False
    next_step: str = "begins"
    """What the actor does as soon as it has its turn again."""


@dataclass(frozen=True)
class Step:
    actor: str
    what: str


class Scheduler:
    """Runs actors in turns until all have ended."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.steps: list[Step] = []
        self.before_switch: Callable[[str], None] = lambda actor: None
        """Called with the name of the running actor before each change of turns."""
        self._actors: list[_Actor] = []
        self._local = threading.local()
        self._ended = threading.Semaphore(0)
        self._failure: BaseException | None = None
        # Frequent changes find short races; rare ones find those that need long stretches.
        self._chance = random.choice((0.03, 0.1, 0.3, 1.0))
        self._by_priority = random.random() < 0.5

    @property
    def actor(self) -> str | None:
        """The name of the actor that this thread belongs to."""
        current: _Actor | None = getattr(self._local, "actor", None)
        return None if current is None else current.name

    def announced(self, prefix: str) -> bool:
        """Whether an actor waits for its turn to do a step of a kind."""
        return any(actor.next_step.startswith(prefix) for actor in self._actors)

    def run(self, actors: Mapping[str, Callable[[], None]]) -> None:
        """Run all actors; raise the first failure."""
        self._actors = [_Actor(name, run) for name, run in actors.items()]
        for actor in self._actors:
            actor.priority = self.random.random()
        threads = [
            threading.Thread(target=self._run, args=(actor,), name=actor.name, daemon=True)
            for actor in self._actors
        ]
        with _pools_run_inline(self), _sleep_is_a_step(self):
            for thread in threads:
                thread.start()
            self._next().turn.release()
            taken = -1
            while not self._ended.acquire(timeout=_STUCK):
                if taken == len(self.steps):
                    faulthandler.dump_traceback()
                    raise AssertionError(f"no step for {_STUCK} s\n{self.trace()}")
                taken = len(self.steps)
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise InterleavingFailed(f"{self._failure!r}\n{self.trace()}") from self._failure

    def step(self, what: str) -> None:
        """Announce the next step of the actor that calls, and maybe let others go first."""
        current: _Actor | None = getattr(self._local, "actor", None)
        if current is None or self._depth:
            return
        current.next_step = what
        self._check(current)
        following = self._next(current)
        if following is not current:
            following.turn.release()
            self._wait(current)
        current.next_step = ""
        self.steps.append(Step(current.name, what))

    def note(self, what: str) -> None:
        """Add to the trace without a change of turns."""
        self.steps.append(Step(self.actor or "", what))

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Let no other actor run in between."""
        self._local.depth = self._depth + 1
        try:
            yield
        finally:
            self._local.depth -= 1

    @property
    def _depth(self) -> int:
        """How many blocks without a change of turns the thread is in."""
        depth: int = getattr(self._local, "depth", 0)
        return depth

    def trace(self) -> str:
        """Return the steps, with equal ones of one actor in a row counted."""
        shown = self.steps[-_SHOWN:]
        lines = [f"({len(self.steps) - len(shown)} earlier steps)"] if self.steps[_SHOWN:] else []
        for step, same in groupby(shown):
            times = len(list(same))
            lines.append(f"{step.actor:>22}  {step.what}{f'  x{times}' if times > 1 else ''}")
        return "\n".join(lines)

    def _run(self, actor: _Actor) -> None:
        self._local.actor = actor
        try:
            self._wait(actor)
            actor.next_step = ""
            actor.run()
            self._check(actor)
        except Abandoned:
            pass
        except BaseException as failure:
            self._fail(failure)
        actor.is_done = True
        waiting = [other for other in self._actors if not other.is_done]
        if not waiting:
            self._ended.release()
        else:
            (waiting[0] if self._failure else self._next()).turn.release()

    def _check(self, actor: _Actor) -> None:
        """Run the checks. Code of the product must not handle a failure of them."""
        try:
            self.before_switch(actor.name)
        except BaseException as failure:
            self._fail(failure)
            raise Abandoned from failure

    def _fail(self, failure: BaseException) -> None:
        if self._failure is None:
            self.note(f"fails: {failure!r}")
            self._failure = failure

    def _wait(self, actor: _Actor) -> None:
        actor.turn.acquire()
        if self._failure is not None:
            raise Abandoned

    def _next(self, current: _Actor | None = None) -> _Actor:
        waiting = [actor for actor in self._actors if not actor.is_done]
        if current is not None and self.random.random() >= self._chance:
            return current if not self._by_priority else max(waiting, key=_priority)
        if not self._by_priority:
            return self.random.choice(waiting)
        if current is not None:
            # Whoever runs goes behind all others: they run to their end, or to their next change.
            current.priority = min(actor.priority for actor in waiting) - self.random.random()
        return max(waiting, key=_priority)


def _priority(actor: _Actor) -> float:
    return actor.priority


@contextmanager
def _pools_run_inline(scheduler: Scheduler) -> Iterator[None]:
    """Let pools of actors do their work at once: their threads would run beside the schedule."""
    submit = ThreadPoolExecutor.submit

    def submit_inline(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **named: Any
    ) -> Future[Any]:
        if scheduler.actor is None:
            return submit(self, function, *args, **named)
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future

    with patch.object(ThreadPoolExecutor, "submit", submit_inline):
        yield


@contextmanager
def _sleep_is_a_step(scheduler: Scheduler) -> Iterator[None]:
    """Let actors that wait for others give up their turn instead."""
    sleep = time.sleep

    def give_way(seconds: float) -> None:
        if scheduler.actor is None:
            sleep(seconds)
        else:
            scheduler.step("waits")

    with patch.object(time, "sleep", give_way):
        places = [
            (module, name)
            for module in [*sys.modules.values()]
            if getattr(module, "__name__", "").startswith("headgate.")
            for name, value in [*vars(module).items()]
            if value is sleep
        ]
        for module, name in places:
            setattr(module, name, give_way)
        try:
            yield
        finally:
            for module, name in places:
                setattr(module, name, sleep)
