"""The demo of the pizza chain: its world, its view, and all of it together."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headgate.cli.progress.waits import WaitsLines, waits_table
from headgate.lab.pizza.demo import BROKEN, DemoPlan, Live, StoreWait, Waits
from headgate.lab.pizza.world import World

NOW = datetime(2026, 1, 19, 18, tzinfo=UTC)


def test_world_continues_after_a_pause() -> None:
    plan = DemoPlan(days=0, stores=2).world
    pause, end = plan.start + timedelta(hours=5), plan.start + timedelta(hours=12)
    at_once = list(World(plan).events(end))
    world = World(plan)
    first = list(world.events(pause))
    assert first
    assert all(event.at < pause for event in first)
    assert [*first, *world.events(end)] == at_once


def test_broken_oven_makes_people_wait() -> None:
    plan = DemoPlan()
    broken, whole = World(plan.world), World(replace(plan.world, broken_ovens=()))
    at = plan.breakdown.start + plan.breakdown.lasts / 2
    for world in (broken, whole):
        assert list(world.events(at))
    assert broken.expected_wait(BROKEN) > 1.5 * whole.expected_wait(BROKEN)


def waits(live: float | None = 30.0) -> Waits:
    found = Waits()
    estimate = None if live is None else Live(live, 25.0, 40.0, "models:/pizza/1")
    broken = StoreWait(BROKEN, 7, estimate, 33.0, oven_broken=True)
    found.add(NOW, [StoreWait(2, 20, None, 21), broken])
    return found


def test_errors_count_only_where_there_are_predictions() -> None:
    assert waits().mean_errors == (26.0, 3.0)
    assert waits(live=None).mean_errors is None


def drawn(found: Waits) -> str:
    console = Console(width=100, record=True, file=StringIO())
    console.print(waits_table(found))
    return console.export_text()


def test_view_has_all_three_waits() -> None:
    text = drawn(waits())
    assert re.search(r"4 │ +7 │ +30 │ +33 │ +25-40 │ oven broken", text)
    assert "stale 26.0, live 3.0 min" in text
    assert "no predictions yet" in drawn(waits(live=None))


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    view, found = WaitsLines(speed=60), waits()
    for minutes in range(21):
        found.at = NOW + timedelta(minutes=minutes)
        view(found)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in lines] == ["18:00", "18:10", "18:20"]
    assert "store 4: stale 7, live 30, true 33 min, oven broken" in lines[0]


@pytest.mark.soak
def test_demo_predicts_better_than_the_stale_waits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headgate", "demo", "pizza", "--folder", "demo"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    errors = re.search(r"stale ([\d.]+) min, live ([\d.]+) min$", run.stdout, re.MULTILINE)
    assert errors
    assert float(errors[2]) < float(errors[1]) / 2
