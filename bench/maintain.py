"""Many small batches with maintenance: files that are left, and how fast they are read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.table import Table

from headgate.config import Delta, Maintain, PipelineConfig, Registry, Size, Wrapper
from headgate.engine.events import BatchLanded, Event, MaintenanceFailed, TablesMaintained
from headgate.engine.runner import RunOptions
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.registry.folder import FolderRegistry
from headgate.run import run_pipeline

_RECORDS = 1_000
"""Of a batch."""
_ROUNDS = 5
_SAID_EVERY = 100


@dataclass(frozen=True)
class Maintained:
    """What many batches have left."""

    batches: int
    tables: int
    most_files: int
    """Of one table, at its newest version."""
    on_disk: int
    """Files of all tables, with those of older versions and of the log."""
    first: float
    last: float
    """Seconds of a batch among the first and the last tenth; the median."""
    maintaining: float
    """Seconds of maintenance in all."""
    failed: int
    reading: float
    """Seconds to read all tables."""
    after_optimize: float
    """The same after Spark's OPTIMIZE of a copy."""


def measure_maintenance(
    spark: Callable[[], SparkSession],
    folder: Path,
    tables: int,
    batches: int,
    say: Callable[[str], None],
) -> Maintained:
    say(f"{tables} tables: writing {batches:,} batches of {_RECORDS:,} records")
    _send(folder, tables, batches)
    landed: list[float] = []
    maintaining = 0.0
    failed = 0

    def listen(event: Event) -> None:
        nonlocal maintaining, failed
        if isinstance(event, BatchLanded):
            landed.append(event.seconds)
            if len(landed) % _SAID_EVERY == 0:
                say(f"{len(landed):,} batches, the last in {event.seconds:.2f} s")
        elif isinstance(event, TablesMaintained):
            maintaining += event.seconds
        elif isinstance(event, MaintenanceFailed):
            failed += 1
            say(event.text)

    lake = folder / "lake"
    run_pipeline(_pipeline(folder, lake), RunOptions(once=True), listen)
    names = sorted(path.name for path in lake.glob("silver_*"))
    optimized = folder / "optimized"
    for name in names:
        shutil.copytree(lake / name, optimized / name)
        spark().sql(f"OPTIMIZE delta.`{optimized / name}`")
    reading, after = _read_in_turn(spark(), names, lake, optimized)
    tenth = max(1, len(landed) // 10)
    return Maintained(
        len(landed),
        len(names),
        max(len(DeltaTable(lake / name).file_uris()) for name in names),
        sum(1 for name in names for path in (lake / name).rglob("*") if path.is_file()),
        median(landed[:tenth]),
        median(landed[-tenth:]),
        maintaining,
        failed,
        reading,
        after,
    )


def _send(folder: Path, tables: int, batches: int) -> None:
    inbox = DeltaDestination(str(folder / "inbox"), "games")
    with closing(FolderRegistry(folder / "schemas")) as registry:
        for seed in range(batches):
            plan = GamesPlan(tables, versions=1, records=_RECORDS, seed=seed)
            for _ in simulate_games(plan, registry, inbox):
                pass


def _pipeline(folder: Path, lake: Path) -> PipelineConfig:
    return PipelineConfig(
        name="bench",
        source=Delta(path=str(folder / "inbox"), batch=Size(1)),
        registry=Registry(folder=str(folder / "schemas")),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(lake),
        maintain=Maintain(),
    )


def _read_in_turn(spark: SparkSession, names: list[str], *lakes: Path) -> list[float]:
    """Return the time to read all tables of each lake; the first round does not count."""
    times: dict[Path, list[float]] = {lake: [] for lake in lakes}
    for _ in range(_ROUNDS + 1):
        for lake in lakes:
            began = time.perf_counter()
            for name in names:
                rows = spark.read.format("delta").load(str(lake / name))
                rows.selectExpr("count(*)", "max(_offset)", "max(_timestamp)").collect()
            times[lake].append(time.perf_counter() - began)
    return [median(times[lake][1:]) for lake in lakes]


def maintained_table(found: Maintained) -> Table:
    title = f"{found.batches:,} batches into {found.tables} tables, with maintenance"
    table = Table(title=title)
    table.add_column("")
    table.add_column("", justify="right")
    for name, value in (
        ("files of a table, at most", f"{found.most_files:,}"),
        ("files on disk, with log and older versions", f"{found.on_disk:,}"),
        ("a batch at the beginning", f"{found.first:.2f} s"),
        ("a batch at the end", f"{found.last:.2f} s"),
        ("maintenance, in all", f"{found.maintaining:.0f} s"),
        ("failures", f"{found.failed:,}"),
        ("reading all tables with Spark", f"{found.reading:.2f} s"),
        ("the same after Spark's OPTIMIZE", f"{found.after_optimize:.2f} s"),
    ):
        table.add_row(name, value)
    return table
