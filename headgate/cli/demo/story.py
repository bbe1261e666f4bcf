"""What happens in the demo: three chapters, each sent when the one before has landed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headgate.cli.progress.view import View
from headgate.errors import LandingError
from headgate.land.event import BatchLanded, Event, TableWaits
from headgate.pipeline import Pipeline
from headgate.schema.registry_folder import FolderRegistry
from headgate.simulate.destination import DeltaDestination
from headgate.simulate.games import Game, games
from headgate.simulate.make_records import RecordMaker, RegisteredVersion, register_versions

GAMES = 50
VERSIONS = 5
BAD_SHARE = 0.01
_FIRST = 100_000
_LATER = 50_000
_PATIENCE = 300.0


class Story:
    """Sends records to the inbox while the pipeline lands them, then ends the run."""

    def __init__(self, folder: Path, turn: int, view: View) -> None:
        from headgate.run.stop_signal import StopSignal

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
        from headgate.run.run_options import RunOptions
        from headgate.run.run_pipeline import run_pipeline

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
