"""A workflow as an Asset Bundle of Databricks: files that `databricks bundle deploy` installs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import yaml

from headgate.cluster.wheel import pinned_requirements
from headgate.errors import UsageError
from headgate.workflow.databricks.checks import files_beside
from headgate.workflow.databricks.job import Json, Places, job_of, webhooks
from headgate.workflow.plan import WorkflowPlan

REQUIREMENTS = "requirements.txt"
_WHEELS = "dist"
"""Folder of the wheel in the bundle."""
_HEADER = "# Written by `headgate workflow render`; changes belong in the pipeline file.\n"


def bundle_of(plan: WorkflowPlan) -> dict[str, str]:
    """Return the files of the bundle, by path."""
    key = f"headgate_{plan.name.replace('-', '_')}"
    names = webhooks(plan)
    job = job_of(
        plan,
        Places(
            file=f"${{workspace.file_path}}/{os.path.basename(plan.file)}",
            wheel=f"../{_WHEELS}/*.whl",
            requirements=f"../{REQUIREMENTS}",
            destinations={name: f"${{var.{_variable(name)}}}" for name in names},
        ),
    )
    # A bundle declares it per target: a copy for development runs as its developer.
    run_as = job.pop("run_as", None)
    declared = plan.workflow.databricks
    target: Json = {"mode": "production", "workspace": {"root_path": f"{folder_of(plan)}/bundle"}}
    if run_as is not None:
        target["run_as"] = run_as
    bundle: Json = {
        "bundle": {"name": key},
        "include": ["resources/*.yml"],
        # The wheel is uploaded as a library.
        "sync": {"exclude": [f"{_WHEELS}/**"]},
    }
    if declared.profile is not None:
        bundle["workspace"] = {"profile": declared.profile}
    if names:
        bundle["variables"] = {
            _variable(name): {"description": f"ID of the notification destination for {name}"}
            for name in names
        }
    bundle["targets"] = {"dev": {"mode": "development", "default": True}, "prod": target}
    return {
        "databricks.yml": _yaml(bundle),
        f"resources/{key}.job.yml": _yaml({"resources": {"jobs": {key: job}}}),
        **texts_of(plan),
    }


def texts_of(plan: WorkflowPlan) -> dict[str, str]:
    """Return the files that tasks read: the pipeline file, those that it names, requirements."""
    files = {os.path.basename(plan.file): plan.file, **files_beside(plan)}
    return {
        **{name: _text(path) for name, path in files.items()},
        REQUIREMENTS: "".join(f"{one}\n" for one in pinned_requirements(_extras(plan))),
    }


def folder_of(plan: WorkflowPlan) -> str:
    """Return the folder of the workspace that a workflow is installed in."""
    folder = plan.workflow.databricks.folder or f"/Workspace/Shared/headgate/{plan.name}"
    return folder.rstrip("/")


def _extras(plan: WorkflowPlan) -> list[str]:
    kinds: set[str] = {secret.kind for secret in plan.pipeline.secrets}
    needed = {
        "databricks": "databricks" in kinds,
        "models": bool(plan.pipeline.predict or plan.pipeline.train),
    }
    return [extra for extra, is_needed in needed.items() if is_needed]


def _variable(webhook: str) -> str:
    return f"destination_{webhook}"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read as text: {error}"
        raise UsageError("bad-argument", message) from None


class _Dumper(yaml.SafeDumper):
    """Writes values that occur twice twice, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(value: Mapping[str, object]) -> str:
    return _HEADER + yaml.dump(
        dict(value), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True
    )
