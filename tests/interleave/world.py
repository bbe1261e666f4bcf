"""A world: a lake, the actors that share it, and what is true once they have ended."""

from __future__ import annotations

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


class World(ABC):
    """Actors over one lake, chosen by a seed."""

    name: ClassVar[str]
    hazards: ClassVar[tuple[str, ...]]
    """What worlds may be about; those that are avoided are left out."""

    def __init__(self, lake: Path, random: Random, avoided: Collection[str]) -> None:
        self.random = random
        self.avoided = avoided
        focus = random.choice((None, *self.hazards))
        self.focus = None if focus in avoided else focus
        """The hazard that this world is about."""
        self.lake = WatchedLake(lake)
        self.scheduler = Scheduler(random)
        self.scheduler.before_switch = self.lake.observe

    @abstractmethod
    def prepare(self) -> None:
        """Make the tables that are there before any actor begins."""

    @abstractmethod
    def actors(self) -> Mapping[str, Run]:
        """Return the actors by name."""

    def finish(self) -> None:
        """Do what is left once all actors have ended."""

    def check(self) -> None:
        """Check what must be true at the end."""

    def allows(self, hazard: str) -> bool:
        assert hazard in self.hazards, hazard
        return hazard not in self.avoided

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
            self.lake.check_all()
            self.check()

    @contextmanager
    def _failing_with_trace(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise InterleavingFailed(f"{error!r}\n{self.scheduler.trace()}") from error


def run_seed(world: type[World], seed: int, avoided: Collection[str] = ()) -> World:
    """Run one world; a failure says how to repeat it."""
    with TemporaryDirectory(prefix="interleave-") as folder:
        made = world(Path(folder) / "lake", Random(seed), avoided)
        try:
            made.run()
        except AssertionError as error:
            repeat = f"SEED={seed} .venv/bin/python -m pytest tests/interleave -n0 -k {world.name}"
            raise AssertionError(f"{error}\nrepeat with: {repeat}") from error
        return made
