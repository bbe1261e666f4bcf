"""What a scheduler does for a workflow: render, install, run, repair, remove; and what is seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class State(StrEnum):
    """State of a run, or of a step in it."""

    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"
    """Failed, and waiting for its next attempt."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not begun, because a step before it failed."""
    CANCELED = "canceled"

    @property
    def is_over(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED, State.SKIPPED, State.CANCELED)


@dataclass(frozen=True)
class StepRun:
    """A step in a run."""

    name: str
    state: State
    attempts: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    error: str | None = None
    """Why its last attempt failed."""
    log: str | None = None
    """Where its output is."""


@dataclass(frozen=True)
class WorkflowRun:
    """A run of a workflow."""

    id: str
    state: State
    steps: tuple[StepRun, ...]
    began: datetime | None = None
    ended: datetime | None = None
    url: str | None = None
    """Its page, if the scheduler has one."""

    @property
    def failed(self) -> list[StepRun]:
        return [step for step in self.steps if step.state in (State.FAILED, State.CANCELED)]


@dataclass(frozen=True)
class Change:
    """Something that an installation created, changed or removed."""

    what: str
    """`file`, `job`, `timer`, …"""
    where: str
    """Its path, URL or id."""
    action: str = "created"
    """`created`, `updated`, `removed` or `unchanged`."""


@dataclass(frozen=True)
class WorkflowStatus:
    """An installation of a workflow, and its latest runs, the newest first."""

    is_installed: bool
    is_current: bool
    """Whether what is installed is what the pipeline file declares now."""
    runs: tuple[WorkflowRun, ...] = ()
    next_run: datetime | None = None
    is_paused: bool = False


OnChange = Callable[[WorkflowRun], None]


class Target(Protocol):
    """A scheduler that a workflow can be installed in."""

    def render(self) -> Mapping[str, str]:
        """Return the files that describe the workflow to the scheduler, by path."""
        ...

    def install(self) -> Sequence[Change]:
        """Install the workflow, or update it; a second time changes nothing."""
        ...

    def run(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        """Start a run, and by default wait until it is over."""
        ...

    def repair(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        """Run the failed steps of the latest run again, and those that come after them."""
        ...

    def status(self) -> WorkflowStatus:
        """Return what is installed, and the latest runs."""
        ...

    def remove(self) -> Sequence[Change]:
        """Remove the workflow; tables stay. Nothing is changed if it is not installed."""
        ...


def wait_until_over(
    look: Callable[[], WorkflowRun], on_change: OnChange, every: float = 2.0
) -> WorkflowRun:
    """Look at a run again and again until it is over, and report each change."""
    seen: WorkflowRun | None = None
    while True:
        run = look()
        if run != seen:
            on_change(run)
            seen = run
        if run.state.is_over:
            return run
        time.sleep(every)


def wait_for_latest(target: Target, on_change: OnChange) -> WorkflowStatus:
    """Wait until the latest run is over, and return the status then."""
    if target.status().runs:
        wait_until_over(lambda: target.status().runs[0], on_change)
    return target.status()
