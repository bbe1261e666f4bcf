"""Databricks as a target of workflows: a job that is installed, run, repaired and removed."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import headgate
from headgate.cluster.wheel import build_wheel
from headgate.config import Secret
from headgate.engine.session import app_name
from headgate.errors import UsageError, WorkflowError, extra_missing
from headgate.workflow.databricks_bundle import REQUIREMENTS, bundle_of, folder_of, texts_of
from headgate.workflow.databricks_checks import check_databricks
from headgate.workflow.databricks_job import TAG, Json, Places, job_of, webhooks
from headgate.workflow.databricks_runs import run_of
from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import (
    Change,
    OnChange,
    State,
    WorkflowRun,
    WorkflowStatus,
    wait_until_over,
)

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.jobs import BaseJob

_RELEASE = "release-"
_PAUSED = "PAUSED"
_RUNS_SHOWN = 5


@dataclass(frozen=True)
class _Release:
    """The files that a job reads, in a folder that is named after their content.

    Tasks that run while a newer release is installed keep their own.
    """

    folder: str
    files: Mapping[str, bytes]
    wheel: str

    @classmethod
    def of(cls, plan: WorkflowPlan, wheel: Path) -> _Release:
        files = {name: text.encode() for name, text in texts_of(plan).items()}
        files[wheel.name] = wheel.read_bytes()
        digest = hashlib.sha256()
        for name, content in sorted(files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        folder = f"{folder_of(plan)}/{_RELEASE}{digest.hexdigest()[:16]}"
        return cls(folder, files, wheel.name)

    def places(self, plan: WorkflowPlan, destinations: Mapping[str, str]) -> Places:
        return Places(
            file=f"{self.folder}/{Path(plan.file).name}",
            wheel=f"{self.folder}/{self.wheel}",
            requirements=f"{self.folder}/{REQUIREMENTS}",
            destinations=destinations,
        )


class DatabricksTarget:
    """A workspace of Databricks that a workflow is installed in, through its API."""

    def __init__(
        self,
        plan: WorkflowPlan,
        wheel: str | None = None,
        *,
        every: float = 5.0,
        give_up_after: int = 60,
    ) -> None:
        """`wheel` is that of Headgate, which otherwise is built; times are in seconds."""
        self._plan = plan
        self._wheel = wheel
        self._every = every
        self._give_up_after = give_up_after

    @classmethod
    def of(cls, plan: WorkflowPlan, wheel: str | None = None) -> DatabricksTarget:
        return cls(plan, wheel)

    def render(self) -> Mapping[str, str]:
        """Return the files of an Asset Bundle, except for the wheel in `dist`."""
        check_databricks(self._plan)
        return bundle_of(self._plan)

    def wheel(self, folder: Path) -> Path:
        """Write the wheel of Headgate to a folder, and return its path."""
        if self._wheel is None:
            return build_wheel(folder)
        given = Path(self._wheel)
        if not given.is_file() or given.suffix != ".whl":
            message = f"is not a wheel: {given}"
            raise UsageError("bad-argument", message, "give the path of a file `headgate-….whl`")
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / given.name
        copy.write_bytes(given.read_bytes())
        return copy

    def install(self) -> Sequence[Change]:
        check_databricks(self._plan)
        release = self._release()
        with self._reported():
            destinations, created = self._destinations()
            changes = [*created, *self._upload(release)]
            job = job_of(self._plan, release.places(self._plan, destinations))
            changes.append(self._put(job))
            self._delete_other_releases(release)
        return changes

    def run(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        with self._reported():
            job_id = self._installed_id()
            # With a token, a request that is repeated does not start a second run.
            begun = self._client.jobs.run_now(job_id, idempotency_token=str(uuid4()))
            return self._followed(begun.run_id, on_change, wait)

    def repair(self, on_change: OnChange, wait: bool = True) -> WorkflowRun:
        with self._reported():
            job_id = self._installed_id()
            latest = next(iter(self._client.jobs.list_runs(job_id=job_id, limit=1)), None)
            if latest is None or latest.run_id is None:
                raise self._missing("has no run to repair", "headgate workflow run starts one")
            found = self._client.jobs.get_run(latest.run_id, include_history=True)
            run = run_of(found, self._plan)
            if run.state is State.SUCCEEDED:
                raise self._missing("has no run to repair: the latest has succeeded")
            if not run.state.is_over:
                message = f"the latest run of {self._plan.name} is not over: {run.url or run.id}"
                hint = "wait until it is over, or cancel it, then repair it"
                raise WorkflowError("scheduler-refused", message, hint)
            repairs = [one.id for one in found.repair_history or () if _is_repair(one.type)]
            self._client.jobs.repair_run(
                latest.run_id,
                rerun_all_failed_tasks=True,
                rerun_dependent_tasks=True,
                latest_repair_id=repairs[-1] if repairs else None,
            )
            return self._followed(latest.run_id, on_change, wait)

    def status(self) -> WorkflowStatus:
        with self._reported():
            jobs = self._jobs()
            if not jobs:
                return WorkflowStatus(is_installed=False, is_current=False)
            job_id = jobs[0].job_id or 0
            runs = self._client.jobs.list_runs(job_id=job_id, limit=_RUNS_SHOWN, expand_tasks=True)
            shown = tuple(
                run_of(run, self._plan) for run, _ in zip(runs, range(_RUNS_SHOWN), strict=False)
            )
            installed = self._settings_of(job_id)
            is_paused = _pause_status(installed) == _PAUSED
            return WorkflowStatus(
                is_installed=True,
                is_current=self._is_current(installed),
                runs=shown,
                next_run=None if is_paused else self._next_run(),
                is_paused=is_paused,
            )

    def remove(self) -> Sequence[Change]:
        with self._reported():
            return [*self._delete_jobs(), *self._delete_destinations(), *self._delete_files()]

    @cached_property
    def _client(self) -> WorkspaceClient:
        try:
            from databricks.sdk import WorkspaceClient
            from databricks.sdk.config import Config
        except ImportError:
            raise extra_missing("databricks", ["databricks-sdk"]) from None
        try:
            config = Config(
                profile=self._plan.workflow.databricks.profile,
                product="headgate",
                product_version=headgate.__version__,
                retry_timeout_seconds=self._give_up_after,
            )
        except ValueError as error:
            message = f"no way to sign in to Databricks was found: {_message(error)}"
            raise WorkflowError("scheduler-refused", message, _SIGN_IN) from None
        return WorkspaceClient(config=config)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of the API as those of a scheduler."""
        client = self._client  # first: without the SDK, its errors cannot be imported
        from databricks.sdk.errors import (
            DeadlineExceeded,
            InternalError,
            PermissionDenied,
            TemporarilyUnavailable,
            TooManyRequests,
            Unauthenticated,
        )
        from databricks.sdk.errors.base import DatabricksError

        host = client.config.host
        busy = (InternalError, TemporarilyUnavailable, TooManyRequests, DeadlineExceeded)
        try:
            yield
        except (Unauthenticated, PermissionDenied) as error:
            may = _SIGN_IN if isinstance(error, Unauthenticated) else _MAY
            message = f"Databricks at {host} refuses: {_message(error)}"
            raise WorkflowError("scheduler-refused", message, may) from None
        except busy as error:
            message = f"Databricks at {host} fails: {_message(error)}"
            raise WorkflowError("scheduler-unavailable", message, _LATER) from None
        except DatabricksError as error:
            message = f"Databricks at {host} refuses: {_message(error)}"
            raise WorkflowError("scheduler-refused", message) from None
        except OSError as error:
            cause = error.__cause__ or error
            message = f"Databricks at {host} does not answer: {_message(cause)}"
            raise WorkflowError("scheduler-unavailable", message, _REACH) from None

    def _release(self) -> _Release:
        with tempfile.TemporaryDirectory() as folder:
            return _Release.of(self._plan, self.wheel(Path(folder)))

    def _destinations(self) -> tuple[dict[str, str], list[Change]]:
        """Return the IDs of notification destinations by webhook; those missing are created."""
        from databricks.sdk.service.settings import Config, GenericWebhookConfig

        wanted = webhooks(self._plan)
        known = self._known_destinations() if wanted else {}
        found: dict[str, str] = {}
        changes = []
        for name, webhook in wanted.items():
            title = self._title(name)
            if title not in known:
                url = webhook.resolve() if isinstance(webhook, Secret) else webhook
                with _unlogged():
                    made = self._client.notification_destinations.create(
                        config=Config(generic_webhook=GenericWebhookConfig(url=url)),
                        display_name=title,
                    )
                known[title] = made.id or ""
                changes.append(Change("destination", title))
            else:
                changes.append(Change("destination", title, "unchanged"))
            found[name] = known[title]
        return found, changes

    def _known_destinations(self) -> dict[str, str]:
        listed = self._client.notification_destinations.list()
        return {one.display_name or "": one.id or "" for one in listed}

    def _title(self, webhook: str) -> str:
        return f"{app_name(self._plan.name)}: {webhook}"

    def _upload(self, release: _Release) -> Iterator[Change]:
        """Upload the files of a release that the workspace does not have."""
        from databricks.sdk.service.workspace import ImportFormat

        known = self._names_in(release.folder)
        for name, content in release.files.items():
            path = f"{release.folder}/{name}"
            if name in known:
                yield Change("file", path, "unchanged")
                continue
            self._client.workspace.mkdirs(path.rpartition("/")[0])
            self._client.workspace.upload(path, content, format=ImportFormat.AUTO, overwrite=True)
            yield Change("file", path)

    def _names_in(self, folder: str) -> set[str]:
        """Return the files in a folder of the workspace and below it, relative to it."""
        from databricks.sdk.errors import NotFound

        with suppress(NotFound):
            found = self._client.workspace.list(folder, recursive=True)
            # Paths may come without `/Workspace`.
            inside = f"{folder.rpartition('/')[2]}/"
            return {(one.path or "").partition(inside)[2] for one in found}
        return set()

    def _put(self, job: Json) -> Change:
        """Create the job, or bring the one that is installed up to date."""
        from databricks.sdk.service.jobs import JobSettings

        jobs = self._jobs()
        if not jobs:
            created = self._client.jobs.create(**JobSettings.from_dict(job).as_shallow_dict())
            return Change("job", self._url_of(created.job_id))
        job_id = jobs[0].job_id or 0
        installed = self._settings_of(job_id)
        wanted = _paused_like(installed, job)
        if _has(installed, wanted):
            return Change("job", self._url_of(job_id), "unchanged")
        self._client.jobs.reset(job_id, JobSettings.from_dict(wanted))
        return Change("job", self._url_of(job_id), "updated")

    def _is_current(self, installed: Json) -> bool:
        known = self._known_destinations() if webhooks(self._plan) else {}
        found = {name: known.get(self._title(name), "") for name in webhooks(self._plan)}
        job = job_of(self._plan, self._release().places(self._plan, found))
        return _has(installed, _paused_like(installed, job))

    def _jobs(self) -> list[BaseJob]:
        """Return the installed job, the oldest first should there be several."""
        name = app_name(self._plan.name)
        found = [
            job
            for job in self._client.jobs.list(name=name)
            if job.settings and (job.settings.tags or {}).get(TAG) == self._plan.name
        ]
        return sorted(found, key=lambda job: job.job_id or 0)

    def _settings_of(self, job_id: int) -> Json:
        settings = self._client.jobs.get(job_id).settings
        return settings.as_dict() if settings else {}

    def _installed_id(self) -> int:
        jobs = self._jobs()
        if not jobs:
            raise self._missing("is not installed", "headgate workflow install --target databricks")
        return jobs[0].job_id or 0

    def _missing(self, what: str, hint: str | None = None) -> WorkflowError:
        return WorkflowError("workflow-missing", f"the workflow of {self._plan.name} {what}", hint)

    def _url_of(self, job_id: int | None) -> str:
        return f"{self._client.config.host}/jobs/{job_id}"

    def _followed(self, run_id: int, on_change: OnChange, wait: bool) -> WorkflowRun:
        def look() -> WorkflowRun:
            run = run_of(self._client.jobs.get_run(run_id), self._plan)
            return self._explained(run_id, run) if run.state.is_over else run

        if wait:
            return wait_until_over(look, on_change, self._every)
        run = look()
        on_change(run)
        return run

    def _explained(self, run_id: int, run: WorkflowRun) -> WorkflowRun:
        """Return a run whose failed steps have the errors of their output."""
        if not run.failed:
            return run
        from databricks.sdk.errors.base import DatabricksError

        found = self._client.jobs.get_run(run_id)
        attempts = sorted(found.tasks or (), key=lambda one: one.attempt_number or 0)
        last = {task.task_key: task.run_id or 0 for task in attempts}
        errors: dict[str, str] = {}
        for step in run.failed:
            with suppress(DatabricksError):
                errors[step.name] = self._client.jobs.get_run_output(last[step.name]).error or ""
        return run_of(found, self._plan, errors)

    def _next_run(self) -> datetime | None:
        workflow = self._plan.workflow
        if workflow.schedule is None:
            return None
        return next(workflow.schedule.after(datetime.now(UTC), ZoneInfo(workflow.timezone)), None)

    def _delete_jobs(self) -> Iterator[Change]:
        for job in self._jobs():
            self._client.jobs.cancel_all_runs(job_id=job.job_id)
            self._client.jobs.delete(job.job_id or 0)
            yield Change("job", self._url_of(job.job_id), "removed")

    def _delete_destinations(self) -> Iterator[Change]:
        from databricks.sdk.errors import PermissionDenied

        prefix = self._title("")
        with suppress(PermissionDenied):  # who may not list them has not created any
            for title, number in self._known_destinations().items():
                if title.startswith(prefix):
                    self._client.notification_destinations.delete(number)
                    yield Change("destination", title, "removed")

    def _delete_files(self) -> Iterator[Change]:
        folder = folder_of(self._plan)
        releases = self._releases()
        for path in releases:
            self._client.workspace.delete(path, recursive=True)
            yield Change("folder", path, "removed")
        if releases and not [*self._client.workspace.list(folder)]:
            self._client.workspace.delete(folder)
            yield Change("folder", folder, "removed")

    def _delete_other_releases(self, current: _Release) -> None:
        """Delete the files of earlier releases, unless a run may still read them."""
        others = [path for path in self._releases() if path != current.folder]
        job_id = self._installed_id()
        if not others or any(self._client.jobs.list_runs(job_id=job_id, active_only=True, limit=1)):
            return
        for path in others:
            self._client.workspace.delete(path, recursive=True)

    def _releases(self) -> list[str]:
        from databricks.sdk.errors import NotFound

        folder = folder_of(self._plan)
        with suppress(NotFound):
            names = [
                (one.path or "").rpartition("/")[2] for one in self._client.workspace.list(folder)
            ]
            return [f"{folder}/{name}" for name in names if name.startswith(_RELEASE)]
        return []


_SIGN_IN = (
    "set DATABRICKS_HOST and DATABRICKS_TOKEN, or name a profile of .databrickscfg in "
    "`workflow.databricks.profile`"
)
_MAY = "ask for permission to create jobs and to write to `workflow.databricks.folder`"
_LATER = "try again later"
_REACH = "check DATABRICKS_HOST, and that the workspace can be reached from here"


def _message(error: BaseException) -> str:
    """Return the first line of an error, without the settings that the SDK adds to some."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].partition(". Config:")[0].rstrip(".")


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep a request with a secret out of the log, in which the SDK puts bodies when debugging."""
    logger = logging.getLogger("databricks.sdk")
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)


def _is_repair(kind: object) -> bool:
    return getattr(kind, "value", None) == "REPAIR"


def _has(installed: Any, wanted: Any) -> bool:
    """Whether a value from the API has all that is wanted: it comes with defaults added."""
    match wanted:
        case dict():
            return isinstance(installed, dict) and all(
                _has(installed.get(key), value) for key, value in wanted.items()
            )
        case list():
            if not isinstance(installed, list) or len(installed) != len(wanted):
                return False
            pairs = zip(_in_order(installed), _in_order(wanted), strict=True)
            return all(_has(one, other) for one, other in pairs)
        case _:
            return bool(installed == wanted)


def _in_order(values: list[Any]) -> list[Any]:
    """Return tasks and clusters by key: the API may return them in another order."""

    def key(value: Any) -> str:
        given = value if isinstance(value, dict) else {}
        return str(given.get("task_key") or given.get("job_cluster_key") or "")

    return sorted(values, key=key) if all(map(key, values)) else values


def _pause_status(job: Json) -> str | None:
    trigger = job.get("schedule") or job.get("continuous") or {}
    status: str | None = trigger.get("pause_status")
    return status


def _paused_like(installed: Json, job: Json) -> Json:
    """Return a job that is paused if the installed one is: an update does not resume it."""
    if _pause_status(installed) != _PAUSED:
        return job
    return {
        key: {**value, "pause_status": _PAUSED} if key in ("schedule", "continuous") else value
        for key, value in job.items()
    }
