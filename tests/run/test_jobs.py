"""Jobs of a session: what survives, and what comes first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep, time
from typing import TYPE_CHECKING

from headgate.engine.session import yield_to_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def killed_once(marker: Path, numbers: Iterable[int]) -> Iterator[int]:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield from numbers


def test_task_whose_worker_is_killed_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    numbers = spark.sparkContext.parallelize(range(3), 1)
    assert numbers.mapPartitions(partial(killed_once, tmp_path / "killed")).collect() == [0, 1, 2]


def times(numbers: Iterable[int]) -> Iterator[float]:
    for _ in numbers:
        yield time()
        sleep(0.2)


def test_batch_does_not_wait_for_follow_ups(spark: SparkSession) -> None:
    context = spark.sparkContext
    cores = context.defaultParallelism
    with ThreadPoolExecutor(1, initializer=partial(yield_to_batches, spark)) as follower:
        behind = follower.submit(
            context.parallelize(range(8 * cores), 8 * cores).mapPartitions(times).collect
        )
        sleep(0.5)
        landed = context.parallelize(range(cores), cores).mapPartitions(times).collect()
    assert max(landed) < sorted(behind.result())[-2 * cores]
