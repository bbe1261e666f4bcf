"""Many readers of one query over HTTP, beside a process that commits: delays, memory, CPU."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
import pyarrow as pa
from deltalake import write_deltalake
from rich.table import Table

_COMMITS_PER_SECOND = 10
_ROWS = 100
_WARM = 10
"""Commits before those that are counted."""
_RATE = _ROWS * _COMMITS_PER_SECOND
_SQL = "SELECT * FROM orders EMIT CHANGES"
_LAST_OF_COMMIT = re.compile(rb'"at": "([^"]+)", "token": "[0-9a-f]{8}-c\d+"}')
_PIPELINE = """\
name: pizza
source: {delta: {path: ./inbox}}
registry: ./schemas
envelope: confluent
lake: ./lake
"""


@dataclass(frozen=True)
class Reading:
    """Commits beside a number of readers; times in seconds."""

    readers: int
    commits: Sequence[float]
    """How long each commit took."""
    rate: float
    """Changes per second."""
    delays: Sequence[float] = ()
    """From each commit to its last change at each reader."""
    idle_bytes: int = 0
    peak_bytes: int = 0
    server_cpu: float = 0.0
    """Processor time of the server, per second."""


@dataclass
class _Received:
    """What one reader has got."""

    digest: str = ""
    changes: int = 0
    delays: list[float] = field(default_factory=list)


def measure_readers(
    folder: Path, readers: Sequence[int], seconds: int, say: Callable[[str], None]
) -> Iterator[Reading]:
    """Commit the same rows at the same rate beside ever more readers."""
    for count in readers:
        place = folder / str(count)
        place.mkdir(parents=True)
        (place / "pizza.yaml").write_text(_PIPELINE)
        _commit(place, _WARM)
        say(f"{count} readers: {seconds} s of {_RATE:,} changes/s")
        commits = seconds * _COMMITS_PER_SECOND
        if count:
            yield asyncio.run(_measure(place, count, commits))
        else:
            began = time.perf_counter()
            took = _committed(_start_committing(place, commits))
            yield Reading(0, took, commits * _ROWS / (time.perf_counter() - began))


def readers_table(measured: Sequence[Reading]) -> Table:
    table = Table(
        title=f"{_RATE:,} changes/s in {_COMMITS_PER_SECOND} commits/s over HTTP, "
        "all to every reader"
    )
    for heading in (
        "readers",
        "delay p50",
        "p95",
        "events/s",
        "server memory, idle",
        "peak",
        "server CPU",
        "a commit p50",
        "p95",
    ):
        table.add_column(heading, justify="right")
    for one in measured:
        served = ["-"] * 6
        if one.readers:
            served = [
                *(f"{_percentile(one.delays, share) * 1000:,.0f} ms" for share in (50, 95)),
                f"{one.readers * one.rate:,.0f}",
                *(f"{size / (1 << 20):,.0f} MiB" for size in (one.idle_bytes, one.peak_bytes)),
                f"{one.server_cpu:.0%} of a core",
            ]
        took = [f"{_percentile(one.commits, share) * 1000:,.1f} ms" for share in (50, 95)]
        table.add_row(f"{one.readers}", *served, *took)
    return table


def _percentile(values: Sequence[float], share: int) -> float:
    return statistics.quantiles(values, n=100)[share - 1]


async def _measure(folder: Path, readers: int, commits: int) -> Reading:
    with _served(folder, readers) as (url, server):
        wanted = commits * _ROWS
        ready = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(_read(url, wanted, ready)) for _ in range(readers)]
        for _ in tasks:
            await ready.acquire()
        idle, cpu, began = server.memory_info().rss, _cpu(server), time.perf_counter()
        writer = _start_committing(folder, commits)
        peak = idle
        pending: set[asyncio.Task[_Received]] = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=0.2)
            peak = max(peak, server.memory_info().rss)
        took, cpu = time.perf_counter() - began, _cpu(server) - cpu
        received = [task.result() for task in tasks]
        assert {one.changes for one in received} == {wanted}, "a reader missed changes"
        assert len({one.digest for one in received}) == 1, "readers got different changes"
        delays = [delay for one in received for delay in one.delays]
        assert len(delays) == readers * commits
        rate = wanted / took
        return Reading(readers, _committed(writer), rate, delays, idle, peak, cpu / took)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _served(folder: Path, readers: int) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "headgate", "serve", str(folder / "pizza.yaml")]
    options = ["--port", "0", "--max-readers", str(readers)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            yield line.split(" on ")[1].split()[0], psutil.Process(server.pid)
        finally:
            server.terminate()


async def _read(url: str, wanted: int, ready: asyncio.Semaphore) -> _Received:
    """Read changes until all have come, without decoding them: one core reads for everyone."""
    host = urlsplit(url)
    lines, out = await asyncio.open_connection(host.hostname, host.port, limit=1 << 20)
    path = f"/query?new=1&sql={quote(f'{_SQL} LIMIT {wanted}')}"
    out.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert b" 200 " in await lines.readline()
    await lines.readuntil(b"\r\n\r\n")
    found, digest, opened = _Received(), sha256(), False
    while size := int(await lines.readline(), 16):
        data = (await lines.readexactly(size + 2))[:-2]
        now = time.time()
        if not opened:
            ready.release()
            opened = True
            continue
        if b"event: change\n" not in data:
            continue
        digest.update(data)
        found.changes += data.count(b"event: change\n")
        for one in _LAST_OF_COMMIT.finditer(data):
            found.delays.append(now - datetime.fromisoformat(one[1].decode()).timestamp())
    found.digest = digest.hexdigest()
    out.close()
    return found


def _start_committing(folder: Path, commits: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.readers", str(folder), str(commits)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _committed(writer: subprocess.Popen[str]) -> list[float]:
    printed, _ = writer.communicate()
    assert writer.returncode == 0
    return list(json.loads(printed))


def _commit(folder: Path, commits: int) -> list[float]:
    """Commit at a steady rate, and return how long each commit took."""
    took = []
    began = time.perf_counter()
    for number in range(commits):
        rows = _orders(number * _ROWS)
        time.sleep(max(0.0, began + number / _COMMITS_PER_SECOND - time.perf_counter()))
        start = time.perf_counter()
        write_deltalake(folder / "lake" / "orders", rows, mode="append")
        took.append(time.perf_counter() - start)
    return took


def _orders(first: int) -> pa.Table:
    numbers = range(first, first + _ROWS)
    return pa.table(
        {
            "store_id": [number % 12 for number in numbers],
            "store_order_id": list(numbers),
            "customer": [f"customer {number % 997:05d}" for number in numbers],
            "status": ["accepted"] * _ROWS,
            "price": [number % 40 + 0.5 for number in numbers],
            "ordered_at": [datetime.now(UTC)] * _ROWS,
        }
    )


if __name__ == "__main__":
    print(json.dumps(_commit(Path(sys.argv[1]), int(sys.argv[2]))))
