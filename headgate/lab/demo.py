"""The demo: land simulated games from a Delta table while their schemas change."""

from __future__ import annotations

import json
import queue
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from headgate.config import PipelineConfig
from headgate.engine.events import BatchLanded, Event, Listener, TableWaits
from headgate.errors import LandingError, UsageError
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import Game, RecordMaker, RegisteredVersion, games, register_versions
from headgate.registry.folder import FolderRegistry

_MARKER = ".headgate-demo"
_CREATED = ("inbox", "schemas", "lake", "models", _MARKER)

# In a run of seconds, the JVM's second compiler and Spark's initial snapshot of the source cost
# more than they save.
_FAST_START = {
    r"^    # start: .*$": "    start: 0                         # read the log, skip the snapshot",
    r"^# spark: .*$": "# Optimise for a fast start.\nspark:\n"
    "  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def prepare_folder(folder: Path, files: Mapping[str, str], keep: bool = False) -> int:
    """Create the folder with these files; return the number of earlier demos in it.

    Removes what an earlier demo created, and nothing else; with `keep`, not even that.
    """
    marker = folder / _MARKER
    earlier = _earlier_demos(marker)
    if earlier is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "already-exists",
            f"{folder} exists and was not created by a demo; nothing was changed",
            hint="choose another folder with --folder",
        )
    if not keep or earlier is None:
        for name in (*files, *_CREATED):
            _remove(folder / name)
        earlier = 0
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
    marker.write_text(json.dumps({"demos": earlier + 1}) + "\n", "utf-8")
    return earlier


def with_fast_start(text: str) -> str:
    """Return the pipeline file of the games with settings for a short run."""
    for line, replacement in _FAST_START.items():
        text, found = re.subn(line, replacement, text, flags=re.MULTILINE)
        assert found, f"the pipeline file has no line {line}"
    return text


def _earlier_demos(marker: Path) -> int | None:
    try:
        return int(json.loads(marker.read_text("utf-8"))["demos"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        # A demo was interrupted while it wrote the marker.
        return 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class DemoSize:
    """How much a demo lands, in three batches."""

    games: int = 50
    versions: int = 5
    players: int = 1_000
    """Players per game."""
    first: int = 50_000
    """Records of the batch that creates the tables and warms up Spark and its Python workers."""
    large: int = 400_000
    """Records of the batch that shows the throughput; all of them are good."""
    changed: int = 50_000
    """Records of the batch in which schemas change."""
    bad_share: float = 0.01
    """Fraction of bad records in the first and the last batch."""

    @classmethod
    def of(cls, records: int) -> DemoSize:
        """Divide a number of records: most of them are in the large batch."""
        small = records // 10
        return cls(first=small, large=records - 2 * small, changed=small)


@dataclass(frozen=True)
class Latency:
    """Time from a commit to the inbox until its records can be queried."""

    records: int
    landed: float
    """Seconds until all silver tables are committed."""
    derived: float
    """Seconds until the derived tables include the records."""


@dataclass
class DemoResult:
    """What the demo sent; `complete` once all of it has landed."""

    sent: int = 0
    complete: bool = False
    latency: Latency | None = None
    """Of the batch in which schemas changed."""


_TIMEOUT = 300.0
_TRIGGER_MILLISECONDS = 200


class Demo:
    """Sends records to an inbox while a pipeline lands them, then stops the pipeline."""

    def __init__(
        self,
        folder: Path,
        earlier: int = 0,
        listener: Listener = lambda _: None,
        note: Callable[[str, str], None] = lambda what, detail: None,
        size: DemoSize | None = None,
    ) -> None:
        """Pass the pipeline's events to `listener`, and changes of the source to `note`."""
        from headgate.sources.stop_signal import StopSignal

        self.result = DemoResult()
        self._folder = folder
        self._earlier = earlier
        self._listener = listener
        self._note = note
        self._size = size or DemoSize()
        self._registry = FolderRegistry(folder / "schemas")
        self._inbox = DeltaDestination(str(folder / "inbox"), "games")
        self._stop = StopSignal()
        self._events: queue.SimpleQueue[tuple[float, BatchLanded | TableWaits]]
        self._events = queue.SimpleQueue()
        self._landed = 0
        self._failure: BaseException | None = None

    @property
    def changed_table(self) -> str:
        """A table that gets a new column during the demo."""
        return f"silver_{self._changing[0].name}_events"

    @property
    def _changing(self) -> Sequence[Game]:
        return games(2)

    def run(self, pipeline: PipelineConfig) -> DemoResult:
        """Run the pipeline until every record has landed, or until Ctrl-C."""
        from headgate.engine.runner import RunOptions
        from headgate.run import run_pipeline

        # The stream needs an existing table; the first records are sent while Spark starts.
        self._inbox.send(pa.array([], pa.binary()))
        threading.Thread(target=self._produce, name="demo", daemon=True).start()
        options = RunOptions(trigger_milliseconds=_TRIGGER_MILLISECONDS)
        run_pipeline(pipeline, options, self._receive, stop=self._stop)
        if self._failure is not None:
            raise self._failure
        if self.result.complete and self._landed != self.result.sent:
            raise LandingError(
                "batch-failed",
                f"{self.result.sent} records were sent, but {self._landed} landed",
                hint=f"run: headgate status {self._folder / 'games.yaml'}",
            )
        return self.result

    def _receive(self, event: Event) -> None:
        self._listener(event)
        if isinstance(event, BatchLanded | TableWaits):
            self._events.put((perf_counter(), event))

    def _produce(self) -> None:
        try:
            self._send_batches()
            self.result.complete = True
        except BaseException as error:
            self._failure = error
        finally:
            self._stop.request()

    def _send_batches(self) -> None:
        size = self._size
        known = games(size.games + self._earlier)
        versions = register_versions(self._registry, known, range(1, size.versions + 1))
        # Two files, so that Spark reads them with two tasks and starts two Python workers.
        self._land(versions, size.first, size.bad_share, commits=2)
        self._land(versions, size.large)

        newest = size.versions + self._earlier + 1
        changed = register_versions(self._registry, self._changing, [newest])
        new_game = games(size.games + self._earlier + 1)[-1]
        versions += changed + register_versions(self._registry, [new_game], [1])
        for game in self._changing:
            self._note("source", f"{game.name} gets a new column {game.columns(newest)[-1]}")
        self._note("source", f"a new game appears: {new_game.name}")
        self.result.latency = self._land(versions, size.changed, size.bad_share)

    def _land(
        self,
        versions: Sequence[RegisteredVersion],
        count: int,
        bad_share: float = 0.0,
        commits: int = 1,
    ) -> Latency:
        """Send records and wait until all of them have landed."""
        seed = self._earlier * 1_000_000 + self.result.sent
        values = RecordMaker(versions, seed, bad_share, self._size.players).make(count).values
        for part in range(commits):
            start, stop = count * part // commits, count * (part + 1) // commits
            self._inbox.send(values[start:stop])
        sent_at = perf_counter()
        self.result.sent += count
        while True:
            derived_at, batch = self._next_batch()
            self._landed += batch.records
            if self._landed >= self.result.sent:
                after_landing = batch.seconds - batch.landing_seconds
                derived = derived_at - sent_at
                return Latency(count, derived - after_landing, derived)

    def _next_batch(self) -> tuple[float, BatchLanded]:
        try:
            at, event = self._events.get(timeout=_TIMEOUT)
        except queue.Empty:
            raise LandingError("batch-failed", f"no batch landed within {_TIMEOUT:.0f} s") from None
        if isinstance(event, TableWaits):
            raise LandingError(
                "table-pending", f"table {event.table} could not be committed: {event.error}"
            )
        return at, event
