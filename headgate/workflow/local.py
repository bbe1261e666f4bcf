"""Runs a workflow on this machine: steps in order and side by side, with retries and notices."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from headgate.errors import UsageError, WorkflowError, did_you_mean, listed
from headgate.workflow.journal import Journal, tail
from headgate.workflow.notices import Event, Notice, Notifier
from headgate.workflow.plan import Step, WorkflowPlan, headgate_command
from headgate.workflow.target import (
    Change,
    OnChange,
    State,
    StepRun,
    WorkflowRun,
    WorkflowStatus,
)

_GRACE = 60.0
"""Seconds in which a step that was asked to stop may finish its batch."""
_STABLE = 3600.0
"""Seconds after which a stream that fails has all its retries again."""
_ERROR = re.compile(r"(?:\x1b\[\d+m)?error:(?:\x1b\[\d+m)? ")
_MAX_ERROR = 500


class LocalTarget:
    """This machine, without a scheduler: a workflow is run by hand, or by what calls it."""

    def __init__(
        self,
        plan: WorkflowPlan,
        journal: Journal | None = None,
        report: Callable[[str], None] = lambda _: None,
        headgate: str | None = None,
    ) -> None:
        self.plan = plan
        self.journal = journal or Journal.of(plan)
        self._report = report
        self.headgate = headgate or headgate_command()

    def render(self) -> Mapping[str, str]:
        raise _not_a_scheduler("render")

    def install(self) -> Sequence[Change]:
        raise _not_a_scheduler("install")

    def run(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        """Run all steps here, and wait for them. Raises if another process runs the workflow."""
        steps = tuple(StepRun(step.name, State.WAITING) for step in self.plan.steps)
        with self._locked():
            return self._run(WorkflowRun(self.journal.new_id(), State.RUNNING, steps), on_change)

    def repair(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        """Run the steps of the latest run again that did not succeed, here."""
        with self._locked():
            before = next(iter(self.journal.runs(1)), None)
            if before is None or before.state is State.SUCCEEDED:
                raise nothing_to_repair(self.plan, before)
            failed = [step.name for step in before.steps if step.state is not State.SUCCEEDED]
            failed += [one.name for one in self.plan.steps if one.name not in _names(before)]
            again = self.plan.depending_on(failed)
            known = {step.name: step for step in before.steps}
            steps = tuple(
                replace(known.get(one.name, StepRun(one.name, State.WAITING)), state=State.WAITING)
                if one.name in again
                else known[one.name]
                for one in self.plan.steps
            )
            return self._run(replace(before, state=State.RUNNING, steps=steps), on_change)

    def status(self) -> WorkflowStatus:
        return WorkflowStatus(False, False, tuple(self.journal.runs()))

    def remove(self) -> Sequence[Change]:
        """Delete the journal of runs."""
        if not self.journal.folder.exists():
            return []
        with self._locked():
            self.journal.remove()
        return [Change("journal", str(self.journal.folder), "removed")]

    def run_step(self, name: str) -> int:
        """Run one step in the foreground, once, and return its exit status."""
        step = self.plan.by_name.get(name)
        if step is None:
            known = self.plan.by_name
            hint = did_you_mean(name, known) or f"steps: {listed(known)}"
            raise UsageError("bad-argument", f"the workflow has no step `{name}`", hint)
        words = step.words(self.headgate)
        try:
            return subprocess.run(words, cwd=self.plan.folder, check=False).returncode
        except OSError as error:
            message = f"cannot run {words[0]}: {error.strerror}"
            raise UsageError("bad-argument", message, "the command must be on the PATH") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.journal.lock() as is_free:
            if not is_free:
                raise WorkflowError(
                    "workflow-running",
                    f"the workflow {self.plan.name} is already running on this machine",
                    f"headgate workflow status {self.plan.file}",
                )
            yield

    def _run(self, begun: WorkflowRun, on_change: OnChange) -> WorkflowRun:
        run = _Run(self, begun, on_change)
        self.journal.trim()
        return run.complete()

    def notifier(self) -> Notifier:
        return Notifier.of(self.plan.workflow, self._report)


def nothing_to_repair(plan: WorkflowPlan, latest: WorkflowRun | None) -> WorkflowError:
    """Return the error for a workflow whose latest run has no failed step."""
    if latest is None:
        message, hint = "has no run to repair", f"headgate workflow run {plan.file}"
    else:
        message, hint = f"has nothing to repair: its latest run {latest.state}", None
    return WorkflowError("workflow-missing", f"the workflow {plan.name} {message}", hint)


def _names(run: WorkflowRun) -> set[str]:
    return {step.name for step in run.steps}


def _not_a_scheduler(command: str) -> UsageError:
    return UsageError(
        "bad-argument",
        f"`headgate workflow {command}` needs a scheduler",
        "use --target airflow, databricks, systemd or cron; `headgate workflow run` needs none",
    )


class _Run:
    """One run: a thread per step that is under way, and the state of all."""

    def __init__(self, target: LocalTarget, begun: WorkflowRun, on_change: OnChange) -> None:
        self._target = target
        self._plan = target.plan
        self._journal = target.journal
        self._notifier = target.notifier()
        self._on_change = on_change
        now = datetime.now(UTC)
        self._run = replace(begun, began=begun.began or now, ended=None)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def complete(self) -> WorkflowRun:
        """Run every step that is waiting, each after those that it depends on."""
        self._change()
        with self._stopped_by_signals():
            self._run_steps()
        states = {step.state for step in self._run.steps}
        if states == {State.SUCCEEDED}:
            state = State.SUCCEEDED
        else:
            state = State.CANCELED if self._stop.is_set() else State.FAILED
        self._change(state=state, ended=datetime.now(UTC))
        if state is State.SUCCEEDED:
            self._notify(Event.SUCCESS)
        return self._run

    def _run_steps(self) -> None:
        under_way: dict[Future[None], str] = {}
        with ThreadPoolExecutor(self._plan.at_once, "step") as pool:
            while True:
                for step in self._ready({*under_way.values()}):
                    under_way[pool.submit(self._run_step, step)] = step.name
                if not under_way:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    del under_way[future]
                    future.result()

    def _ready(self, under_way: set[str]) -> Iterator[Step]:
        """Yield steps that can begin; mark those that cannot begin any more."""
        for step in self._plan.steps:
            states = {one.name: one.state for one in self._run.steps}
            if states[step.name] is not State.WAITING or step.name in under_way:
                continue
            before = [states[name] for name in step.after]
            if self._stop.is_set():
                self._step(step.name, state=State.CANCELED)
            elif any(state.is_over and state is not State.SUCCEEDED for state in before):
                self._step(step.name, state=State.SKIPPED)
            elif all(state is State.SUCCEEDED for state in before):
                yield step

    def _run_step(self, step: Step) -> None:
        self._step(step.name, began=datetime.now(UTC), ended=None, error=None)
        attempt = self._state(step.name).attempts
        failures = 0
        while True:
            attempt += 1
            log = self._journal.log(self._run.id, step.name, attempt)
            self._step(step.name, state=State.RUNNING, attempts=attempt, log=str(log), error=None)
            began = time.monotonic()
            error = self._attempt(step, log)
            ended = datetime.now(UTC)
            if error is None and not (step.never_ends and self._stop.is_set()):
                self._step(step.name, state=State.SUCCEEDED, ended=ended)
                return
            if self._stop.is_set():
                self._step(step.name, state=State.CANCELED, ended=ended, error=error)
                return
            is_stable = step.never_ends and time.monotonic() - began > _STABLE
            failures = 1 if is_stable else failures + 1
            is_last = failures > step.retries
            state = State.FAILED if is_last else State.RETRYING
            self._step(step.name, state=state, ended=ended, error=error)
            self._notify(Event.FAILURE if is_last else Event.RETRY, step, failures)
            if is_last:
                return
            if self._stop.wait(step.retry_wait.total_seconds()):
                self._step(step.name, state=State.CANCELED)
                return

    def _attempt(self, step: Step, log: Path) -> str | None:
        """Run a command once; return why it failed, or None."""
        words = step.words(self._target.headgate)
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    words,
                    cwd=self._plan.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                return f"cannot run {words[0]}: {error.strerror}"
            with self._lock:
                self._processes[step.name] = process
            if self._stop.is_set():
                _terminate(process)
            try:
                status = process.wait(step.timeout.total_seconds() if step.timeout else None)
            except subprocess.TimeoutExpired:
                _terminate(process)
                _kill_after(process, _GRACE)
                return f"took longer than {step.timeout}"
            finally:
                with self._lock:
                    del self._processes[step.name]
        return None if status == 0 else _why(log, status)

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """Pass Ctrl-C and termination on to the steps, which finish their batches."""

        def stop(number: int, frame: FrameType | None) -> None:
            is_second = self._stop.is_set()
            self._stop.set()
            for process in [*self._processes.values()]:
                _kill(process) if is_second else _terminate(process)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _notify(self, event: Event, step: Step | None = None, attempt: int = 0) -> None:
        seen = self._state(step.name) if step else None
        needs_repair = event is Event.FAILURE
        self._notifier.send(
            Notice(
                event,
                self._plan.name,
                self._run.id,
                socket.gethostname(),
                step.name if step else None,
                attempt,
                step.retries + 1 if step else 0,
                seen.error if seen else None,
                seen.log if seen else None,
                f"headgate workflow repair {self._plan.file}" if needs_repair else None,
            )
        )

    def _state(self, name: str) -> StepRun:
        return next(step for step in self._run.steps if step.name == name)

    def _step(self, name: str, **changes: object) -> None:
        with self._lock:
            steps = tuple(
                replace(step, **changes) if step.name == name else step  # type: ignore[arg-type]
                for step in self._run.steps
            )
            self._run = replace(self._run, steps=steps)
            self._journal.write(self._run)
            self._on_change(self._run)

    def _change(self, **changes: object) -> None:
        with self._lock:
            self._run = replace(self._run, **changes)  # type: ignore[arg-type]
            self._journal.write(self._run)
            self._on_change(self._run)


def _why(log: Path, status: int) -> str:
    """Return why a command failed: its last error, else its last line, and its exit status."""
    how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    lines = tail(log, 50)
    errors = [_ERROR.sub("", line) for line in lines if _ERROR.match(line)]
    last = errors[-1:] or lines[-1:]
    return f"{last[0][:_MAX_ERROR]} ({how})" if last else how


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Ask a command to stop: only the process itself, which stops its own."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Kill a command with all its processes, unless it ends in time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return
    _kill(process)
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with all its processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
