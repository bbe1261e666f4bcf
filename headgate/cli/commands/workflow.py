"""`headgate workflow`: a pipeline's tasks, run here or installed in a scheduler."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.help import GroupedOptions
from headgate.cli.output import (
    JsonOption,
    Style,
    ago,
    now,
    print_columns,
    print_facts,
    print_json,
    print_next_steps,
    printable,
    require_prompt,
    styled,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline
from headgate.errors import UsageError, WorkflowError

if TYPE_CHECKING:
    from headgate.workflow.plan import WorkflowPlan
    from headgate.workflow.target import Change, State, StepRun, Target, WorkflowRun, WorkflowStatus

app = typer.Typer(
    rich_markup_mode=None,
    help="Run a pipeline's tasks with retries and notices, here or in a scheduler.",
)

_TARGETS = "airflow|databricks|systemd|cron"
_SHOWN_RUNS = 5
_STYLES: dict[str, Style] = {
    "succeeded": "green",
    "failed": "red",
    "canceled": "yellow",
    "retrying": "yellow",
    "skipped": "dim",
    "running": "cyan",
}

SchedulerOption = Annotated[
    str, typer.Option("--target", metavar=_TARGETS, help="The scheduler.", show_default=False)
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target", metavar=f"{_TARGETS}|local", help="The scheduler, or `local` for this machine."
    ),
]
WheelOption = Annotated[
    str | None,
    typer.Option(
        "--wheel",
        metavar="FILE",
        help="Headgate's wheel for Databricks.",
        show_default="built from this installation",
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the run is over, and show its steps.")
]


@app.command(cls=GroupedOptions)
def render(
    target: SchedulerOption,
    pipeline: PipelineArgument = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write the files there instead."),
    ] = None,
    wheel: WheelOption = None,
) -> None:
    """Print what would be installed; write nothing.

    \b
    Examples:
      headgate workflow render games.yaml --target airflow
      headgate workflow render games.yaml --target databricks -o bundle
      headgate workflow render games.yaml --target systemd

    A DAG for Airflow, an Asset Bundle for Databricks, units for systemd, a line for the crontab.
    Secrets stay references.

    Next: headgate workflow install PIPELINE --target TARGET
    """
    _, _, chosen = _open(pipeline, target, wheel)
    files = chosen.render()
    if output is None:
        for name, text in files.items():
            if len(files) > 1:
                print(styled(f"# {name}", "dim"))
            print(text, end="" if text.endswith("\n") else "\n")
        return
    for name, text in files.items():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"Wrote {path}")
    if target == "databricks":
        from headgate.workflow.databricks.target import DatabricksTarget

        assert isinstance(chosen, DatabricksTarget)
        print(f"Wrote {chosen.wheel(output / 'dist')}")


@app.command(cls=GroupedOptions)
def install(
    target: SchedulerOption,
    pipeline: PipelineArgument = None,
    wheel: WheelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Install the workflow in a scheduler, or update it.

    \b
    Examples:
      headgate workflow install games.yaml --target airflow
      headgate workflow install games.yaml --target systemd

    A second time, nothing changes unless the pipeline file has changed.

    Next: headgate workflow status PIPELINE --target TARGET
    """
    file, plan, chosen = _open(pipeline, target, wheel)
    changes = chosen.install()
    if as_json:
        print_json({"changes": changes})
        return
    _print_changes(changes)
    schedule = plan.workflow.schedule
    when = f"{schedule} ({plan.workflow.timezone})" if schedule else "started by hand"
    print(f"{counted(len(plan.steps), 'step')}, {when}")
    print_next_steps(
        [
            (f"headgate workflow run {file} --target {target}", "start a run now"),
            (f"headgate workflow status {file} --target {target}", "runs and steps"),
        ]
    )


@app.command(cls=GroupedOptions)
def run(
    pipeline: PipelineArgument = None,
    target: TargetOption = "local",
    wait: WaitOption = True,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="Run one step here, in the foreground: once, without notices.",
            show_default=False,
        ),
    ] = None,
    skip_if_running: Annotated[
        bool,
        typer.Option("--skip-if-running", help="Exit with 0 if the workflow is running already."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only problems.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the workflow: here, or in the scheduler that it is installed in.

    \b
    Examples:
      headgate workflow run games.yaml
      headgate workflow run games.yaml --target airflow
      headgate workflow run games.yaml --only maintain

    Here, steps run in order and side by side, with retries, time-outs and notices as declared.
    Exits with 1 if a step fails.

    Next: headgate workflow repair PIPELINE
    """
    file, plan, chosen = _open(pipeline, target)
    if only is not None:
        from headgate.workflow.local import LocalTarget

        raise typer.Exit(LocalTarget(plan).run_step(only))
    if target == "local" and not wait:
        message = "--no-wait is for schedulers: here, nothing else would run the steps"
        raise UsageError("bad-argument", message)
    view = _View(quiet or as_json)
    try:
        ended = chosen.run(view.show, wait)
    except WorkflowError as error:
        if error.code == "workflow-running" and skip_if_running:
            return
        raise
    _end(plan, ended, file, target, quiet, as_json)


@app.command(cls=GroupedOptions)
def repair(
    pipeline: PipelineArgument = None,
    target: TargetOption = "local",
    wait: WaitOption = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only problems.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the failed steps of the latest run again, and those after them.

    \b
    Examples:
      headgate workflow repair games.yaml
      headgate workflow repair games.yaml --target databricks

    Steps that have succeeded are not repeated. Exits with 1 if a step fails again.

    Next: headgate workflow status PIPELINE
    """
    file, plan, chosen = _open(pipeline, target)
    view = _View(quiet or as_json)
    _end(plan, chosen.repair(view.show, wait), file, target, quiet, as_json)


@app.command(cls=GroupedOptions)
def status(
    pipeline: PipelineArgument = None,
    target: TargetOption = "local",
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until the latest run is over; exit with 1 if a step has failed."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show whether the workflow is installed, its latest runs, and their steps.

    \b
    Examples:
      headgate workflow status games.yaml
      headgate workflow status games.yaml --target airflow
      headgate workflow status games.yaml --target airflow --wait

    Next: headgate workflow repair PIPELINE
    """
    file, plan, chosen = _open(pipeline, target)
    if wait:
        from headgate.workflow.target import wait_for_latest

        found = wait_for_latest(chosen, _View(as_json).show)
    else:
        found = chosen.status()
    has_failed = wait and bool(found.runs) and found.runs[0].state != "succeeded"
    if as_json:
        print_json(found)
    else:
        _print_status(plan, found, file, target)
    if has_failed:
        raise typer.Exit(1)


@app.command(cls=GroupedOptions)
def remove(
    target: TargetOption = "local",
    pipeline: PipelineArgument = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the workflow from a scheduler, with the record of its runs.

    \b
    Examples:
      headgate workflow remove games.yaml --target airflow
      headgate workflow remove games.yaml --yes               the record of runs on this machine

    Tables stay: `headgate remove` removes them.

    Next: headgate remove PIPELINE
    """
    if not yes:
        require_prompt("remove", as_json)
    file, plan, chosen = _open(pipeline, target)
    if not (yes or typer.confirm(f"Remove the workflow {plan.name} from {target}?")):
        print("Nothing was removed")
        return
    changes = chosen.remove()
    if as_json:
        print_json({"changes": changes})
        return
    _print_changes(changes)
    if not changes:
        print(f"{plan.name} is not installed")
    print_next_steps([(f"headgate remove {file}", "remove its tables, too")])


def _option(target: str) -> str:
    return "" if target == "local" else f" --target {target}"


def _open(
    pipeline: str | None, target: str, wheel: str | None = None
) -> tuple[str, WorkflowPlan, Target]:
    """Return the pipeline file as it was named, its plan and the target."""
    from headgate.config import load_pipeline
    from headgate.workflow.open import open_target
    from headgate.workflow.plan import WorkflowPlan

    file = find_pipeline(pipeline)
    plan = WorkflowPlan.of(load_pipeline(file))

    def warn(message: str) -> None:
        print(f"{styled('warning:', 'yellow', sys.stderr)} {printable(message)}", file=sys.stderr)

    return file, plan, open_target(target, plan, warn, wheel)


class _View:
    """Prints a line for each step whose state has changed."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._seen: dict[str, tuple[State, int]] = {}

    def show(self, run: WorkflowRun) -> None:
        for step in run.steps:
            seen = (step.state, step.attempts)
            if self._seen.get(step.name) != seen and step.state != "waiting":
                self._seen[step.name] = seen
                if not self._is_quiet:
                    width = max(len(one.name) for one in run.steps)
                    print(f"{now():%H:%M:%S}  {_step_text(step, width)}", flush=True)


def _step_text(step: StepRun, width: int) -> str:
    attempt = f", attempt {step.attempts}" if step.attempts > 1 else ""
    error = f": {printable(step.error)}" if step.error else ""
    return f"{step.name.ljust(width)}  {_state(step.state)}{attempt}{error}"


def _state(state: State) -> str:
    return styled(state, _STYLES[state]) if state in _STYLES else str(state)


def _end(
    plan: WorkflowPlan, run: WorkflowRun, file: str, target: str, quiet: bool, as_json: bool
) -> None:
    failed = [step for step in run.steps if step.state.is_over and step.state != "succeeded"]
    if as_json:
        errors = [{"step": step.name, "state": step.state, "error": step.error} for step in failed]
        print_json(run, errors=errors)
    elif not run.state.is_over:
        print(f"Started run {run.id}{f': {run.url}' if run.url else ''}")
    elif not quiet or failed:
        print(f"{plan.name} {_state(run.state)}{_took(run.began, run.ended, ' in ')}")
        if failed:
            _print_steps(run)
            option = _option(target)
            print_next_steps(
                [
                    (f"headgate workflow repair {file}{option}", "run the failed steps again"),
                    (f"headgate workflow status {file}{option}", "runs and steps"),
                ]
            )
    if run.state.is_over and run.state != "succeeded":
        raise typer.Exit(1)


def _run_row(run: WorkflowRun) -> Sequence[str]:
    began = ago(run.began) if run.began else ""
    return (run.id, run.state, began, _took(run.began, run.ended))


def _print_status(plan: WorkflowPlan, found: WorkflowStatus, file: str, target: str) -> None:
    facts = []
    if target != "local":
        state = "not installed"
        if found.is_installed:
            state = (
                "installed" if found.is_current else "installed, but the pipeline file has changed"
            )
            state += ", paused" if found.is_paused else ""
        facts.append((target, state))
    if found.next_run is not None:
        facts.append(("next run", f"{found.next_run:%Y-%m-%d %H:%M %Z}"))
    facts.append(("runs", str(len(found.runs)) if found.runs else "none yet"))
    print(styled(plan.name, "bold"))
    print_facts(facts)
    if found.runs:
        print()
        rows = [_run_row(one) for one in found.runs[:_SHOWN_RUNS]]
        print_columns(("RUN", "STATE", "BEGAN", "TOOK"), rows)
        _print_steps(found.runs[0])
    steps = [(f"headgate workflow run {file}{_option(target)}", "start a run")]
    if found.runs and found.runs[0].failed:
        repairing = f"headgate workflow repair {file}{_option(target)}"
        steps.insert(0, (repairing, "run the failed steps again"))
    if target != "local" and not (found.is_installed and found.is_current):
        installing = f"headgate workflow install {file} --target {target}"
        steps.insert(0, (installing, "install it as declared"))
    print_next_steps(steps)


def _took(began: datetime | None, ended: datetime | None, before: str = "") -> str:
    if began is None or ended is None:
        return ""
    return f"{before}{(ended - began).total_seconds():.0f} s"


def _print_steps(run: WorkflowRun) -> None:
    print()
    rows = [
        (
            step.name,
            step.state,
            str(step.attempts or ""),
            _took(step.began, step.ended),
            step.error or "",
        )
        for step in run.steps
    ]
    print_columns(("STEP", "STATE", "ATTEMPTS", "TOOK", "ERROR"), rows, right=("ATTEMPTS", "TOOK"))
    logs = [step.log for step in run.failed if step.log]
    for log in logs[:1]:
        print(f"\nLog of {run.failed[0].name}: {printable(log)}")


def _print_changes(changes: Sequence[Change]) -> None:
    for change in changes:
        print(f"{change.action.capitalize()} {change.what} {printable(change.where)}")
