"""Databricks as a target of workflows: a job that is installed, run, repaired and removed."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import headgate
from headgate.cluster.wheel import build_wheel
from headgate.config import Secret
from headgate.engine.session import app_name
from headgate.errors import (
    PipelineFileError,
    UsageError,
    WorkflowError,
    extra_missing,
    listed,
)
from headgate.workflow.databricks.bundle import bundle_of, folder_of
from headgate.workflow.databricks.checks import check_databricks, needed_secrets
from headgate.workflow.databricks.files import Release, WorkspaceFolder
from headgate.workflow.databricks.job import (
    PAUSED,
    TAG,
    Json,
    has_all,
    job_of,
    pause_status,
    paused_like,
    variables,
    webhooks,
)
from headgate.workflow.databricks.runs import run_of
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

_RUNS_SHOWN = 5


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

    def wheel(self, folder: str | Path) -> Path:
        """Write the wheel of Headgate to a folder, and return its path."""
        folder = Path(folder)
        if self._wheel is None:
            return build_wheel(folder)
        given = Path(self._wheel)
        if not given.is_file() or given.suffix != ".whl":
            hint = "give the path of a file `headgate-….whl`"
            raise UsageError("bad-argument", f"{given} is not a wheel", hint)
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / given.name
        copy.write_bytes(given.read_bytes())
        return copy

    def install(self) -> Sequence[Change]:
        check_databricks(self._plan)
        release = self._release
        with self._reported():
            self._own_jobs()
            self._check_scope()
            destinations, changes = self._destinations()
            changes += self._folder.upload(release)
            job_id, action = self._put(job_of(self._plan, release.places(destinations)))
            changes.append(Change("job", self._url_of(job_id), action))
            if not self._is_running(job_id):  # a run may read the files of an earlier release
                changes += self._folder.delete(keep=release)
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
            shown = tuple(run_of(run, self._plan) for run in islice(runs, _RUNS_SHOWN))
            installed = self._settings_of(job_id)
            is_paused = pause_status(installed) == PAUSED
            return WorkflowStatus(
                is_installed=True,
                is_current=self._is_current(installed),
                runs=shown,
                next_run=None if is_paused else self._plan.next_run(),
                is_paused=is_paused,
            )

    def remove(self) -> Sequence[Change]:
        with self._reported():
            return [*self._delete_jobs(), *self._delete_destinations(), *self._folder.delete()]

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
        except BrokenPipeError:
            raise  # of the terminal that a run is shown in
        except OSError as error:
            cause = error.__cause__ or error
            message = f"Databricks at {host} does not answer: {_message(cause)}"
            raise WorkflowError("scheduler-unavailable", message, _REACH) from None

    @property
    def _folder(self) -> WorkspaceFolder:
        return WorkspaceFolder(self._client, folder_of(self._plan))

    @cached_property
    def _release(self) -> Release:
        """The files of this plan, packed once, however often the status is looked at."""
        with tempfile.TemporaryDirectory() as folder:
            return Release.of(self._plan, self.wheel(folder))

    def _check_scope(self) -> None:
        """Raise for secrets that the scope does not have, if its keys may be listed."""
        from databricks.sdk.errors import NotFound, PermissionDenied

        scope = self._plan.workflow.databricks.secret_scope
        needed = [secret.name for secret in variables(needed_secrets(self._plan))]
        if scope is None or not needed:
            return
        try:
            known = {(one.key or "").lower() for one in self._client.secrets.list_secrets(scope)}
        except PermissionDenied:
            return
        except NotFound:
            message = f"Databricks has no secret scope `{scope}`"
            hint = f"databricks secrets create-scope {scope}"
            raise PipelineFileError("secret-missing", message, hint) from None
        missing = [name for name in needed if name.lower() not in known]
        if missing:
            message = f"the secret scope `{scope}` has no key {listed(missing)}"
            hint = f"databricks secrets put-secret {scope} {missing[0]}"
            raise PipelineFileError("secret-missing", message, hint)

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

    def _put(self, job: Json) -> tuple[int, str]:
        """Create the job, or bring the installed one up to date; return its ID and the action."""
        from databricks.sdk.service.jobs import JobSettings

        jobs = self._own_jobs()
        for surplus in jobs[1:]:  # of a request that was repeated because its response was lost
            self._client.jobs.delete(surplus.job_id or 0)
        if not jobs:
            created = self._client.jobs.create(**JobSettings.from_dict(job).as_shallow_dict())
            return created.job_id or 0, "created"
        job_id = jobs[0].job_id or 0
        installed = self._settings_of(job_id)
        wanted = paused_like(installed, job)
        if has_all(installed, wanted):
            return job_id, "unchanged"
        self._client.jobs.reset(job_id, JobSettings.from_dict(wanted))
        return job_id, "updated"

    def _is_current(self, installed: Json) -> bool:
        known = self._known_destinations() if webhooks(self._plan) else {}
        found = {name: known.get(self._title(name), "") for name in webhooks(self._plan)}
        job = job_of(self._plan, self._release.places(found))
        return has_all(installed, paused_like(installed, job))

    def _jobs(self) -> list[BaseJob]:
        """Return the installed job, the oldest first should there be several."""
        name = app_name(self._plan.name)
        found = [
            job
            for job in self._client.jobs.list(name=name)
            if job.settings and (job.settings.tags or {}).get(TAG) == self._plan.name
        ]
        return sorted(found, key=lambda job: job.job_id or 0)

    def _own_jobs(self) -> list[BaseJob]:
        """Return the installed job, unless it belongs to a bundle, whose state it must match."""
        jobs = self._jobs()
        of_bundle = [job for job in jobs if job.settings and job.settings.deployment]
        if of_bundle:
            where = self._url_of(of_bundle[0].job_id)
            message = f"the job of {self._plan.name} belongs to an Asset Bundle: {where}"
            hint = "use `databricks bundle deploy` and `databricks bundle destroy` for it"
            raise WorkflowError("scheduler-refused", message, hint)
        return jobs

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

    def _delete_jobs(self) -> Iterator[Change]:
        for job in self._own_jobs():
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

    def _is_running(self, job_id: int) -> bool:
        return any(self._client.jobs.list_runs(job_id=job_id, active_only=True, limit=1))


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
