"""Tasks in a session that exists already, as on Databricks, but without its runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.registry.folder import FolderRegistry
from tests.workflow.workflows import RECORDS

ROOT = Path(__file__).parents[2]


def test_task_lands_in_the_session_that_exists(tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text(f"{RECORDS}commit: spark\n")
    registry = FolderRegistry(tmp_path / "schemas")
    inbox = DeltaDestination(str(tmp_path / "inbox"), "games")
    [*_] = simulate_games(GamesPlan(tables=2, versions=1, records=50), registry, inbox)
    done = subprocess.run(
        [sys.executable, "-m", "tests.workflow.on_databricks"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "landed": None,
        "failed": "RuntimeError: headgate failed with status 1",
        "same": True,
        "name": "Databricks Shell",
        "zone": "UTC",
        "batch": "2000",
    }
    assert len([*(tmp_path / "lake").glob("silver_*")]) == 2
