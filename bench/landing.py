"""Headgate: the same number of records into ever more tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from uuid import uuid4

from bench.data import Data
from bench.measure import Cost, measured
from headgate.config import Kafka, PipelineConfig, Registry, Wrapper
from headgate.engine.events import BatchLanded, Event
from headgate.engine.runner import RunOptions
from headgate.run import run_pipeline

_EVERY = 2.0
"""Seconds from one look at the memory to the next: more of them would slow the run down."""


@dataclass(frozen=True)
class Run:
    """A topic landed once."""

    batches: list[BatchLanded]
    """Without the first one, which fetches the schemas and warms up."""
    seconds: list[float]
    """From the end of the batch before to the end of each."""
    cost: Cost
    """Of all batches."""
    rows: int

    @property
    def rates(self) -> list[float]:
        return [
            batch.rows / seconds for batch, seconds in zip(self.batches, self.seconds, strict=True)
        ]

    @property
    def rate(self) -> float:
        return median(self.rates)


@dataclass(frozen=True)
class Landing:
    """All runs over one topic."""

    tables: int
    runs: list[Run] = field(default_factory=list)
    of_first: list[float] = field(default_factory=list)
    """The rate of each run, as a share of the first topic's runs right before and after it."""

    @property
    def rates(self) -> list[float]:
        return [rate for run in self.runs for rate in run.rates]

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.rates), max(self.rates)

    @property
    def commit_seconds(self) -> float:
        return median(batch.commit_seconds for run in self.runs for batch in run.batches)

    @property
    def cpu_per_million(self) -> float:
        return median(run.cost.cpu_seconds / run.rows * 1_000_000 for run in self.runs)

    @property
    def peak_bytes(self) -> int:
        return max(run.cost.peak_bytes for run in self.runs)


def land_in_turn(
    data: Mapping[int, Data], folder: Path, batch: int, rounds: int, say: Callable[[str], None]
) -> list[Landing]:
    """Land every topic once a round, and the first one in between: the machine's pace changes."""
    first, *others = landed = [Landing(tables) for tables in data]

    def run(one: Landing, number: int) -> Run:
        done = land(data[one.tables], folder, batch)
        one.runs.append(done)
        say(f"{one.tables} tables, round {number} of {rounds}: {done.rate:,.0f} rows/s")
        return done

    for number in range(1, rounds + 1):
        before = run(first, number)
        for other in others:
            done, after = run(other, number), run(first, number)
            other.of_first.append(done.rate / mean((before.rate, after.rate)))
            before = after
    return landed


def land(data: Data, folder: Path, batch: int) -> Run:
    # A new folder: a file system may take long to reuse what was deleted just before.
    lake = folder / f"lake-{data.tables}-{uuid4().hex}"
    pipeline = PipelineConfig(
        name="bench",
        source=Kafka(servers=data.services.servers, topics=[data.topic], batch=batch),
        registry=Registry(url=data.services.registry),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(lake),
    )
    batches: list[BatchLanded] = []
    ends: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchLanded):
            batches.append(event)
            ends.append(perf_counter())

    with measured(apart=data.services.pids.values(), every=_EVERY) as cost:
        ended = run_pipeline(pipeline, RunOptions(once=True), listen)
    assert ended.rows == data.records, f"{ended.rows} of {data.records} records landed"
    seconds = [end - before for before, end in pairwise(ends)]
    return Run(batches[1:], seconds, cost, ended.rows)
