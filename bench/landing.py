"""Headgate: the same number of records into ever more tables."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.data import Data
from bench.measure import Cost, measured
from headgate.land.event import BatchLanded, Event
from headgate.pipeline import Kafka, Pipeline, Registry, Wrapper
from headgate.run.run_options import RunOptions
from headgate.run.run_pipeline import run_pipeline


@dataclass(frozen=True)
class Landing:
    """One run, without its first batch: that one fetches the schemas and warms up."""

    tables: int
    batches: list[BatchLanded]
    cost: Cost
    rows: int

    @property
    def rates(self) -> list[float]:
        return [batch.rows / batch.seconds for batch in self.batches[1:]]

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.rates), max(self.rates)

    @property
    def commit_seconds(self) -> float:
        return median(batch.commit_seconds for batch in self.batches[1:])

    @property
    def cpu_per_million(self) -> float:
        return self.cost.cpu_seconds / (self.rows / 1_000_000)


def land(data: Data, folder: Path, batch: int) -> Landing:
    lake = folder / f"lake-{data.tables}"
    shutil.rmtree(lake, ignore_errors=True)
    pipeline = Pipeline(
        name="bench",
        source=Kafka(servers=data.services.servers, topics=[data.topic], batch=batch),
        registry=Registry(url=data.services.registry),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(lake),
    )
    batches: list[BatchLanded] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchLanded):
            batches.append(event)

    with measured(apart=data.services.pids.values()) as cost:
        ended = run_pipeline(pipeline, RunOptions(once=True), listen)
    assert ended.rows == data.records, f"{ended.rows} of {data.records} records landed"
    return Landing(data.tables, batches, cost, ended.rows)
