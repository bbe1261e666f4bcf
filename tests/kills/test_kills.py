"""Runs that are killed at every seam, and at random ones: nothing is lost, and nothing is twice."""

from __future__ import annotations

import inspect
import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.kills.launch import counted, find_function, launch
from tests.kills.seams import LANDING, MAINTAINING, MERGING, PREDICTING, REPLAYING, SEAMS, Seam
from tests.kills.workloads import WORKLOADS

KILLED = -signal.SIGKILL

EACH_ONCE = [
    *(("games", seam) for seam in (*LANDING, *REPLAYING)),
    *((name, seam) for name in ("shop", "large-shop") for seam in MERGING),
    *(("waits", seam) for seam in PREDICTING),
    *(("maintained", seam) for seam in MAINTAINING),
]


@pytest.mark.parametrize("seam", SEAMS.values(), ids=SEAMS)
def test_seam_is_a_function_of_the_product(seam: Seam) -> None:
    owner, name = find_function(seam)
    function = inspect.getattr_static(owner, name)
    assert callable(function)
    # These would be killed before their work begins.
    assert not inspect.isgeneratorfunction(function)


@pytest.mark.parametrize(
    ("workload", "seam"),
    [
        # `make test` takes every eighth, `make soak` all.
        pytest.param(*case, marks=() if at % 8 == 0 else pytest.mark.soak)
        for at, case in enumerate(EACH_ONCE)
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_run_that_is_killed_at_a_seam_is_completed_by_the_next(
    workload: str, seam: Seam, tmp_path: Path
) -> None:
    work = WORKLOADS[workload]
    work.prepare(tmp_path)
    killed = launch([*COMMAND, workload, str(tmp_path)], tmp_path / "calls", seam.name)
    assert killed.returncode == KILLED, killed.stderr
    work.run(tmp_path)
    work.check(tmp_path)


COMMAND = ("tests.kills.workloads",)


@pytest.mark.soak
@pytest.mark.parametrize("cases", [160])
def test_runs_that_are_killed_anywhere_are_completed_by_the_next(
    tmp_path: Path, cases: int
) -> None:
    """Kill up to three runs in a row, the later ones while they recover from the kill before."""
    seed = int(os.environ.get("KILLS_SEED") or random.randrange(10**6))
    print(f"KILLS_SEED={seed}")
    chance = random.Random(seed)
    kills: Counter[str] = Counter()
    calls = {name: _calls(name, tmp_path) for name in WORKLOADS}
    for lake in range(cases):
        if kills.total() >= cases:
            break
        name, folder = chance.choice(sorted(WORKLOADS)), tmp_path / str(lake)
        work = WORKLOADS[name]
        work.prepare(folder)
        at = []
        for turn in range(min(chance.randint(1, 3), cases - kills.total())):
            seam = chance.choice([seam.name for seam in work.seams if calls[name][seam.name]])
            nth = chance.randint(1, calls[name][seam])
            at.append((seam, nth))
            run = launch([*COMMAND, name, str(folder)], folder / f"calls-{turn}", seam, nth)
            assert run.returncode in (KILLED, 0), (at, run.stderr)
            if run.returncode == 0:
                break
            kills[seam] += 1
        print(f"{name}: {', '.join(f'{seam} ({nth})' for seam, nth in at)}", flush=True)
        work.run(folder)
        work.check(folder)
        shutil.rmtree(folder)
    print_counts(kills)


def print_counts(kills: Counter[str]) -> None:
    for seam, count in sorted(kills.items()):
        print(f"{count:6}  {seam}")
    print(f"{kills.total():6}  kills in total")


def _calls(workload: str, folder: Path) -> Counter[str]:
    """Count the calls at each seam in a run that nothing kills."""
    folder = folder / workload
    WORKLOADS[workload].prepare(folder)
    run = launch([*COMMAND, workload, str(folder)], folder / "calls")
    assert run.returncode == 0, run.stderr
    WORKLOADS[workload].check(folder)
    return counted(folder / "calls")
