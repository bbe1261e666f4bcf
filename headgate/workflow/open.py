"""Opens the target of a workflow by its name."""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import UsageError, did_you_mean, listed
from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import Target

LOCAL = "local"
TARGETS = ("airflow", "databricks", "systemd", "cron", LOCAL)


def open_target(
    name: str,
    plan: WorkflowPlan,
    report: Callable[[str], None] = lambda _: None,
    wheel: str | None = None,
) -> Target:
    """Return a target.

    `report` gets warnings, such as of a notice that could not be sent. `wheel` is that of Headgate
    for Databricks; it is built if none is given.
    """
    # Imported only if chosen: some need packages of an extra.
    match name:
        case "local":
            from headgate.workflow.local import LocalTarget

            return LocalTarget(plan, report=report)
        case "airflow":
            from headgate.workflow.airflow.target import AirflowTarget

            return AirflowTarget.of(plan)
        case "databricks":
            from headgate.workflow.databricks.target import DatabricksTarget

            return DatabricksTarget.of(plan, wheel)
        case "systemd":
            from headgate.workflow.systemd import SystemdTarget

            return SystemdTarget(plan, report=report)
        case "cron":
            from headgate.workflow.cron import CronTarget

            return CronTarget(plan, report=report)
    hint = did_you_mean(name, TARGETS) or f"targets: {listed(TARGETS)}"
    raise UsageError("bad-argument", f"unknown target `{name}`", hint)
