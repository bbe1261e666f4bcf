"""Two runs of one pipeline: once another has taken over, the first cannot go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.config import load_pipeline
from headgate.engine.runner import RunOptions
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.services import Services
from headgate.run import run_pipeline
from tests.run.conftest import places, simulate

PLAN = GamesPlan(tables=3, versions=1, records=300, bad_share=0.01)


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a run in a process of its own, and wait until it has landed something."""
    command = [sys.executable, "-m", "headgate", "run", str(file), "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as run:
        try:
            assert run.stdout is not None
            next(line for line in run.stdout if "landed" in line)
            yield run
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


def test_suspended_run_cannot_go_on_after_another_has_taken_over(
    spark: SparkSession, services: Services, topic: str, tmp_path: Path
) -> None:
    """The other one has a checkpoint of its own: its batches are not those of the first."""
    file = tmp_path / "games.yaml"
    file.write_text(
        f"""
name: games
source:
  kafka: {{servers: "{services.servers}", topics: [{topic}]}}
registry: {services.registry}
envelope:
  wrapper: {{message: wrapper, route: game_name, schema_id: schema_id, payload: payload}}
lake: ./lake
trigger: 100ms
"""
    )
    pipeline = load_pipeline(file)
    elsewhere = pipeline.model_copy(update={"checkpoint": str(tmp_path / "elsewhere")})
    destination = KafkaDestination(services.servers, topic)
    simulate(PLAN, pipeline.schema_registry, destination)
    with running(file) as first:
        os.kill(first.pid, signal.SIGSTOP)
        simulate(PLAN, pipeline.schema_registry, destination)
        # As if it had expired.
        Path(pipeline.lake, "_staged", "games.lock").unlink()
        run_pipeline(elsewhere, RunOptions(once=True, from_ledger=True))
        os.kill(first.pid, signal.SIGCONT)
        simulate(PLAN, pipeline.schema_registry, destination)
        printed, _ = first.communicate(timeout=600)
    assert first.returncode == 1
    assert "run-replaced" in printed, printed
    run_pipeline(elsewhere, RunOptions(once=True))
    found = places(pipeline.lake) + places(pipeline.lake, "quarantine")
    assert found.total() == 900
    assert set(found.values()) == {1}
