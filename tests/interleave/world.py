"""A world: a lake, the actors that share it, and what is true once they have ended."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import ClassVar

from headgate.errors import HeadgateError
from headgate.lake.tables import TableError
from tests.interleave.scheduler import InterleavingFailed, Scheduler
from tests.interleave.seams import interruptible
from tests.interleave.watched import Operation, WatchedLake

Run = Callable[[], None]
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory: worlds write many small files."""


class World(ABC):
    """Actors over one lake, chosen by a seed."""

    name: ClassVar[str]
    hazards: ClassVar[tuple[str, ...]]
    """What worlds may be about; those that are avoided are left out."""

    def __init__(self, lake: Path, random: Random, focus: str | None) -> None:
        self.random = random
        self.focus = focus
        """The hazard that this world is about, if any."""
        self.lake = WatchedLake(lake)
        self.scheduler = Scheduler(random)
        self.scheduler.before_switch = self.lake.observe
        self.scheduler.note(f"world: {self.name}, {focus or 'without a hazard'}")

    @abstractmethod
    def prepare(self) -> None:
        """Make the tables that are there before any actor begins."""

    @abstractmethod
    def actors(self) -> Mapping[str, Run]:
        """Return the actors by name."""

    def finish(self) -> None:
        """Do what is left once all actors have ended."""
        self.lake.observe("")

    def check(self) -> None:
        """Check what must be true at the end."""
        self.lake.check_all()

    @contextmanager
    def operation(self, operation: Operation) -> Iterator[None]:
        """Do something that may end in a clear error, but in no other."""
        actor = self.scheduler.actor or ""
        self.scheduler.note(f"begins: {operation.name}")
        drops = self.lake.drops
        with self.lake.operation(actor, operation):
            try:
                yield
            except (TableError, HeadgateError) as error:
                self.scheduler.note(f"ends with {str(error)[:90]}")
            except FileNotFoundError:
                if drops == self.lake.drops:
                    raise

    def run(self) -> None:
        with interruptible(self.scheduler, self.lake):
            self.lake.path.mkdir(parents=True)
            self.prepare()
            self.lake.observe("")
            self.scheduler.run(self.actors())
            with self._failing_with_trace():
                self.finish()
        with self._failing_with_trace():
            self.lake.observe("")
            self.check()

    @contextmanager
    def _failing_with_trace(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise InterleavingFailed(f"{error!r}\n{self.scheduler.trace()}") from error


ANY = "any"


def run_seed(
    world: type[World], seed: int, focus: str | None = ANY, avoided: Collection[str] = ()
) -> World:
    """Run a world about one hazard, by default one that the seed chooses; None is without any.

    A failure says how to repeat it.
    """
    random = Random(seed)
    chosen = random.choice((None, *world.hazards))
    if focus == ANY:
        focus = None if chosen in avoided else chosen
    with TemporaryDirectory(prefix="interleave-", dir=_MEMORY) as folder:
        made = world(Path(folder) / "lake", random, focus)
        try:
            made.run()
        except AssertionError as error:
            how = f"SEED={seed} FOCUS={focus or ''!r} .venv/bin/python -m pytest -n0"
            raise AssertionError(
                f"{error}\nrepeat with: {how} tests/interleave -k 'chosen and {world.name}'"
            ) from error
        return made


def failure_of(world: type[World], seed: int, focus: str | None) -> str | None:
    """Run a world; return how it failed, if it did."""
    try:
        run_seed(world, seed, focus)
    except AssertionError as error:
        return str(error).splitlines()[0]
    return None
