"""A run that is killed, or asked to stop, while it lands."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headgate.config import Registry
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.services import Services
from tests.rounds import some
from tests.run.conftest import places, simulate

RECORDS = 12_000


@pytest.fixture
def pipeline_file(services: Services, topic: str, tmp_path: Path) -> Path:
    file = tmp_path / "games.yaml"
    file.write_text(
        f"""
name: games
source:
  kafka: {{servers: "{services.servers}", topics: [{topic}], batch: 1500}}
registry: {services.registry}
envelope:
  wrapper: {{message: wrapper, route: game_name, schema_id: schema_id, payload: payload}}
lake: ./lake
bronze: bronze_games
trigger: 100ms
gold:
  players_{{route}}: SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name
  names_{{route}}: SELECT user_name FROM silver
"""
    )
    plan = GamesPlan(tables=8, versions=3, records=RECORDS, bad_share=0.01)
    simulate(plan, Registry(url=services.registry), KafkaDestination(services.servers, topic))
    return file


def headgate(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headgate", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.soak
@pytest.mark.parametrize("cases", [20])
def test_killed_runs_lose_nothing_and_land_nothing_twice(pipeline_file: Path, cases: int) -> None:
    lake, chance = str(pipeline_file.parent / "lake"), random.Random(7)
    for _ in range(cases):
        run = headgate("run", str(pipeline_file), "--json")
        assert run.stdout is not None
        # After some batches, at whatever point of the next one it happens to be.
        for _ in range(chance.randint(1, 6)):
            assert run.stdout.readline()
        run.kill()
        run.communicate()

    last = headgate("run", str(pipeline_file), "--once", "--json")
    _, errors = last.communicate(timeout=500)

    assert last.returncode == 0, errors
    found = places(lake) + places(lake, "quarantine")
    assert found.total() == RECORDS
    assert set(found.values()) == {1}
    assert set(places(lake, "bronze_games").values()) == {1}
    for silver in Path(lake).glob("silver_*"):
        game = silver.name.removeprefix("silver_")
        players = Counter(column(silver, "user_name"))
        assert Counter(column(silver.with_name(f"names_{game}"), "user_name")) == players
        derived = DeltaTable(silver.with_name(f"players_{game}")).to_pyarrow_table().to_pylist()
        assert {row["user_name"]: row["sessions"] for row in derived} == players


def column(table: Path, name: str) -> list[str]:
    values: list[str] = DeltaTable(table).to_pyarrow_table(columns=[name])[name].to_pylist()
    return values


@pytest.mark.parametrize("asked", some([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_stopped_run_finishes_its_batch_and_exits_with_0(
    asked: signal.Signals, pipeline_file: Path
) -> None:
    run = headgate("run", str(pipeline_file), "--json")
    assert run.stdout is not None
    assert run.stdout.readline()
    run.send_signal(asked)
    _, errors = run.communicate(timeout=400)

    assert run.returncode == 0, errors
    lake = str(pipeline_file.parent / "lake")
    assert set((places(lake) + places(lake, "quarantine")).values()) <= {1}
