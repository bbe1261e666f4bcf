"""Whether Databricks can run a pipeline: all that it could not reach there, found beforehand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import yaml

from headgate.config import Cluster, Secret
from headgate.config.kafka import Kafka
from headgate.config.location import absolute, is_remote
from headgate.config.predict import is_sql_file
from headgate.errors import Finding, InvalidPipeline, shown
from headgate.workflow.databricks.job import cluster_of, cluster_settings
from headgate.workflow.plan import WorkflowPlan

_MOUNTED = ("/Volumes/", "/Workspace/", "/dbfs/")
"""Folders that all machines of a cluster have."""
_IN_A_VOLUME = "put it into a volume, `/Volumes/…`, or give a URL such as `s3://bucket/…`"
_HERE = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0")


def check_databricks(plan: WorkflowPlan) -> None:
    """Raise `InvalidPipeline` with everything for which the workflow cannot run on Databricks."""
    findings = [
        Finding(code, f"`{key}` {message}", plan.file, hint=hint)
        for key, code, message, hint in (
            *_workflow(plan),
            *_places(plan),
            *_servers(plan),
            *_files(plan),
            *_secrets(plan),
        )
    ]
    if findings:
        raise InvalidPipeline.because_of(findings)


_Problem = tuple[str, str, str, str]
"""A key of the file, and code, message and hint of what is wrong with it."""


def _workflow(plan: WorkflowPlan) -> Iterator[_Problem]:
    workflow = plan.workflow
    where = workflow.databricks.folder
    if not workflow.databricks.clusters:
        hint = "declare one: `clusters: {main: {node_type: i3.xlarge}}`"
        yield "workflow.databricks.clusters", "missing-key", "is missing", hint
    if where is not None and not where.startswith("/Workspace/"):
        message = f"is not a folder of the workspace: {shown(where)}"
        hint = "write its full path, such as `/Workspace/Shared/headgate/games`"
        yield "workflow.databricks.folder", "bad-value", message, hint
    schedule = None if workflow.is_continuous else workflow.schedule
    if workflow.is_continuous and any(step.after for step in plan.steps):
        message = "cannot be `continuous` for tasks that come after others on Databricks"
        hint = "use a cron expression, or only tasks without `after`"
        yield "workflow.schedule", "bad-value", message, hint
    elif schedule is not None and len(schedule.days) < 31 and len(schedule.weekdays) < 7:
        message = f"names days and weekdays, of which Databricks takes one: {shown(str(schedule))}"
        hint = "use `*` for the day of the month, or for the weekday"
        yield "workflow.schedule", "bad-value", message, hint
    if plan.pipeline.commit != "spark":
        yield (
            "commit",
            "bad-choice",
            f"must be `spark` on Databricks, not {shown(plan.pipeline.commit)}",
            "Databricks coordinates commits of its own, and on S3 does not see the conditional "
            "puts of delta-rs: a commit of one could replace that of the other",
        )
    catalog = plan.pipeline.catalog
    if catalog is not None and catalog.is_hive:
        message = f"cannot be a Hive metastore on Databricks: {shown(catalog.in_)}"
        hint = f"name a catalog of Unity Catalog: `catalog: {{name: {catalog.name}, in: main}}`"
        yield "catalog.in", "bad-value", message, hint


def _places(plan: WorkflowPlan) -> Iterator[_Problem]:
    pipeline = plan.pipeline
    places = {"lake": pipeline.lake, "checkpoint": pipeline.checkpoint}
    if not isinstance(pipeline.source, Kafka):
        places["source"] = pipeline.source.path
    if pipeline.registry is not None and pipeline.registry.folder is not None:
        places["registry.folder"] = pipeline.registry.folder
    for key, place in places.items():
        if not is_remote(place) and not place.startswith(_MOUNTED):
            message = f"is a folder of this machine, which Databricks cannot reach: {shown(place)}"
            yield key, "bad-value", message, _IN_A_VOLUME


def _servers(plan: WorkflowPlan) -> Iterator[_Problem]:
    pipeline = plan.pipeline
    servers: dict[str, Sequence[str]] = {}
    if isinstance(pipeline.source, Kafka):
        servers["source.kafka.servers"] = [
            f"//{one.strip()}" for one in pipeline.source.servers.split(",")
        ]
    if pipeline.registry is not None and pipeline.registry.url is not None:
        servers["registry.url"] = [pipeline.registry.url]
    if pipeline.storage.endpoint is not None:
        servers["storage.endpoint"] = [pipeline.storage.endpoint]
    for key, urls in servers.items():
        for url in urls:
            if _HERE.fullmatch(urlsplit(url).hostname or ""):
                message = f"is this machine, which Databricks cannot reach: {shown(url.strip('/'))}"
                yield key, "bad-value", message, "give an address that clusters can reach"


def _files(plan: WorkflowPlan) -> Iterator[_Problem]:
    beside = set(files_beside(plan).values())
    for key, path in _declared_files(plan).items():
        if path.startswith(_MOUNTED):
            continue
        if key.endswith(".key"):
            message = f"is a private key, which is not uploaded: {shown(path)}"
            yield key, "bad-value", message, "put it into a volume that only the job can read"
        elif path not in beside:
            message = f"is a file of this machine, which Databricks cannot reach: {shown(path)}"
            hint = "name it relative to the pipeline file, in its folder: it is uploaded with it"
            yield key, "bad-value", message, hint


def _declared_files(plan: WorkflowPlan) -> dict[str, str]:
    """Return the files that the pipeline file names, by key."""
    pipeline = plan.pipeline
    security = "source.kafka.security"
    models = {"registry": pipeline.registry, security: getattr(pipeline.source, "security", None)}
    models["envelope"] = pipeline.envelope
    names = ("ca", "certificate", "key", "proto")
    found = {
        f"{key}.{name}": getattr(model, name, None)
        for key, model in models.items()
        for name in names
    }
    return {key: path for key, path in found.items() if isinstance(path, str)}


def files_beside(plan: WorkflowPlan) -> dict[str, str]:
    """Return the files that the pipeline file names relative to its folder, which go along with it.

    They are in the folder, or in one below it. Private keys do not go along.
    """
    with open(plan.file, encoding="utf-8-sig") as file:
        written = yaml.safe_load(file)
    declared = _declared_files(plan)
    wanted = {path for key, path in declared.items() if not key.endswith(".key")}
    found: dict[str, str] = {}
    for text in _texts(written):
        path = absolute(text.strip(), plan.folder)
        relative = os.path.relpath(path, plan.folder)
        is_beside = not os.path.isabs(text) and not relative.startswith("..")
        if is_beside and (path in wanted or is_sql_file(text)) and os.path.isfile(path):
            found[relative] = path
    return found


def _texts(written: object) -> Iterator[str]:
    match written:
        case str():
            yield written
        case dict():
            for value in written.values():
                yield from _texts(value)
        case list():
            for value in written:
                yield from _texts(value)


def _secrets(plan: WorkflowPlan) -> Iterator[_Problem]:
    scope = plan.workflow.databricks.secret_scope
    settings = _settings(plan)
    of_settings = {one for one in settings.values() if isinstance(one, Secret)}
    variables = [one for one in needed_secrets(plan) if one.kind == "env"]
    if variables and scope is None and _new_clusters(plan):
        yield (
            "workflow.databricks.secret_scope",
            "missing-key",
            f"is missing: the pipeline needs the secret `{variables[0]}`",
            f"name a scope that has the key `{variables[0].name}`: "
            "databricks secrets put-secret SCOPE KEY",
        )
    hint = "use `env:NAME`, which `workflow.databricks.secret_scope` has under its name"
    for key, value in settings.items():
        if isinstance(value, Secret) and value.kind not in _OF_SCOPES:
            message = f"cannot be `{value}`: clusters take only secrets of a scope"
            yield key, "bad-value", message, hint
    for secret in plan.pipeline.secrets:
        is_read = secret.kind == "file" and secret not in of_settings
        if is_read and not secret.name.startswith(_MOUNTED):
            message = f"is in a file of this machine, which Databricks cannot read: `{secret}`"
            yield "secret", "bad-value", message, hint


_OF_SCOPES = ("env", "databricks")


def _settings(plan: WorkflowPlan) -> dict[str, str | Secret]:
    """Return the settings of Spark on all clusters that are created."""
    clusters = _new_clusters(plan)
    return {key: one for each in clusters for key, one in cluster_settings(plan, each).items()}


def _new_clusters(plan: WorkflowPlan) -> list[Cluster]:
    workflow = plan.workflow
    if not workflow.databricks.clusters:
        return []
    clusters = [cluster_of(workflow, step) for step in plan.steps]
    return [one for one in clusters if one.existing is None]


def needed_secrets(plan: WorkflowPlan) -> list[Secret]:
    """Return the secrets that tasks or their clusters need, once."""
    of_settings = [one for one in _settings(plan).values() if isinstance(one, Secret)]
    return list(dict.fromkeys((*plan.pipeline.secrets, *of_settings)))
