"""Small workflows for tests, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

from headgate.config import load_pipeline
from headgate.workflow.plan import WorkflowPlan

RECORDS = """\
name: games
source: {delta: {path: ./inbox}}
registry: ./schemas
envelope: {wrapper: {message: wrapper, route: game_name, schema_id: schema_id, payload: payload}}
lake: ./lake
"""


def plan_in(folder: Path, workflow: str = "", more: str = "") -> WorkflowPlan:
    """Return the plan of a pipeline of records, with a workflow as YAML below `workflow:`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "games.yaml"
    file.write_text(RECORDS + more + (f"workflow:\n{workflow}" if workflow else ""))
    return WorkflowPlan.of(load_pipeline(file))
