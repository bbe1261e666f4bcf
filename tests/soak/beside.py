"""What goes on beside a run in a soak: records, kills, maintenance of tables, and measurements."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.lab.destination import Destination
from headgate.lab.games import RecordMaker, games, register_versions
from headgate.registry.registry import SchemaRegistry

GAMES = 4


@contextmanager
def repeatedly(
    step: Callable[[], None], seconds: Callable[[], float], stop: threading.Event
) -> Iterator[None]:
    """Call a function in a thread, with pauses, until it fails or the block ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.wait(seconds()):
                step()
        except BaseException as error:
            failures.append(error)
            stop.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


class Producer:
    """Sends records of some games, whose schemas get another column now and then."""

    def __init__(
        self, registry: SchemaRegistry, destination: Destination, seconds_per_version: float
    ) -> None:
        self._registry = registry
        self._destination = destination
        self._seconds_per_version = seconds_per_version
        self._began = time.monotonic()
        self._version = 0
        self._maker: RecordMaker | None = None
        self.sent = 0

    def send(self) -> None:
        """Send one portion, of the current and the previous version of each game."""
        version = 1 + int((time.monotonic() - self._began) / self._seconds_per_version)
        if self._maker is None or version != self._version:
            self._version = version
            versions = [one for one in (version - 1, version) if one]
            registered = register_versions(self._registry, games(GAMES), versions)
            self._maker = RecordMaker(registered, seed=version, bad_share=0.01, players=500)
        portion = self._maker.make(100)
        self._destination.send(portion.values)
        self._destination.flush()
        self.sent += len(portion.values)


@dataclass(frozen=True)
class Sample:
    """Measurements at one time."""

    rss: int
    open_files: int
    live_files: int
    files_on_disk: int


@dataclass
class Run:
    """A run in a process of its own, which is killed now and then."""

    file: Path
    kills: int = 0
    batch_seconds: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None
    _landed: int = 0
    """Batches of the current process."""
    _last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=200))
    """Of its output."""

    def start(self) -> None:
        self._landed = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headgate", "run", str(self.file), "--json", "--debug"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def kill(self) -> None:
        """Kill driver, Java and tasks."""
        assert self._process is not None
        assert self._reader is not None
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._reader.join()
        self.kills += 1

    def restart(self) -> None:
        """Kill the process, unless it has not landed anything yet, and start another."""
        assert self._process is not None
        assert self._process.poll() is None, "".join(["the run has ended:\n", *self._last_lines])
        if self._landed:
            self.kill()
            self.start()

    def sample(self) -> None:
        """Measure a process that has warmed up."""
        if self._landed < 5:
            return
        lake = self.file.parent / "lake"
        with suppress(psutil.NoSuchProcess, DeltaError):
            processes = self._processes()
            self.samples.append(
                Sample(
                    rss=sum(process.memory_info().rss for process in processes),
                    open_files=sum(process.num_fds() for process in processes),
                    live_files=sum(len(DeltaTable(one).file_uris()) for one in tables(lake)),
                    files_on_disk=sum(len(names) for _, _, names in os.walk(lake)),
                )
            )

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        driver = psutil.Process(self._process.pid)
        return [*driver.children(recursive=True), driver]

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._last_lines.append(line)
            # The last line of a killed process may be cut.
            with suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "batch_landed":
                    self._landed += 1
                    self.batch_seconds.append(event["seconds"])
        process.stdout.close()


def tables(lake: Path) -> list[Path]:
    return sorted(log.parent for log in lake.glob("*/_delta_log"))


@dataclass
class Maintenance:
    """OPTIMIZE and VACUUM of random tables, without any time to keep old files."""

    lake: Path
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def maintain(self) -> None:
        found = tables(self.lake)
        if not found:
            return
        table = self.chance.choice(found)
        try:
            DeltaTable(table).optimize.compact()
            self.done["optimize"] += 1
            DeltaTable(table).vacuum(
                retention_hours=0, enforce_retention_duration=False, dry_run=False
            )
            self.done["vacuum"] += 1
        except (DeltaError, OSError):
            self.done["conflict"] += 1


@dataclass(frozen=True)
class Trend:
    """The medians of the first and the last third of a series."""

    first: float
    last: float

    @classmethod
    def of(cls, series: list[float]) -> Trend:
        third = max(1, len(series) // 3)
        return cls(median(series[:third]), median(series[-third:]))

    def grew_at_most(self, factor: float) -> bool:
        return self.last <= self.first * factor
