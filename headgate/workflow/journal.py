"""Runs of workflows on this machine, in a file each, and the output of their steps."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from headgate.as_json import plain
from headgate.jars.jars import headgate_home
from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import State, StepRun, WorkflowRun

_KEPT = 50
"""Number of runs whose journal is kept."""
_FILE = "run.json"


class Journal:
    """The runs of one workflow. A run that died is found as failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, plan: WorkflowPlan) -> Journal:
        """Return the journal of a workflow, which belongs to its pipeline file."""
        digest = hashlib.sha256(plan.file.encode()).hexdigest()[:8]
        return cls(headgate_home() / "workflows" / f"{plan.name}-{digest}")

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Yield whether no other process runs the workflow, and hold it meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("ab") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    @property
    def is_running(self) -> bool:
        if not self.folder.exists():
            return False
        with self.lock() as is_free:
            return not is_free

    def new_id(self) -> str:
        """Return the id of a run that begins now, which sorts after those before."""
        name = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        taken = {path.name for path in self._runs()}
        ids = (name if not number else f"{name}-{number:03}" for number in range(1000))
        return next(one for one in ids if one not in taken)

    def log(self, run: str, step: str, attempt: int) -> Path:
        folder = self.folder / run
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / f"{step}.{attempt}.log"

    def write(self, run: WorkflowRun) -> None:
        """Write the state of a run, whole or not at all."""
        folder = self.folder / run.id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = folder / f"{_FILE}.new"
        new.write_text(json.dumps(plain(run), indent=1))
        new.replace(folder / _FILE)

    def runs(self, count: int = _KEPT) -> list[WorkflowRun]:
        """Return the latest runs, the newest first."""
        found = [run for path in self._runs()[:count] if (run := _read(path / _FILE))]
        if found and not found[0].state.is_over and not self.is_running:
            found[0] = _interrupted(found[0])
        return found

    def trim(self) -> None:
        """Delete the oldest runs."""
        for path in self._runs()[_KEPT:]:
            shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Delete all runs."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

    def _runs(self) -> list[Path]:
        if not self.folder.exists():
            return []
        return sorted((one for one in self.folder.iterdir() if one.is_dir()), reverse=True)


def _read(path: Path) -> WorkflowRun | None:
    try:
        found = json.loads(path.read_text())
        steps = tuple(
            StepRun(
                name=step["name"],
                state=State(step["state"]),
                attempts=step["attempts"],
                began=_time(step["began"]),
                ended=_time(step["ended"]),
                error=step["error"],
                log=step["log"],
            )
            for step in found["steps"]
        )
        began, ended = _time(found["began"]), _time(found["ended"])
        return WorkflowRun(found["id"], State(found["state"]), steps, began, ended)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it died before it wrote anything


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _interrupted(run: WorkflowRun) -> WorkflowRun:
    """Return a run whose process has died, as failed."""
    return replace(run, state=State.FAILED, steps=tuple(map(_interrupted_step, run.steps)))


def _interrupted_step(step: StepRun) -> StepRun:
    if step.state in (State.RUNNING, State.RETRYING):
        return replace(step, state=State.FAILED, error="the process that ran it has died")
    return replace(step, state=State.SKIPPED) if step.state is State.WAITING else step


def tail(log: Path, lines: int = 1) -> Sequence[str]:
    """Return the last lines of a log that are not blank."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        text = file.read().decode("utf-8", "replace")
        return [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return ()
