"""Runs of Databricks as those of a workflow: states, attempts, times and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import State, StepRun, WorkflowRun

if TYPE_CHECKING:
    from databricks.sdk.service.jobs import BaseRun, Run, RunState, RunTask

_RESULTS = {
    "SUCCESS": State.SUCCEEDED,
    # Tasks have failed that no other depends on the success of.
    "SUCCESS_WITH_FAILURES": State.SUCCEEDED,
    "FAILED": State.FAILED,
    "TIMEDOUT": State.FAILED,
    "CANCELED": State.CANCELED,
    "UPSTREAM_FAILED": State.SKIPPED,
    "UPSTREAM_CANCELED": State.SKIPPED,
    "EXCLUDED": State.SKIPPED,
    "DISABLED": State.SKIPPED,
    "MAXIMUM_CONCURRENT_RUNS_REACHED": State.SKIPPED,
}
_LIFE_CYCLE = {
    "PENDING": State.WAITING,
    "QUEUED": State.WAITING,
    "BLOCKED": State.WAITING,
    "RUNNING": State.RUNNING,
    "TERMINATING": State.RUNNING,
    "WAITING_FOR_RETRY": State.RETRYING,
    "SKIPPED": State.SKIPPED,
    "INTERNAL_ERROR": State.FAILED,
    "TERMINATED": State.FAILED,
}


def run_of(
    run: Run | BaseRun, plan: WorkflowPlan, errors: Mapping[str, str] | None = None
) -> WorkflowRun:
    """Return a run of Databricks; its failed steps with these errors, by name, if given."""
    state = _state(run.state)
    attempts: dict[str, list[RunTask]] = {}
    for task in run.tasks or ():
        attempts.setdefault(task.task_key, []).append(task)
    names = [*(name for name in plan.by_name if name in attempts)]
    names += [name for name in attempts if name not in plan.by_name]
    return WorkflowRun(
        id=str(run.run_id),
        state=state,
        steps=tuple(
            _step(attempts[name], plan, state.is_over, (errors or {}).get(name)) for name in names
        ),
        began=_time(run.start_time),
        ended=_time(run.end_time),
        url=run.run_page_url,
    )


def _step(
    attempts: Iterable[RunTask], plan: WorkflowPlan, run_is_over: bool, error: str | None
) -> StepRun:
    tasks = sorted(attempts, key=lambda one: one.attempt_number or 0)
    last = tasks[-1]
    state = _state(last.state)
    number = (last.attempt_number or 0) + (1 if last.start_time else 0)
    step = plan.by_name.get(last.task_key)
    will_repeat = step is not None and number <= step.retries and not plan.workflow.is_continuous
    if state is State.FAILED and will_repeat and not run_is_over:
        state = State.RETRYING
    failed = [one for one in tasks if _state(one.state) in (State.FAILED, State.RETRYING)]
    message = failed[-1].state.state_message if failed and failed[-1].state else None
    return StepRun(
        name=last.task_key,
        state=state,
        attempts=number,
        began=_time(tasks[0].start_time),
        ended=_time(last.end_time) if state.is_over else None,
        error=None if state is State.SUCCEEDED else (error or message or None),
        log=last.run_page_url,
    )


def _state(state: RunState | None) -> State:
    """Return the state of a run or task; a result counts before the phase of its life."""
    if state is None:
        return State.WAITING
    if state.result_state is not None:
        return _RESULTS.get(state.result_state.value, State.FAILED)
    if state.life_cycle_state is None:
        return State.WAITING
    return _LIFE_CYCLE[state.life_cycle_state.value]


def _time(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
