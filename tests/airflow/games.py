"""Pipelines of games with a workflow, for tests of Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from headgate.config import load_pipeline
from headgate.workflow.plan import WorkflowPlan

_ENVELOPE = {"message": "wrapper", "route": "game_name", "schema_id": "schema_id"}
GAMES = {
    "name": "games",
    "source": {"delta": {"path": "./inbox"}},
    "registry": "./schemas",
    "envelope": {"wrapper": {**_ENVELOPE, "payload": "payload"}},
    "lake": "./lake",
    "silver": "silver_{route}_events",
}
HEADGATE = "/opt/headgate/bin/headgate"

HOSTILE_WORDS = (
    "it's",
    '"$(touch out)"',
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{# a #}",
    "`id`",
    "\\n",
    "*",
)
HOSTILE_FOLDER = 'it\'s "{{ ds }}" $(id)\n#.sh'

_MANY = {
    "schedule": "30 4 * * mon-fri",
    "timezone": "Europe/Berlin",
    "retries": 3,
    "retry_wait": "2m",
    "timeout": "6h",
    "notify": {
        "failure": ["data-team@example.com", "env:GAMES_WEBHOOK", "https://hooks.example.com/x"],
        "retry": "data-team@example.com",
        "success": "file:/run/secrets/webhook",
    },
    "tasks": {
        "land": "land",
        "report": {"command": "dbt build", "after": "land", "retries": 0, "timeout": "30m"},
        "check-rows": {"command": ["./check.sh"], "after": "land", "retry_wait": "10s"},
        "publish": {"command": "publish --all", "after": ["report", "check-rows"]},
    },
    "airflow": {"headgate": HEADGATE, "pool": "lakes", "smtp_connection": "mail"},
}
_SHARDS = {
    "schedule": "hourly",
    "streams_per_cluster": 2,
    "tasks": {
        "land": "land",
        "follow": {"do": "follow", "after": "land"},
        "verify": {"command": "verify", "after": "follow"},
    },
    "airflow": {"headgate": HEADGATE},
}
_HOSTILE = {
    "notify": {"failure": ["{{ds}}@example.com", "https://example.com/'{{ds}}"]},
    "tasks": {
        "DAG": {"command": ["python", "-c", "pass", *HOSTILE_WORDS]},
        "class": {"command": ["FOO=bar", "time", "a.sh"], "after": "DAG"},
        "a-b": {"command": "open", "after": "DAG"},
        "a_b": {"command": "print", "after": ["DAG", "a-b"]},
    },
    "airflow": {
        "headgate": HEADGATE,
        "pool": "'); import os; ('",
        "smtp_connection": "{{ conn }}'",
    },
}


def plans(folder: Path) -> Mapping[str, WorkflowPlan]:
    """Return a plan for each golden file, by its name."""
    srv = "/srv/games/games.yaml"
    continuous = {"schedule": "continuous", "airflow": {"headgate": HEADGATE}}
    by_hand = {"airflow": {"headgate": HEADGATE}}
    return {
        "schedule": plan_of(folder, _MANY, srv),
        "shards": plan_of(folder, _SHARDS, srv, {"shards": 4}),
        "continuous": plan_of(folder, continuous, srv),
        "by_hand": plan_of(folder, by_hand, srv, {"maintain": True}),
        "hostile": plan_of(folder, _HOSTILE, f"/srv/{HOSTILE_FOLDER}/ga'mes.yaml"),
    }


def plan_of(
    folder: Path,
    workflow: Mapping[str, object],
    file: str | None = None,
    more: Mapping[str, object] | None = None,
) -> WorkflowPlan:
    """Return the plan of a pipeline file, which may pretend to be another file."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "games.yaml"
    written.write_text(yaml.safe_dump({**GAMES, **(more or {}), "workflow": {**workflow}}))
    return WorkflowPlan.of(load_pipeline(written), file)
