"""How long a start takes: a run with nothing new, and the first row, beside a bare session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from headgate.jars.class_archive import archive_options, build_archive
from headgate.jars.jars import jar_paths

_BARE = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", sys.argv[1])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
spark.stop()
"""


@dataclass(frozen=True)
class Starts:
    """Seconds of one way to start."""

    what: str
    seconds: float


def measure_starts(folder: Path, rounds: int, say: Callable[[str], None]) -> list[Starts]:
    """All ways take turns; a figure is the median."""
    build_archive(say)
    folder.mkdir(parents=True)
    demo = folder / "demo"
    _headgate("demo", "--records", "2000", "--folder", str(demo), "--progress", "none")
    ways: dict[str, Callable[[], float]] = {
        "bare Spark session, one job": _bare,
        "the same with Headgate's archive of classes": lambda: _bare(
            {"SPARK_SUBMIT_OPTS": archive_options() or ""}
        ),
        "headgate run --once, nothing new": lambda: _seconds(lambda: _run_once(demo)),
        "headgate run, first visible row": lambda: _first_row(demo, folder / "fresh"),
    }
    taken: dict[str, list[float]] = {what: [] for what in ways}
    for _ in range(rounds):
        for what, way in ways.items():
            taken[what].append(way())
            say(f"{what}: {taken[what][-1]:.1f} s")
    return [Starts(what, median(seconds)) for what, seconds in taken.items()]


def _bare(environment: Mapping[str, str] | None = None) -> float:
    jars = ",".join(map(str, jar_paths("spark")))
    command = [sys.executable, "-c", _BARE, jars]
    return _seconds(
        lambda: subprocess.run(
            command, env={**os.environ, **(environment or {})}, check=True, capture_output=True
        )
    )


def _headgate(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "headgate", *words], check=True, capture_output=True)


def _run_once(folder: Path) -> None:
    _headgate("run", "--once", str(folder / "games.yaml"), "--progress", "none")


def _first_row(demo: Path, fresh: Path) -> float:
    """Return the seconds until the first table has a version."""
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(demo, fresh, ignore=shutil.ignore_patterns("lake"))
    command = [sys.executable, "-m", "headgate", "run", "--once", str(fresh / "games.yaml")]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while not any((fresh / "lake").glob("silver_*/_delta_log/*.json")):
            assert run.poll() is None, "the run has ended without any row"
            time.sleep(0.02)
        seconds = time.perf_counter() - began
    return seconds


def _seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def starts_table(starts: list[Starts]) -> Table:
    table = Table(title="From the command to its end, or to the first row")
    table.add_column("what")
    for heading in ("seconds", "of a bare session", "with the archive"):
        table.add_column(heading, justify="right")
    bare, archived = starts[0].seconds, starts[1].seconds
    for one in starts:
        table.add_row(
            one.what,
            f"{one.seconds:.1f}",
            f"{one.seconds / bare:.2f}",
            f"{one.seconds / archived:.2f}",
        )
    return table
