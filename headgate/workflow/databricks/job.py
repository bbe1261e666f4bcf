"""A workflow as a job of Databricks: one value in the shape of the Jobs API.

A bundle and a direct installation have the same job; they differ in where it finds its files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import headgate
from headgate.config import Cluster, Secret, Workflow
from headgate.config.schedule import Schedule
from headgate.config.workflow import is_email
from headgate.engine.session import app_name, pipeline_settings
from headgate.workflow.plan import Step, WorkflowPlan

Json = dict[str, Any]

TAG = "headgate"
"""Tag with the name of the pipeline, by which an installed job is found."""

_UNPAUSED = "UNPAUSED"
_SINGLE_NODE = {
    "spark.databricks.cluster.profile": "singleNode",
    "spark.master": "local[*, 4]",
}
_NOT_OF_A_CLUSTER = re.compile(
    r"spark\.(?:master|home|app\.name|jars(?:\..*)?|files|archives|submit\..*|pyspark\..*|ui\..*"
    r"|driver\.(?:memory|host|bindAddress|port)|kubernetes\..*|yarn\..*|headgate\..*"
    r"|executorEnv\.PYTHONPATH|hadoop\.fs\.s3\.impl)"
)
"""Settings that a runtime makes itself."""


@dataclass(frozen=True)
class Places:
    """Where a job finds its files, and the webhooks that it notifies."""

    file: str
    """The pipeline file."""
    wheel: str
    requirements: str
    destinations: Mapping[str, str]
    """IDs of notification destinations, by the name of the webhook."""


def job_of(plan: WorkflowPlan, places: Places) -> Json:
    """Return the job of a workflow, as `jobs/create` takes it."""
    workflow = plan.workflow
    steps = WorkflowPlan.of(plan.pipeline, places.file).steps
    job: Json = {
        "name": app_name(plan.name),
        "tags": {TAG: plan.name, "headgate_version": headgate.__version__},
        "max_concurrent_runs": 1,
        "job_clusters": _job_clusters(plan, steps),
        "tasks": [_task(plan, step, places) for step in steps],
        **_notices(plan, places, failure=workflow.notify.failure, success=workflow.notify.success),
    }
    if workflow.is_continuous:
        # Databricks repeats failed tasks itself, and starts the next run.
        job["continuous"] = {"pause_status": _UNPAUSED, "task_retry_mode": "ON_FAILURE"}
    else:
        job["queue"] = {"enabled": True}
    if workflow.schedule is not None and not workflow.is_continuous:
        job["schedule"] = {
            "quartz_cron_expression": quartz(workflow.schedule),
            "timezone_id": workflow.timezone,
            "pause_status": _UNPAUSED,
        }
    if workflow.databricks.run_as is not None:
        job["run_as"] = run_as(workflow.databricks.run_as)
    return {key: value for key, value in job.items() if value or key == "tasks"}


def _task(plan: WorkflowPlan, step: Step, places: Places) -> Json:
    workflow = plan.workflow
    by_headgate = ("workflow", "run", places.file, "--only", step.name)
    task: Json = {"task_key": step.name}
    if step.after:
        task["depends_on"] = [{"task_key": name} for name in step.after]
    task["python_wheel_task"] = {
        "package_name": "headgate",
        "entry_point": "headgate",
        "parameters": [*(step.command if step.is_headgate else by_headgate)],
    }
    cluster = cluster_of(workflow, step)
    if cluster.existing is not None:
        task["existing_cluster_id"] = cluster.existing
    else:
        task["job_cluster_key"] = _cluster_key(workflow, step)
    # Pinned versions first: the wheel then finds its requirements installed.
    task["libraries"] = [{"requirements": places.requirements}, {"whl": places.wheel}]
    if not workflow.is_continuous:
        task["max_retries"] = step.retries
        task["min_retry_interval_millis"] = step.retry_wait.milliseconds
    if step.timeout is not None:
        task["timeout_seconds"] = max(1, round(step.timeout.total_seconds()))
        if not workflow.is_continuous:
            task["retry_on_timeout"] = True
    if workflow.notify.retry and (step.retries or workflow.is_continuous):
        # Sent for every attempt, the last one included: Databricks knows no other way.
        task |= _notices(plan, places, failure=workflow.notify.retry)
        task["notification_settings"] = {"alert_on_last_attempt": False}
    return task


def cluster_of(workflow: Workflow, step: Step) -> Cluster:
    return workflow.databricks.clusters[_cluster_name(workflow, step)]


def _cluster_name(workflow: Workflow, step: Step) -> str:
    return step.cluster or next(iter(workflow.databricks.clusters))


def _cluster_key(workflow: Workflow, step: Step) -> str:
    """Return the key of a step's cluster: that of its group of shards, or the declared one."""
    if step.group is None:
        return _cluster_name(workflow, step)
    key = f"{step.task}_{step.group}"
    while key in workflow.databricks.clusters:
        key += "_"
    return key


def _job_clusters(plan: WorkflowPlan, steps: Sequence[Step]) -> list[Json]:
    workflow = plan.workflow
    clusters = {
        _cluster_key(workflow, step): cluster_of(workflow, step)
        for step in steps
        if cluster_of(workflow, step).existing is None
    }
    return [
        {"job_cluster_key": key, "new_cluster": _new_cluster(plan, cluster)}
        for key, cluster in clusters.items()
    ]


def _new_cluster(plan: WorkflowPlan, cluster: Cluster) -> Json:
    scope = plan.workflow.databricks.secret_scope
    given = cluster_settings(plan, cluster)
    spark = {
        key: _reference(value, scope) if isinstance(value, Secret) else value
        for key, value in given.items()
    }
    tags = {TAG: plan.name, **cluster.tags}
    if not cluster.workers:
        spark = {**_SINGLE_NODE, **spark}
        tags = {"ResourceClass": "SingleNode", **tags}
    new: Json = {
        "spark_version": cluster.runtime,
        "node_type_id": cluster.node_type,
        "instance_pool_id": cluster.pool,
        "policy_id": cluster.policy,
        "apply_policy_default_values": True if cluster.policy else None,
        "num_workers": cluster.workers,
        # Tables of Unity Catalog need it, and Python needs the Spark context.
        "data_security_mode": "SINGLE_USER",
        "spark_conf": spark,
        "spark_env_vars": {
            secret.name: _reference(secret, scope) for secret in variables(plan.pipeline.secrets)
        },
        "custom_tags": tags,
    }
    return {key: value for key, value in new.items() if value not in (None, {})}


def cluster_settings(plan: WorkflowPlan, cluster: Cluster) -> dict[str, str | Secret]:
    """Return the settings of Spark on a cluster: those of the pipeline, and its own."""
    settings = {**pipeline_settings(plan.pipeline), **cluster.spark}
    return {key: one for key, one in settings.items() if not _NOT_OF_A_CLUSTER.fullmatch(key)}


def variables(secrets: Iterable[Secret]) -> list[Secret]:
    """Return the secrets that are environment variables, by name."""
    return sorted({one for one in secrets if one.kind == "env"}, key=lambda one: one.name)


def _reference(secret: Secret, scope: str | None) -> str:
    """Return a secret as clusters of Databricks refer to it."""
    place = f"{scope}/{secret.name}" if secret.kind == "env" else secret.name
    return f"{{{{secrets/{place}}}}}"


def run_as(name: str) -> Json:
    return {"user_name": name} if "@" in name else {"service_principal_name": name}


def _notices(
    plan: WorkflowPlan,
    places: Places,
    failure: Sequence[str | Secret] = (),
    success: Sequence[str | Secret] = (),
) -> Json:
    """Return who is notified, by e-mail and by webhook."""
    names = {recipient: name for name, recipient in webhooks(plan).items()}
    notices: Json = {}
    for event, recipients in (("on_failure", failure), ("on_success", success)):
        addresses = [one for one in recipients if is_email(one)]
        others = [{"id": places.destinations[names[one]]} for one in recipients if one in names]
        if addresses:
            notices.setdefault("email_notifications", {})[event] = addresses
        if others:
            notices.setdefault("webhook_notifications", {})[event] = others
    return notices


def webhooks(plan: WorkflowPlan) -> dict[str, str | Secret]:
    """Return the webhooks that are notified, by a name that has nothing secret."""
    found: dict[str, str | Secret] = {}
    for recipient in plan.workflow.notify.recipients:
        if is_email(recipient):
            continue
        place = recipient.name if isinstance(recipient, Secret) else urlsplit(recipient).hostname
        base = re.sub(r"[^a-z0-9]+", "_", os.path.basename(place or "").lower()).strip("_")
        name, number = base or "webhook", 2
        while name in found:
            name, number = f"{base}_{number}", number + 1
        found[name] = recipient
    return found


def quartz(schedule: Schedule) -> str:
    """Return a schedule as Quartz has it: with seconds, and `?` for the days that do not count."""
    days = _field(schedule.days, 31)
    weekdays = _field([day + 1 for day in schedule.weekdays], 7)
    if weekdays == "*":
        weekdays = "?"
    else:
        days = "?"
    minutes, hours = _field(schedule.minutes, 60), _field(schedule.hours, 24)
    return f"0 {minutes} {hours} {days} {_field(schedule.months, 12)} {weekdays}"


def _field(values: Sequence[int], of: int) -> str:
    """Return values as a field of Quartz: `*`, `0,30`, `6-22`."""
    if len(values) == of:
        return "*"
    ranges: list[list[int]] = []
    for value in values:
        if ranges and value == ranges[-1][-1] + 1:
            ranges[-1].append(value)
        else:
            ranges.append([value])
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in ranges)


PAUSED = "PAUSED"


def has_all(installed: Any, wanted: Any) -> bool:
    """Whether a job, or a part of one, from the API has all that is wanted.

    The API adds defaults, and may return tasks and clusters in another order.
    """
    match wanted:
        case dict():
            return isinstance(installed, dict) and all(
                has_all(installed.get(key), value) for key, value in wanted.items()
            )
        case list():
            if not isinstance(installed, list) or len(installed) != len(wanted):
                return False
            pairs = zip(_in_order(installed), _in_order(wanted), strict=True)
            return all(has_all(one, other) for one, other in pairs)
        case _:
            return bool(installed == wanted)


def _in_order(values: list[Any]) -> list[Any]:
    def key(value: Any) -> str:
        given = value if isinstance(value, dict) else {}
        return str(given.get("task_key") or given.get("job_cluster_key") or "")

    return sorted(values, key=key) if all(map(key, values)) else values


def pause_status(job: Json) -> str | None:
    trigger = job.get("schedule") or job.get("continuous") or {}
    status: str | None = trigger.get("pause_status")
    return status


def paused_like(installed: Json, job: Json) -> Json:
    """Return a job that is paused if the installed one is: an update does not resume it."""
    if pause_status(installed) != PAUSED:
        return job
    return {
        key: {**value, "pause_status": PAUSED} if key in ("schedule", "continuous") else value
        for key, value in job.items()
    }
