"""Airflow as the scheduler of a workflow: a DAG in its folder, and runs through its API."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from headgate.errors import UsageError, WorkflowError
from headgate.workflow.airflow.api import AirflowApi
from headgate.workflow.airflow.dag import dag_id, render_dag
from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import (
    Change,
    OnChange,
    State,
    StepRun,
    WorkflowRun,
    WorkflowStatus,
    wait_until_over,
)

_LOAD_SECONDS = 360.0
"""Airflow looks for new files every five minutes, unless it is set otherwise."""
_POLL = 0.5
_LATEST = 5
_LONGEST = 300
_OUTPUT = "SubprocessHook"
"""The logger of a command's output."""
_EXIT = "Command exited with return code"

_ACTIVE = ("running", "queued")
_RUN_STATES = {
    "queued": State.WAITING,
    "running": State.RUNNING,
    "success": State.SUCCEEDED,
    "failed": State.FAILED,
}
_STEP_STATES = {
    "running": State.RUNNING,
    "restarting": State.RUNNING,
    "deferred": State.RUNNING,
    "up_for_retry": State.RETRYING,
    "success": State.SUCCEEDED,
    "failed": State.FAILED,
    "upstream_failed": State.SKIPPED,
    "skipped": State.SKIPPED,
    "removed": State.CANCELED,
}
"""States of tasks that are not waiting."""


class AirflowTarget:
    """A workflow in Airflow 3."""

    def __init__(self, plan: WorkflowPlan, api: AirflowApi) -> None:
        self._plan = plan
        self._api = api
        self._dag = dag_id(plan)
        self._dags = plan.workflow.airflow.dags
        self._errors: dict[tuple[str, str, int], str | None] = {}

    @classmethod
    def of(cls, plan: WorkflowPlan) -> AirflowTarget:
        return cls(plan, AirflowApi(plan.workflow.airflow))

    def render(self) -> Mapping[str, str]:
        return {f"{self._dag}.py": render_dag(self._plan)}

    def install(self) -> Sequence[Change]:
        file, text = self._required_file(), render_dag(self._plan)
        installed = _read(file)
        if installed == text:
            return [Change("file", file, "unchanged")]
        unfinished = os.path.join(os.path.dirname(file), f".{self._dag}.unfinished")
        try:
            with open(unfinished, "w", encoding="utf-8") as written:
                written.write(text)
            os.replace(unfinished, file)
        except OSError as error:
            message = f"cannot write the DAG: {error.strerror}"
            hint = "`workflow.airflow.dags` must be a folder that you can write to"
            raise UsageError("bad-argument", message, hint, where=file) from None
        return [Change("file", file, "created" if installed is None else "updated")]

    def run(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        self._unpause(self._loaded_dag())
        if self._plan.workflow.is_continuous:
            return self._follow(self._continuous_run(), on_change, wait)
        started = self._api.post("dags", self._dag, "dagRuns", body={"logical_date": None})
        if started is None:
            raise self._not_installed()
        return self._follow(started["dag_run_id"], on_change, wait)

    def _continuous_run(self) -> str:
        """Return the run of a continuous workflow, which Airflow begins by itself."""
        deadline = time.monotonic() + _LOAD_SECONDS
        while not (active := self._runs(limit=1, state=_ACTIVE)):
            if time.monotonic() > deadline:
                message = "Airflow has not begun a run of the continuous workflow"
                hint = "check that Airflow's scheduler runs"
                raise WorkflowError("scheduler-unavailable", message, hint, where=self._api.url)
            time.sleep(_POLL)
        return str(active[0]["dag_run_id"])

    def repair(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        dag = self._loaded_dag()
        latest = self._runs(limit=1)
        if not latest:
            raise self._nothing_to_repair("the workflow has not run yet")
        run = self._run(latest[0])
        steps = [
            step.name
            for step in run.steps
            if step.state.is_over and step.state is not State.SUCCEEDED
        ]
        if not steps:
            raise self._nothing_to_repair("no step of the latest run has failed")
        self._unpause(dag)
        # By name: what has been skipped because the run was stopped must run, too.
        self._api.post(
            "dags",
            self._dag,
            "clearTaskInstances",
            body={
                "dry_run": False,
                "dag_run_id": run.id,
                "task_ids": steps,
                "only_failed": False,
                "reset_dag_runs": True,
                "run_on_latest_version": True,
            },
        )
        return self._follow(run.id, on_change, wait)

    def status(self) -> WorkflowStatus:
        dag = self._dag_in_airflow()
        installed = self._source() if self._dags is None else self._installed_text()
        is_installed, is_current = installed is not None, installed == render_dag(self._plan)
        if dag is None:
            return WorkflowStatus(is_installed, is_current)
        return WorkflowStatus(
            is_installed,
            is_current,
            runs=tuple(self._run(run) for run in self._runs(limit=_LATEST)),
            next_run=None if dag["is_paused"] else _time(dag["next_dagrun_run_after"]),
            is_paused=dag["is_paused"],
        )

    def remove(self) -> Sequence[Change]:
        changes: list[Change] = []
        dag = self._dag_in_airflow(also_stale=True)
        if dag is not None and not dag["is_stale"]:
            # Without it, the file would stay, and Airflow would load the DAG again.
            self._required_file()
        if dag is not None:
            self._api.patch("dags", self._dag, body={"is_paused": True})
            for run in self._runs(limit=_LATEST, state=_ACTIVE):
                path = ("dags", self._dag, "dagRuns", run["dag_run_id"])
                self._api.patch(*path, body={"state": "failed"})
        # The file first, because Airflow would load the DAG from it again.
        file = self._file()
        if file is not None and os.path.exists(file):
            os.unlink(file)
            changes.append(Change("file", file, "removed"))
        if dag is not None:
            self._api.delete("dags", self._dag)
            changes.append(Change("DAG", self._api.page("dags", self._dag), "removed"))
        return changes

    def _file(self) -> str | None:
        return None if self._dags is None else os.path.join(self._dags, f"{self._dag}.py")

    def _required_file(self) -> str:
        file = self._file()
        if file is None:
            message = "`workflow.airflow.dags` is missing: the folder of DAGs"
            hint = "set it, or copy what `headgate workflow render` writes to that folder"
            raise UsageError("bad-argument", message, hint, where=self._plan.file)
        return file

    def _installed_text(self) -> str | None:
        file = self._file()
        return None if file is None else _read(file)

    def _dag_in_airflow(self, also_stale: bool = False) -> Any:
        dag = self._api.get("dags", self._dag)
        return dag if dag is None or also_stale or not dag["is_stale"] else None

    def _source(self) -> str | None:
        """Return the file that Airflow has loaded the DAG from."""
        source = self._api.get("dagSources", self._dag)
        return None if source is None else str(source["content"])

    def _loaded_dag(self) -> Any:
        """Return the DAG once Airflow has loaded what is installed."""
        installed = self._installed_text()
        if self._dags is None:
            dag = self._dag_in_airflow()
            if dag is None:
                raise self._not_installed()
            return dag
        if installed is None:
            raise self._not_installed()
        deadline = time.monotonic() + _LOAD_SECONDS
        asked = False
        while True:
            dag = self._dag_in_airflow()
            if dag is not None and self._source() == installed:
                return dag
            self._raise_import_error()
            if dag is not None and not asked:
                # It only saves time: Airflow loads changed files by itself, after a while.
                with suppress(WorkflowError):
                    self._api.put("parseDagFile", dag["file_token"])
                asked = True
            if time.monotonic() > deadline:
                raise WorkflowError(
                    "workflow-missing",
                    f"Airflow has not loaded the DAG within {_LOAD_SECONDS / 60:.0f} minutes",
                    "`workflow.airflow.dags` must be a folder of DAGs of this Airflow",
                    where=self._api.url,
                )
            time.sleep(_POLL)

    def _raise_import_error(self) -> None:
        """Raise if Airflow cannot import the installed file."""
        file = self._required_file()
        for error in self._api.all("import_errors", "importErrors"):
            when = _time(error["timestamp"])
            is_new = when is not None and when.timestamp() >= os.stat(file).st_mtime
            if os.path.basename(error["filename"]) == os.path.basename(file) and is_new:
                last = error["stack_trace"].strip().splitlines()[-1][:_LONGEST]
                message = f"Airflow cannot import the DAG: {last}"
                raise WorkflowError("scheduler-refused", message, where=file)

    def _unpause(self, dag: Any) -> None:
        if dag["is_paused"]:
            self._api.patch("dags", self._dag, body={"is_paused": False})

    def _runs(self, limit: int, state: Sequence[str] = ()) -> list[Any]:
        """Return runs as Airflow describes them, the newest first."""
        query = [("limit", limit), ("order_by", "-run_after"), *(("state", one) for one in state)]
        answer = self._api.get("dags", self._dag, "dagRuns", query=query)
        return [] if answer is None else list(answer["dag_runs"])

    def _follow(self, run: str, on_change: OnChange, wait: bool) -> WorkflowRun:
        def look() -> WorkflowRun:
            found = self._api.get("dags", self._dag, "dagRuns", run)
            if found is None:
                raise self._not_installed()
            return self._run(found)

        return wait_until_over(look, on_change) if wait else look()

    def _run(self, run: Any) -> WorkflowRun:
        path = ("dags", self._dag, "dagRuns", run["dag_run_id"])
        tasks = self._api.all("task_instances", *path, "taskInstances")
        places = {step.name: place for place, step in enumerate(self._plan.steps)}
        tasks.sort(key=lambda task: places.get(task["task_id"], len(places)))
        return WorkflowRun(
            id=run["dag_run_id"],
            state=_RUN_STATES.get(run["state"], State.RUNNING),
            steps=tuple(self._step(task) for task in tasks),
            began=_time(run["start_date"]),
            ended=_time(run["end_date"]),
            url=self._api.page("dags", self._dag, "runs", run["dag_run_id"]),
        )

    def _step(self, task: Any) -> StepRun:
        run, name = task["dag_run_id"], task["task_id"]
        state = _STEP_STATES.get(task["state"], State.WAITING)
        has_failed = state in (State.FAILED, State.RETRYING)
        return StepRun(
            name=name,
            state=state,
            attempts=task["try_number"],
            began=_time(task["start_date"]),
            ended=_time(task["end_date"]),
            error=self._error(run, name, task["try_number"]) if has_failed else None,
            log=self._api.page("dags", self._dag, "runs", run, "tasks", name),
        )

    def _error(self, run: str, step: str, attempt: int) -> str | None:
        """Return why an attempt failed, from its log, which is read once."""
        key = (run, step, attempt)
        if key not in self._errors:
            path = ("dags", self._dag, "dagRuns", run, "taskInstances", step, "logs", str(attempt))
            log = self._api.get(*path) if attempt else None
            self._errors[key] = _last_error(log["content"]) if log else None
        return self._errors[key]

    def _not_installed(self) -> WorkflowError:
        return WorkflowError(
            "workflow-missing",
            f"the workflow of {self._plan.name} is not installed in Airflow",
            f"run: headgate workflow install {self._plan.file} --target airflow",
            where=self._file() or self._api.url,
        )

    def _nothing_to_repair(self, why: str) -> WorkflowError:
        return WorkflowError("workflow-missing", f"nothing to repair: {why}", where=self._api.url)


def _read(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8") as text:
            return text.read()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _last_error(log: object) -> str | None:
    """Return the last error that a command has printed, else its last line, else the exception."""
    events = [line for line in log if isinstance(line, dict)] if isinstance(log, list) else []
    output = [
        str(line.get("event")).strip()
        for line in events
        if str(line.get("logger")).endswith(_OUTPUT)
    ]
    begin = output.index("Output:") + 1 if "Output:" in output else len(output)
    printed = [line for line in output[begin:] if line and not line.startswith(_EXIT)]
    errors = [line.removeprefix("error: ") for line in printed if line.startswith("error: ")]
    raised = [
        str(error.get("exc_value"))
        for line in events
        for error in line.get("error_detail") or ()
        if isinstance(error, dict)
    ]
    found = [*raised[-1:], *printed[-1:], *errors[-1:]]
    return found[-1][:_LONGEST] if found else None
