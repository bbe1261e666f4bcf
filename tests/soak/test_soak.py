"""A long run with everything that happens in production: evolution, kills, OPTIMIZE and VACUUM."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from uuid import uuid4

from headgate.config import Registry
from headgate.lab.destination import KafkaDestination
from headgate.lab.services import Services
from headgate.registry.open import open_registry
from tests.kills.workloads import read
from tests.rounds import rounds
from tests.run.conftest import places
from tests.soak.beside import Maintenance, Producer, Run, Trend, repeatedly

MINUTES = int(os.environ.get("SOAK_MINUTES", "60"))
VERSIONS = 8
ENOUGH_TO_COMPARE = 30
"""Samples from which on a trend means something."""


@rounds(8, MINUTES * 60)
def test_landing_goes_on_beside_kills_and_maintenance(
    services: Services, tmp_path: Path, cases: int
) -> None:
    seconds = cases
    topic = f"games-{uuid4().hex[:8]}"
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
bronze: bronze_games
trigger: 1s
gold:
  players_{{route}}: SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name
"""
    )
    lake, chance = tmp_path / "lake", random.Random(1)
    destination = KafkaDestination(services.servers, topic)
    run, maintenance = Run(file), Maintenance(lake, random.Random(2))
    with closing(open_registry(Registry(url=services.registry))) as registry:
        producer = Producer(registry, destination, seconds / VERSIONS)
        producer.send()
        run.start()
        steps: dict[Callable[[], None], Callable[[], float]] = {
            producer.send: lambda: 0.5,
            maintenance.maintain: lambda: chance.uniform(0.2, 2),
            run.restart: lambda: chance.uniform(min(15, seconds / 3), min(90, seconds / 2)),
            run.sample: lambda: 2 + seconds / 600,
        }
        stop = Event()
        with ExitStack() as beside:
            beside.callback(run.kill)
            for step, pause in steps.items():
                beside.enter_context(repeatedly(step, pause, stop))
            stop.wait(seconds)
    last = subprocess.run(
        [sys.executable, "-m", "headgate", "run", str(file), "--once", "--json"],
        capture_output=True,
        text=True,
    )
    assert last.returncode == 0, last.stdout + last.stderr
    _print(run, maintenance, producer)
    _assert_complete(lake, producer.sent)
    if len(run.samples) >= ENOUGH_TO_COMPARE:
        assert Trend.of([float(one.rss) for one in run.samples]).grew_at_most(1.5)
        assert Trend.of([float(one.open_files) for one in run.samples]).grew_at_most(1.5)
        assert Trend.of(run.batch_seconds).grew_at_most(3)


def _assert_complete(lake: Path, sent: int) -> None:
    found = places(str(lake)) + places(str(lake), "quarantine")
    assert found.total() == sent
    assert set(found.values()) == {1}
    assert set(places(str(lake), "bronze_games").values()) == {1}
    for silver in lake.glob("silver_*"):
        players = Counter(row["user_name"] for row in read(silver))
        derived = read(lake / silver.name.replace("silver_", "players_"))
        assert {row["user_name"]: row["sessions"] for row in derived} == players


def _print(run: Run, maintenance: Maintenance, producer: Producer) -> None:
    done = ", ".join(f"{count} {what}" for what, count in sorted(maintenance.done.items()))
    print(f"records {producer.sent}, batches {len(run.batch_seconds)}, kills {run.kills}, {done}")
    series = {
        "memory, MB": [one.rss / 2**20 for one in run.samples],
        "open files": [float(one.open_files) for one in run.samples],
        "live files of tables": [float(one.live_files) for one in run.samples],
        "files on disk": [float(one.files_on_disk) for one in run.samples],
        "seconds per batch": run.batch_seconds,
    }
    print(f"{'median of':22}{'first third':>14}{'last third':>14}{'most':>14}")
    for name, values in series.items():
        if values:
            trend = Trend.of(values)
            print(f"{name:22}{trend.first:14.2f}{trend.last:14.2f}{max(values):14.2f}")
