"""Runs a module in a process that kills itself at a seam.

    python -m tests.kills.launch --seam noted --nth 1 --calls FOLDER headgate run games.yaml

Without `--seam`, nothing is killed, and calls at all seams are counted. Calls are counted in files,
one byte per call, because the tasks of a Spark job are processes of their own.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from tests.kills.seams import SEAMS, Seam

ROOT = Path(__file__).parents[2]
_ARMED = "HEADGATE_TESTS_ARMED"
_TIMEOUT = 400


def find_function(seam: Seam) -> tuple[Any, str]:
    """Return the module or class that has the function of a seam, and its name there."""
    module, _, path = seam.function.partition(":")
    *parents, name = path.split(".")
    return functools.reduce(getattr, parents, import_module(module)), name


def arm(seam: Seam, nth: int | None, calls: Path) -> None:
    """Replace the function of a seam; its nth call over all processes kills them."""
    owner, name = find_function(seam)
    function = getattr(owner, name)

    def reach() -> None:
        with (calls / seam.name).open("ab", buffering=0) as file:
            file.write(b".")
            count = file.tell()
        if count == nth:
            kill_session()

    @functools.wraps(function)
    def armed(*arguments: Any, **named: Any) -> Any:
        if seam.when == "before":
            reach()
        result = function(*arguments, **named)
        if seam.when == "after":
            reach()
        return result

    setattr(owner, name, armed)


def arm_as_launched() -> None:
    """Arm the seams of the command line; also called in the Python workers of Spark."""
    names, nth, calls = json.loads(os.environ[_ARMED])
    for name in names:
        arm(SEAMS[name], nth, Path(calls))


def kill_session() -> None:
    """Kill the driver and Java, and the Python workers, which have a process group of their own."""
    os.killpg(os.getsid(0), signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


def launch(
    arguments: Sequence[str], calls: Path, seam: str | None = None, nth: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `MODULE ARGUMENT…` until it ends or is killed at a seam."""
    calls.mkdir(parents=True, exist_ok=True)
    chosen = [] if seam is None else ["--seam", seam, "--nth", str(nth or SEAMS[seam].nth)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kills.launch", *chosen, f"--calls={calls}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=_TIMEOUT)
    finally:
        _kill_remaining(process.pid)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def counted(calls: Path) -> Counter[str]:
    """Return the number of calls at each seam."""
    return Counter({file.name: file.stat().st_size for file in calls.iterdir()})


def _kill_remaining(session: int) -> None:
    """Kill workers that have not noticed yet that their driver is dead."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kills.launch")
    parser.add_argument("--seam", choices=SEAMS)
    parser.add_argument("--nth", type=int)
    parser.add_argument("--calls", required=True)
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    os.environ[_ARMED] = json.dumps(
        [[given.seam] if given.seam else [*SEAMS], given.nth, given.calls]
    )
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        "--conf spark.python.daemon.module=tests.kills.spark_daemon pyspark-shell"
    )
    arm_as_launched()
    sys.argv = [given.module, *given.arguments]
    runpy.run_module(given.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
