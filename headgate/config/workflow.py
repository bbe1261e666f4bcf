"""Workflows: the tasks of a pipeline, when they run, and where they are installed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal, Self, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from headgate.config.location import LocalFolder, folder_of, reject_credentials
from headgate.config.model import ConfigModel, Path, invalid_at, invalid_at_paths
from headgate.config.schedule import Schedule
from headgate.config.secrets import Secret, Username, settings_checked_by
from headgate.config.units import Duration
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

Job = Literal["land", "stream", "follow", "train", "maintain", "verify"]
JOBS: tuple[str, ...] = get_args(Job)

_TASK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_ADDRESS = re.compile(r"[^@\s,;:<>\"]+@[^@\s,;:<>\"]+")
_SECRET_PATHS = ("hooks.slack.com", "webhook.office.com", "discord.com", "chat.googleapis.com")
"""Hosts of services whose webhooks have a secret in the path of the URL."""
_WEBHOOK_HINT = "give it as a reference, such as `env:WEBHOOK`"


def _read_recipient(value: object, info: ValidationInfo) -> str | Secret:
    """Return an e-mail address or a URL as it is, and a reference to a URL as a secret."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value.strip():
        hint = "write an e-mail address, or the URL of a webhook, better a reference to it"
        raise InvalidPipeline("wrong-type", f"needs a recipient, not {shown(value)}", hint)
    if _ADDRESS.fullmatch(value):
        return value
    if not re.match(r"https?://", value):
        return Secret.parse(value, folder_of(info))
    url = urlsplit(reject_credentials(value))
    host = url.hostname or ""
    if url.query or any(host == one or host.endswith(f".{one}") for one in _SECRET_PATHS):
        raise InvalidPipeline("secret-in-file", "has a secret in the URL", _WEBHOOK_HINT)
    return value


Recipient = Annotated[str | Secret, PlainValidator(_read_recipient, json_schema_input_type=str)]
"""An e-mail address, or a webhook: its URL, or a reference to it."""


def is_email(recipient: str | Secret) -> bool:
    return isinstance(recipient, str) and "://" not in recipient


def _as_list(given: object) -> object:
    return (given,) if isinstance(given, str | Secret) else given


Recipients = Annotated[
    tuple[Recipient, ...], BeforeValidator(_as_list, json_schema_input_type=Sequence[str] | str)
]


class Notify(ConfigModel):
    """Who is notified of what: e-mail addresses and webhooks."""

    failure: Recipients = Field(default=(), examples=["data-team@example.com"])
    """Recipients of failures: a task has failed for the last time."""

    retry: Recipients = ()
    """Recipients of failed attempts that will be repeated."""

    success: Recipients = ()
    """Recipients of runs that have succeeded."""

    @property
    def recipients(self) -> list[str | Secret]:
        return list(dict.fromkeys((*self.failure, *self.retry, *self.success)))


def _check_server(server: str) -> str:
    parts = urlsplit(f"smtp://{reject_credentials(server)}")
    try:
        is_server = bool(parts.hostname) and not parts.path and (parts.port or 1) > 0
    except ValueError:
        is_server = False
    if not is_server:
        hint = "write host and port: `smtp.example.com:587`"
        raise InvalidPipeline("bad-value", f"is not a mail server: {shown(server)}", hint)
    return server


def _check_sender(sender: str) -> str:
    if not _ADDRESS.fullmatch(sender):
        raise InvalidPipeline("bad-value", f"is not an e-mail address: {shown(sender)}")
    return sender


class Email(ConfigModel):
    """The mail server of notices that Headgate sends itself. Databricks and Airflow have theirs."""

    smtp: Annotated[str, AfterValidator(_check_server)] = "localhost:25"
    """Host and port of the mail server."""

    sender: Annotated[str, AfterValidator(_check_sender)] = Field(examples=["headgate@example.com"])
    """Address that notices come from."""

    username: Username | None = None
    """User name for the mail server."""

    password: Secret | None = None
    """Password for the mail server."""

    security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is encrypted; `none` only without a password."""

    @model_validator(mode="after")
    def _password_is_encrypted(self) -> Self:
        if self.password is not None and self.security == "none":
            message = "cannot be `none` with a password"
            raise invalid_at({"security": InvalidPipeline("bad-value", message)})
        if (self.password is None) != (self.username is None):
            given, needed = ("username", "password") if self.username else ("password", "username")
            raise invalid_at({given: InvalidPipeline("missing-key", f"needs `{needed}`")})
        return self


def _read_command(given: object) -> object:
    if isinstance(given, str):
        try:
            return tuple(shlex.split(given))
        except ValueError as error:
            raise InvalidPipeline("bad-value", f"cannot be {shown(given)}: {error}") from None
    return given


def _check_command(words: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    if not words or not words[0].strip():
        raise InvalidPipeline("bad-value", "needs a command", "such as `[dbt, build]`")
    if any("\0" in word or "\n" in word for word in words):
        raise InvalidPipeline("bad-value", "has a line break", "put it into a script, and run that")
    return words


class Task(ConfigModel):
    """A task of a workflow: a job of the pipeline, or any command."""

    do: Job | None = None
    """`land` what the source has now, `stream` until stopped, `follow` (bring merged and derived
    tables up to date), `train` models, `maintain` tables, or `verify` them."""

    command: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(_read_command, json_schema_input_type=Sequence[str] | str | None),
        AfterValidator(_check_command),
    ] = Field(default=None, examples=["dbt build"])
    """A command instead, run in the folder of the pipeline file, without a shell."""

    after: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_list, json_schema_input_type=Sequence[str] | str),
    ] = ()
    """Tasks that must succeed before this one begins."""

    retries: int | None = Field(default=None, strict=True, ge=0, le=1000)
    """Instead of the workflow's `retries`."""

    retry_wait: Duration | None = None
    """Instead of the workflow's `retry_wait`."""

    timeout: Duration | None = None
    """Instead of the workflow's `timeout`."""

    cluster: str | None = None
    """Name of a cluster under `databricks.clusters`."""

    @model_validator(mode="after")
    def _has_something_to_do(self) -> Self:
        if (self.do is None) == (self.command is None):
            error = InvalidPipeline("choose-one", "needs either `do` or `command`")
            raise invalid_at({"do": error})
        return self


def _expand_task(given: object) -> object:
    """Expand `land: land` to `land: {do: land}`."""
    if not isinstance(given, str):
        return given
    if given not in JOBS:
        hint = did_you_mean(given, JOBS) or f"use one of {listed(JOBS)}, or `{{command: …}}`"
        raise InvalidPipeline("bad-choice", f"cannot be {shown(given)}", hint)
    return {"do": given}


TaskField = Annotated[Task, BeforeValidator(_expand_task, json_schema_input_type=Task | str)]


class Cluster(ConfigModel):
    """A cluster of Databricks, created for a run and deleted after it."""

    runtime: str = Field(default="18.0.x-scala2.13", examples=["18.0.x-scala2.13"])
    """Version of the Databricks runtime."""

    node_type: str | None = Field(default=None, examples=["i3.xlarge"])
    """Type of the machines. Not needed with a pool, a policy or an existing cluster."""

    workers: int = Field(default=0, strict=True, ge=0)
    """Number of workers; 0 for a single machine."""

    pool: str | None = None
    """ID of an instance pool to take machines from."""

    policy: str | None = None
    """ID of a cluster policy."""

    existing: str | None = None
    """ID of a cluster that runs already, instead of a new one."""

    spark: Annotated[Mapping[str, str | Secret], settings_checked_by(lambda _: None)] = Field(
        default_factory=dict
    )
    """Settings of Spark on the cluster."""

    tags: Mapping[str, str] = Field(default_factory=dict)
    """Tags of the cluster."""

    @model_validator(mode="after")
    def _has_machines(self) -> Self:
        if not (self.node_type or self.pool or self.policy or self.existing):
            message = "is missing"
            hint = "a cluster has a `node_type`, a `pool`, a `policy`, or is an `existing` one"
            raise invalid_at({"node_type": InvalidPipeline("missing-key", message, hint)})
        return self


class Databricks(ConfigModel):
    """How a workflow is installed on Databricks."""

    folder: str | None = Field(default=None, examples=["/Workspace/Shared/headgate/games"])
    """Folder of the workspace for the wheel and the pipeline file. Defaults to
    `/Workspace/Shared/headgate/<name>`."""

    secret_scope: str | None = Field(default=None, examples=["games"])
    """Scope that has the secrets of `env:NAME` references, by name."""

    clusters: Mapping[str, Cluster] = Field(default_factory=dict)
    """Clusters by name. Tasks without one run on the first."""

    run_as: str | None = None
    """User or service principal that runs the tasks. Defaults to the one that installs."""

    profile: str | None = None
    """Profile in `.databrickscfg`. Defaults to the environment, as for Databricks' own tools."""


class Airflow(ConfigModel):
    """How a workflow is installed in Airflow."""

    dags: LocalFolder | None = Field(default=None, examples=["/opt/airflow/dags"])
    """Folder of DAGs, to which the file of this workflow is written."""

    url: Annotated[str, AfterValidator(reject_credentials)] = "http://localhost:8080"
    """URL of Airflow's API."""

    username: Username | None = None
    """User name for the API."""

    password: Secret | None = None
    """Password for the API."""

    smtp_connection: str = "smtp_default"
    """Airflow's connection to the mail server, for notices by e-mail."""

    pool: str = "default_pool"
    """Airflow's pool for the tasks."""

    headgate: str | None = Field(default=None, examples=["/opt/headgate/bin/headgate"])
    """Path of the command `headgate` on Airflow's workers. Defaults to that on this machine."""


def _check_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = "use a name such as `UTC` or `Europe/Berlin`"
        raise InvalidPipeline("bad-value", f"is not a time zone: {shown(zone)}", hint) from None
    return zone


def _check_task_names(tasks: Mapping[str, Task]) -> Mapping[str, Task]:
    errors: dict[str | int, InvalidPipeline] = {
        name: InvalidPipeline(
            "bad-value",
            f"cannot be the name of a task: {shown(name)}",
            "start with a letter, then up to 62 letters, digits, `_` and `-`",
        )
        for name in tasks
        if not _TASK_NAME.fullmatch(name)
    }
    if errors:
        raise invalid_at(errors)
    return tasks


class Workflow(ConfigModel):
    """The tasks of a pipeline, when they run, and who is notified."""

    schedule: Schedule | None = Field(default=None, examples=["0 * * * *"])
    """When the workflow runs: a cron expression, `hourly`, `daily`, `weekly`, `monthly`, or
    `continuous`. Without one, it is started by hand."""

    timezone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    """Time zone of the schedule."""

    tasks: Annotated[Mapping[str, TaskField], AfterValidator(_check_task_names)] = Field(
        default_factory=dict, examples=[{"land": "land", "report": {"command": "dbt build"}}]
    )
    """Tasks by name. Defaults to landing, then training, maintaining and verifying what the
    pipeline declares; to a stream with `schedule: continuous`."""

    retries: int = Field(default=10, strict=True, ge=0, le=1000)
    """How often a task is repeated after it has failed."""

    retry_wait: Duration = Duration(seconds=30)
    """Time between attempts, at least."""

    timeout: Duration | None = None
    """How long an attempt may take. No limit by default."""

    notify: Notify = Notify()
    """Who is notified of failures, retries and successes."""

    email: Email | None = None
    """Mail server of notices that Headgate sends itself."""

    streams_per_cluster: int = Field(default=10, strict=True, ge=1)
    """How many shards share a cluster; on one machine, how many tasks run at the same time."""

    databricks: Databricks = Databricks()
    """How the workflow is installed on Databricks."""

    airflow: Airflow = Airflow()
    """How the workflow is installed in Airflow."""

    @property
    def secrets(self) -> Iterator[Secret]:
        """Yield every secret that the workflow refers to."""
        values = [*self.notify.recipients, self.airflow.username, self.airflow.password]
        values += [self.email.username, self.email.password] if self.email else []
        values += [
            value for one in self.databricks.clusters.values() for value in one.spark.values()
        ]
        yield from (value for value in values if isinstance(value, Secret))

    @property
    def is_continuous(self) -> bool:
        return self.schedule is not None and self.schedule.is_continuous

    @model_validator(mode="after")
    def _tasks_depend_on_others(self) -> Self:
        errors: dict[Path, InvalidPipeline] = {}
        for name, task in self.tasks.items():
            for other in task.after:
                at = ("tasks", name, "after")
                if other not in self.tasks:
                    hint = did_you_mean(other, self.tasks) or f"tasks: {listed(self.tasks)}"
                    message = f"names an unknown task: {shown(other)}"
                    errors[at] = InvalidPipeline("bad-value", message, hint)
                elif self.tasks[other].do == "stream":
                    message = f"names {shown(other)}, a stream, which never ends"
                    hint = f"`do: land` in {shown(other)} lands what there is, and ends"
                    errors[at] = InvalidPipeline("bad-value", message, hint)
            known = self.databricks.clusters
            if task.cluster is not None and task.cluster not in known:
                hint = did_you_mean(task.cluster, known) or "declare it in `databricks.clusters`"
                message = f"is not declared: {shown(task.cluster)}"
                errors["tasks", name, "cluster"] = InvalidPipeline("bad-value", message, hint)
        if errors:
            raise invalid_at_paths(errors)
        try:
            TopologicalSorter({name: task.after for name, task in self.tasks.items()}).prepare()
        except CycleError as error:
            around = " → ".join(reversed(error.args[1]))
            message = f"depend on each other: {around}"
            raise invalid_at({"tasks": InvalidPipeline("bad-value", message)}) from None
        return self

    @model_validator(mode="after")
    def _streams_are_continuous(self) -> Self:
        streams = [name for name, task in self.tasks.items() if task.do == "stream"]
        if streams and not self.is_continuous:
            message = "is for `schedule: continuous`: it never ends"
            hint = "use `do: land`, which lands what the source has now"
            error = InvalidPipeline("bad-value", message, hint)
            raise invalid_at_paths({("tasks", streams[0], "do"): error})
        return self
