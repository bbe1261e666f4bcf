"""How long history is, and what it costs: start of a run, a batch, and `status`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
from deltalake import DeltaTable
from rich.table import Table

import headgate
from headgate.inspect.status import read_status
from headgate.lake import ledger as ledger_module
from headgate.lake.commit import Committer
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import BatchEntry, Entry, SchemaEntry, TableEntry
from headgate.run import schema_history
from headgate.schema.changes import AddColumn, CreateTable

BATCHES = (10, 1_000, 10_000, 100_000)
_TABLES = 10
_SCHEMA_CHANGE_EVERY = 500
_COUNTED = 20
_SAID_EVERY = 5_000


@dataclass(frozen=True)
class History:
    """The cost of a ledger with a number of batches; times in seconds."""

    batches: int
    start: float
    batch: float
    status: float
    peak_bytes: int


def measure_history(
    folder: Path, batches: Sequence[int], say: Callable[[str], None]
) -> Iterator[History]:
    """Let one ledger grow batch by batch, and measure it in a new process at each size."""
    ledger = _ledger(folder, DeltaRsCommitter(str(folder / "lake")))
    ledger.start("bench", 0)
    _scale_retention(folder / "lake" / "ledger")
    landed = -1
    for wanted in batches:
        for version in range(landed + 1, wanted):
            ledger.complete(version, version, _entries(version), version - 1 if version else None)
            if version % _SAID_EVERY == 0:
                say(f"A ledger of {wanted:,} batches: {version:,} so far")
        landed = wanted - 1
        run = [sys.executable, "-m", "bench.history", str(folder), str(wanted)]
        found = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
        landed += _COUNTED
        yield History(wanted, **found)


def _scale_retention(table: Path) -> None:
    """Let the ledger forget as many batches as it would in production.

    The bench commits about 40 batches a second, a pipeline one in two seconds: 80 times as many.
    """
    ledger_module.KEPT = timedelta(seconds=8)
    scaled = {"delta.deletedFileRetentionDuration": "interval 45 seconds"}
    DeltaTable(str(table)).alter.set_table_properties(scaled)


def history_table(measured: Sequence[History]) -> Table:
    table = Table(title=f"A ledger of {_TABLES} tables after many batches")
    for heading in ("batches", "start of a run", "ledger commit a batch", "status", "memory"):
        table.add_column(heading, justify="right")
    for one in measured:
        table.add_row(
            f"{one.batches:,}",
            f"{one.start * 1000:,.0f} ms",
            f"{one.batch * 1000:,.1f} ms",
            f"{one.status * 1000:,.0f} ms",
            f"{one.peak_bytes / (1 << 20):,.0f} MiB",
        )
    return table


def _pipeline(folder: Path) -> headgate.Pipeline:
    return headgate.Pipeline(
        name="games",
        source=headgate.Kafka(servers="127.0.0.1:9092", topics=["games"]),
        registry=headgate.Registry(folder=str(folder / "schemas")),
        envelope=headgate.Confluent(),
        lake=str(folder / "lake"),
    )


def _ledger(folder: Path, committer: Committer) -> Ledger:
    pipeline = _pipeline(folder)
    return Ledger(pipeline.lake, pipeline.ledger, pipeline.name, committer)


def _entries(version: int) -> list[Entry]:
    tables = [f"silver_game_{number}" for number in range(_TABLES)]
    landed: list[Entry] = [
        TableEntry(table, 1_000, version, 50_000, 2, table, (1, 2)) for table in tables
    ]
    if version == 0:
        landed += [SchemaEntry.of(table, CreateTable(table, 9), (1,), table) for table in tables]
    elif version % _SCHEMA_CHANGE_EVERY == 0:
        change = AddColumn(f"column_{version}", "string")
        landed.append(SchemaEntry.of(tables[0], change, (version,), tables[0]))
    offsets = {"games": {"0": version * 1_000}}
    return [*landed, BatchEntry(_TABLES * 1_000, offsets, offsets)]


def _measure(folder: Path, landed: int) -> dict[str, float]:
    pipeline = _pipeline(folder)
    committer = DeltaRsCommitter(pipeline.lake)
    ledger = _ledger(folder, committer)
    began = time.perf_counter()
    progress, history = ledger.progress(), schema_history(pipeline)
    ledger.take_over("bench")
    start = time.perf_counter() - began
    assert progress is not None
    assert progress.landed == landed - 1
    assert history.schema_ids
    took = []
    for version in range(landed, landed + _COUNTED):
        began = time.perf_counter()
        ledger.require_ownership()
        ledger.complete(version, version, _entries(version), version - 1)
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    found = read_status(pipeline)
    status = time.perf_counter() - began
    assert found.batches == landed + _COUNTED
    peak = psutil.Process().memory_info().rss
    batch = statistics.median(took)
    return {"start": start, "batch": batch, "status": status, "peak_bytes": peak}


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), int(sys.argv[2]))))
