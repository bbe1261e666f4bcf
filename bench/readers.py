"""Many readers of one query over HTTP, beside a run that lands: delays, memory, CPU, batches."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
from deltalake import DeltaTable
from rich.table import Table

from bench.live_waits import send_orders
from headgate.config import load_pipeline
from headgate.engine.events import BatchLanded, Event
from headgate.lab.destination import KafkaTopics
from headgate.lab.pizza.records import ORDERS
from headgate.lab.services import Services
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal

_RATE = 1_000
_WARM_BATCHES = 10
_TO_CONNECT = 15
"""Seconds of changes for which readers connect and catch up."""
_TIMED_EVERY = 10
"""One reader in ten measures delays."""
_CAUGHT_UP = 2.0
"""The delay of a reader that has caught up."""
_SQL = f"SELECT * FROM {ORDERS} EMIT CHANGES"
_LAST_OF_COMMIT = re.compile(rb'"at": "([^"]+)", "token": "[0-9a-f]{8}-c\d+"}')


@dataclass
class Reading:
    """A run beside a number of readers; times in seconds, of all rounds."""

    readers: int
    batches: list[float] = field(default_factory=list)
    """How long batches took to stage and commit."""
    delays: list[float] = field(default_factory=list)
    """From each commit to its last change at each reader."""
    changes: int = 0
    """Those that every reader got."""
    idle_bytes: int = 0
    peak_bytes: int = 0
    server_cpu: list[float] = field(default_factory=list)
    """Processor time of the server, per second."""


def measure_readers(
    services: Services,
    folder: Path,
    readers: Sequence[int],
    rounds: int,
    seconds: int,
    say: Callable[[str], None],
) -> list[Reading]:
    """Land the same records at the same rate beside ever more readers, in turn."""
    file = folder / "pizza.yaml"
    file.write_text(_PIPELINE.format(servers=services.servers, registry=services.registry))
    KafkaTopics(services.servers, [ORDERS])
    events, stop = _Batches(), StopSignal()
    found = {count: Reading(count) for count in readers}
    failed: list[BaseException] = []

    def read_in_turn() -> None:
        try:
            with _orders(services):
                events.wait(_WARM_BATCHES)
                for number in range(rounds):
                    for count in readers:
                        say(f"round {number + 1}: {count} readers for {seconds} s")
                        _measure(file, found[count], seconds, events)
        except BaseException as error:
            failed.append(error)
        finally:
            stop.request()

    threading.Thread(target=read_in_turn, daemon=True).start()
    run_pipeline(load_pipeline(file), None, events, stop)
    if failed:
        raise failed[0]
    return list(found.values())


_PIPELINE = f"""\
name: pizza
source: {{{{kafka: {{{{servers: "{{servers}}", topics: [{ORDERS}]}}}}}}}}
registry: {{registry}}
envelope: confluent
lake: ./lake
trigger: 1s
"""


def readers_table(measured: Sequence[Reading]) -> Table:
    table = Table(title=f"{_RATE:,} changes/s from a run that lands them, all to every reader")
    for heading in (
        "readers",
        "delay p50",
        "p95",
        "changes to each",
        "server memory, idle",
        "peak",
        "server CPU",
        "a batch p50",
        "beside no reader",
    ):
        table.add_column(heading, justify="right")
    alone = next((statistics.median(one.batches) for one in measured if not one.readers), None)
    for one in measured:
        served = ["-"] * 6
        if one.readers:
            served = [
                *(f"{_percentile(one.delays, share) * 1000:,.0f} ms" for share in (50, 95)),
                f"{one.changes:,}",
                *(f"{size / (1 << 20):,.0f} MiB" for size in (one.idle_bytes, one.peak_bytes)),
                f"{statistics.mean(one.server_cpu):.0%} of a core",
            ]
        batch = statistics.median(one.batches)
        ratio = f"{batch / alone:.2f}" if alone else "-"
        table.add_row(f"{one.readers}", *served, f"{batch * 1000:,.0f} ms", ratio)
    return table


def _percentile(values: Sequence[float], share: int) -> float:
    return statistics.quantiles(values, n=100)[share - 1]


class _Batches:
    """The batches of a run, with the time when each ended."""

    def __init__(self) -> None:
        self._landed: list[tuple[float, float]] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchLanded) and event.rows:
            with self._changed:
                self._landed.append((time.time(), event.landing_seconds))
                self._changed.notify_all()

    def wait(self, batches: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._landed) >= batches)

    def between(self, begin: float, end: float) -> list[float]:
        """Return how long batches took that began and ended in this time."""
        return [took for at, took in self._landed if begin + took < at < end]


@contextmanager
def _orders(services: Services) -> Iterator[None]:
    """Send orders for as long as it takes."""
    sent = (services.servers, services.registry, _RATE, float("inf"), False)
    sender = multiprocessing.get_context("spawn").Process(target=send_orders, args=sent)
    sender.start()
    try:
        yield
    finally:
        sender.terminate()


def _measure(file: Path, reading: Reading, seconds: int, events: _Batches) -> None:
    if not reading.readers:
        begin = time.time()
        time.sleep(seconds)
        reading.batches += events.between(begin, time.time())
        return
    wanted = _RATE * (seconds + _TO_CONNECT)
    version = DeltaTable(file.parent / "lake" / f"silver_{ORDERS}").version()
    with _served(file, reading.readers) as (url, server):
        path = f"/query?from_version={version}&sql={quote(f'{_SQL} LIMIT {wanted}')}"
        command = [sys.executable, "-m", "bench.readers", f"{url}{path}", str(reading.readers)]
        # In production, readers are on other machines.
        behind = ["nice", "-n", "19", *command]
        with subprocess.Popen(behind, stdout=subprocess.PIPE, text=True) as readers:
            assert readers.stdout is not None
            assert readers.stdout.readline() == "all have caught up\n"
            begin, idle, cpu = time.time(), server.memory_info().rss, _cpu(server)
            peak = idle
            while readers.poll() is None:
                peak = max(peak, server.memory_info().rss)
                time.sleep(0.2)
            end, cpu = time.time(), _cpu(server) - cpu
            found = json.loads(readers.stdout.read())
    assert found["digests"] == 1, "readers got different changes"
    assert found["changes"] == [wanted], "a reader missed changes"
    reading.changes += wanted
    reading.batches += events.between(begin, end)
    reading.delays += found["delays"]
    reading.idle_bytes = max(reading.idle_bytes, idle)
    reading.peak_bytes = max(reading.peak_bytes, peak)
    reading.server_cpu.append(cpu / (end - begin))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _served(file: Path, readers: int) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "headgate", "serve", str(file)]
    options = ["--port", "0", "--max-readers", str(readers)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            yield line.split(" on ")[1].split()[0], psutil.Process(server.pid)
        finally:
            server.terminate()


@dataclass
class _Received:
    """What one reader has got."""

    digest: str = ""
    changes: int = 0
    delays: list[float] = field(default_factory=list)


async def _read_all(url: str, readers: int) -> dict[str, object]:
    """Let all readers read at once, in this process, until their queries end."""
    reading = _Together(readers)
    received = await asyncio.gather(
        *(_read(url, number % _TIMED_EVERY == 0, reading) for number in range(readers))
    )
    assert reading.counted, "readers have not caught up: the machine is too busy for a figure"
    return {
        "digests": len({one.digest for one in received}),
        "changes": sorted({one.changes for one in received}),
        "delays": [delay for one in received for delay in one.delays],
    }


class _Together:
    """Whether all readers have caught up, and delays are counted."""

    def __init__(self, readers: int) -> None:
        self._behind = len(range(0, readers, _TIMED_EVERY))
        self.counted = False

    def caught_up(self) -> None:
        self._behind -= 1
        if self._behind == 0:
            self.counted = True
            print("all have caught up", flush=True)


async def _read(url: str, timed: bool, reading: _Together) -> _Received:
    """Read changes without decoding them: one process reads for everyone."""
    address = urlsplit(url)
    lines, out = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
    path = f"{address.path}?{address.query}"
    out.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert b" 200 " in await lines.readline()
    await lines.readuntil(b"\r\n\r\n")
    found, digest, behind = _Received(), sha256(), True
    while size := int(await lines.readline(), 16):
        data = (await lines.readexactly(size + 2))[:-2]
        changes = data.count(b"event: change\n")
        if not changes:
            continue
        digest.update(data)
        found.changes += changes
        now = time.time()
        for one in _LAST_OF_COMMIT.finditer(data) if timed else ():
            delay = now - datetime.fromisoformat(one[1].decode()).timestamp()
            if reading.counted:
                found.delays.append(delay)
            elif behind and delay < _CAUGHT_UP:
                behind = False
                reading.caught_up()
    found.digest = digest.hexdigest()
    out.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_read_all(sys.argv[1], int(sys.argv[2])))))
