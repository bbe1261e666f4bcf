"""From a record in Kafka to its row in a table, and to the row of the table derived from it.

Computed afterwards, from the timestamps of records and the commits of tables: nothing runs beside.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.table import Table

from bench.data import send
from headgate.config import Duration, Kafka, PipelineConfig, Registry, Wrapper
from headgate.engine.events import BatchLanded, Event
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan
from headgate.lab.services import Services
from headgate.lake.log import LogEntry
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal

_WARM_UP = 20.0
_AGGREGATE = """
    SELECT user_name, count(*) AS session_count,
           min(event_timestamp) AS first_seen, max(event_timestamp) AS last_seen
    FROM silver
    GROUP BY user_name
"""


@dataclass(frozen=True)
class Visible:
    """Seconds until records were visible, after the first ones, which warm up."""

    derives: bool
    landed: np.ndarray
    derived: np.ndarray
    batch_seconds: float
    """Median, like those of staging alone."""
    staging_seconds: float


def measure_visible(
    services: Services,
    folder: Path,
    tables: int,
    rate: int,
    seconds: float,
    rounds: int,
    say: Callable[[str], None],
) -> list[Visible]:
    """Land the same rate with and without a derived table for each game, in turn."""
    found: dict[bool, list[Visible]] = {False: [], True: []}
    for number in range(rounds):
        for derives in found:
            what = "with" if derives else "without"
            say(f"round {number + 1}: {rate:,} records/s into {tables} tables, {what} derived ones")
            found[derives].append(_measure(services, folder, tables, rate, seconds, derives))
    return [_together(rounds_of_one) for rounds_of_one in found.values()]


def _together(rounds: Sequence[Visible]) -> Visible:
    return Visible(
        rounds[0].derives,
        np.concatenate([one.landed for one in rounds]),
        np.concatenate([one.derived for one in rounds]),
        statistics.median(one.batch_seconds for one in rounds),
        statistics.median(one.staging_seconds for one in rounds),
    )


def _measure(
    services: Services, folder: Path, tables: int, rate: int, seconds: float, derives: bool
) -> Visible:
    topic = f"visible-{time.monotonic_ns()}"
    lake = folder / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    KafkaDestination(services.servers, topic, partitions=4)
    pipeline = PipelineConfig(
        name="visible",
        source=Kafka(servers=services.servers, topics=[topic]),
        registry=Registry(url=services.registry),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(lake),
        trigger=Duration(seconds=1),
        gold={"gold_{route}": _AGGREGATE} if derives else {},
    )
    batches: list[BatchLanded] = []
    stop = StopSignal()

    def listen(event: Event) -> None:
        if isinstance(event, BatchLanded):
            batches.append(event)

    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        records = int(rate * (_WARM_UP + seconds))
        plan = GamesPlan(tables=tables, versions=3, records=records, rate=rate)
        sent = apart.submit(send, plan, services.servers, services.registry, topic)

        def stop_in_the_end() -> None:
            sent.exception()
            time.sleep(3)
            stop.request()

        threading.Thread(target=stop_in_the_end, daemon=True).start()
        ended = run_pipeline(pipeline, None, listen, stop)
    assert ended.rows == records, f"{ended.rows} of {records} records landed"
    landed, derived = _delays(lake, derives)
    return Visible(
        derives,
        landed,
        derived,
        statistics.median(one.seconds for one in batches),
        statistics.median(one.staging_seconds for one in batches),
    )


def _delays(lake: Path, derives: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds from each record to the commit with its row, and to the derived one."""
    sent, landed, derived = [], [], []
    for table in sorted(lake.glob("silver_*")):
        marks = list(_marks(lake / f"gold_{table.name.removeprefix('silver_')}")) if derives else []
        for commit in _commits(table):
            at = commit.at.timestamp()
            followed = next((when for version, when in marks if version >= commit.version), at)
            for file in commit.added:
                times = pq.read_table(table / file["path"], columns=["_timestamp"])["_timestamp"]
                seconds = times.cast("int64").to_numpy() / 1_000_000
                sent.append(seconds)
                landed.append(at - seconds)
                derived.append(followed - seconds)
    times = np.concatenate(sent)
    counts = times >= times.min() + _WARM_UP
    return np.concatenate(landed)[counts], np.concatenate(derived)[counts]


def _marks(table: Path) -> Iterator[tuple[int, float]]:
    """Yield the versions of its source that a derived table has, and since when."""
    for commit in _commits(table):
        for action in commit.actions:
            if "txn" in action:
                yield action["txn"]["version"], commit.at.timestamp()


def _commits(table: Path) -> Iterator[LogEntry]:
    version = 0
    while (table / "_delta_log" / f"{version:020d}.json").exists():
        yield LogEntry.read(str(table), version)
        version += 1


def visible_table(found: Sequence[Visible], tables: int, rate: int) -> Table:
    table = Table(title=f"A record to its row: {rate:,} records/s into {tables} tables, every 1 s")
    for heading in ("", "p50", "p95", "longest", "a batch", "of it staging", "p95 of without"):
        table.add_column(heading, justify="right" if heading else "left")
    alone = float(np.percentile(found[0].landed, 95))

    def add(name: str, delays: np.ndarray, *more: Any) -> None:
        p50, p95 = np.percentile(delays, [50, 95])
        table.add_row(name, f"{p50:.2f} s", f"{p95:.2f} s", f"{delays.max():.2f} s", *more)

    for one in found:
        name = "landed, with derived tables" if one.derives else "landed, without derived tables"
        ratio = float(np.percentile(one.landed, 95)) / alone
        spent = f"{one.batch_seconds:.2f} s", f"{one.staging_seconds:.2f} s"
        add(name, one.landed, *spent, f"{ratio:.2f}")
        if one.derives:
            add("derived", one.derived, "", "")
    return table
