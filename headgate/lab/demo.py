"""The demo's folder: emptied of what an earlier demo made, and of nothing else."""

from __future__ import annotations

import json
import queue
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headgate.cli.progress.live import View
from headgate.config import Pipeline
from headgate.engine.events import BatchLanded, Event, TableWaits
from headgate.errors import LandingError, UsageError
from headgate.examples import find_example
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import Game, RecordMaker, RegisteredVersion, games, register_versions
from headgate.registry.folder import FolderRegistry

_MARKER = ".headgate-demo"
_MADE = ("games.yaml", "inbox", "schemas", "lake", _MARKER)

# A run of seconds ends before the JVM's second compiler has earned back what it costs, and before
# the snapshot that Spark makes of a table to begin with has.
_QUICK = {
    r"^    # start: .*$": "    start: 0                         # read the log, make no snapshot",
    r"^# spark: .*$": "# Start quickly rather than run fast later.\nspark:\n"
    "  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def prepare_folder(folder: Path, keep: bool = False) -> int:
    """Make the folder ready; returns how many demos it has seen."""
    marker = folder / _MARKER
    seen = _demos_seen(marker)
    if seen is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "already-exists",
            f"{folder} exists and is not a demo's folder, so it is left as it is",
            hint="choose another one with --folder",
        )
    if not keep or seen is None:
        for name in _MADE:
            _remove(folder / name)
        seen = 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "games.yaml").write_text(_pipeline_text(), "utf-8")
    marker.write_text(json.dumps({"demos": seen + 1}) + "\n", "utf-8")
    return seen


def _pipeline_text() -> str:
    text = find_example("games-embedded").text()
    for line, instead in _QUICK.items():
        text, found = re.subn(line, instead, text, flags=re.MULTILINE)
        assert found, f"the example has no line {line}"
    return text


def _demos_seen(marker: Path) -> int | None:
    try:
        return int(json.loads(marker.read_text("utf-8"))["demos"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        # A demo that was stopped while it wrote; the folder is a demo's all the same.
        return 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


GAMES = 50
VERSIONS = 5
BAD_SHARE = 0.01
_FIRST = 100_000
_LATER = 50_000
_PATIENCE = 300.0


class Story:
    """Sends records to the inbox while the pipeline lands them, then ends the run."""

    def __init__(self, folder: Path, turn: int, view: View) -> None:
        from headgate.sources.stop_signal import StopSignal

        self.sent = 0
        self.complete = False
        self._folder = folder
        self._view = view
        self._turn = turn
        self._registry = FolderRegistry(folder / "schemas")
        self._inbox = DeltaDestination(str(folder / "inbox"), "games")
        self._stop = StopSignal()
        self._landed: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._failure: BaseException | None = None

    @property
    def changed_table(self) -> str:
        return f"silver_{self._changing[0].name}_events"

    @property
    def _changing(self) -> Sequence[Game]:
        return games(2)

    def land(self, pipeline: Pipeline) -> None:
        """Run the pipeline until every record of the story has landed, or Ctrl-C."""
        from headgate.engine.runner import RunOptions
        from headgate.run import run_pipeline

        # The table must be there before the stream is; its records come while Spark starts.
        self._inbox.send(pa.array([], pa.binary()))
        teller = threading.Thread(target=self._tell, name="demo", daemon=True)
        teller.start()
        run_pipeline(pipeline, RunOptions(trigger_milliseconds=200), self._listen, stop=self._stop)
        if self._failure is not None:
            raise self._failure
        if self.complete and self._view.tally.records != self.sent:
            raise LandingError(
                "batch-failed",
                f"{self.sent} records were sent, but {self._view.tally.records} arrived",
                hint=f"headgate status {self._folder / 'games.yaml'} shows where it stands",
            )

    def _listen(self, event: Event) -> None:
        self._view(event)
        if isinstance(event, BatchLanded | TableWaits):
            self._landed.put(event)

    def _tell(self) -> None:
        try:
            self._send_chapters()
            self.complete = True
        except BaseException as error:
            self._failure = error
        finally:
            self._stop.ask()

    def _send_chapters(self) -> None:
        versions = register_versions(
            self._registry, games(GAMES + self._turn), range(1, VERSIONS + 1)
        )
        self._send(versions, _FIRST)
        self._wait()

        newest = VERSIONS + self._turn + 1
        changed = register_versions(self._registry, self._changing, [newest])
        appeared = games(GAMES + self._turn + 1)[-1:]
        versions += changed + register_versions(self._registry, appeared, [1])
        for game in self._changing:
            column = game.columns(newest)[-1]
            self._view.note("source", f"{game.name} gets a new column {column}")
        self._view.note("source", f"a new game appears: {appeared[0].name}")
        self._send(versions, _LATER)
        self._wait()

        self._send(versions, _LATER)
        self._wait()

    def _send(self, versions: Sequence[RegisteredVersion], count: int) -> None:
        maker = RecordMaker(versions, seed=self._turn * 1_000_000 + self.sent, bad_share=BAD_SHARE)
        self._inbox.send(maker.make(count).values)
        self.sent += count

    def _wait(self) -> None:
        """Until all that was sent has landed."""
        while self._view.tally.records < self.sent:
            try:
                event = self._landed.get(timeout=_PATIENCE)
            except queue.Empty:
                raise LandingError(
                    "batch-failed", f"nothing has landed for {_PATIENCE:.0f} s"
                ) from None
            if isinstance(event, TableWaits):
                raise LandingError(
                    "table-pending", f"table {event.table} could not be committed: {event.error}"
                )
