"""`make bench`: how fast, at what cost, and beside what. All figures come from one run."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.changes import Merging, merge_large, merge_many
from bench.data import Data, produce
from bench.decode import Decoding, decode_all
from bench.expectations import check_all, checking_table
from bench.gold import (
    derive_behind,
    derive_large,
    derive_many,
    deriving_table,
    following_table,
    large_table,
)
from bench.history import BATCHES, history_table, measure_history
from bench.landing import Landing, land, land_in_turn
from bench.live_waits import live_table, live_waits
from bench.maintain import maintained_table, measure_maintenance
from bench.peers import a_stream_per_game, a_write_per_game
from bench.readers import measure_readers, readers_table
from bench.start import measure_starts, starts_table
from bench.storage import measure_storage, storage_table
from bench.visible import measure_visible, visible_table
from bench.wait_times import SEEDS, WEEKS, day_plot, measure_waits, waits_table
from headgate.amounts import counted
from headgate.engine.session import spark_session
from headgate.jars.jars import fetch_jars
from headgate.lab.services import Services, down, up, up_storage

FAN_OUT = (1, 10, 50, 250, 1000)
STREAMS = (10, 30)
GROUPS = (10_000, 100_000, 1_000_000, 2_000_000, 10_000_000)
CHANGED_GROUPS = 1_000
FOLLOWED = (1_000_000, 2_000_000)
READERS = (0, 1, 100)
VISIBLE = (50, 10_000)
PEER_BATCH = 250_000
STORAGE = (250, 1_000_000)
MAINTAIN = (50, 2_000)


def main() -> None:
    arguments = _arguments()
    if arguments.only:
        with _scratch(arguments.only) as folder:
            PARTS[arguments.only](arguments, folder, Console(width=120))
        return
    for name in PARTS:
        # By a process of its own: what one part leaves in memory is not the next one's.
        part = [sys.executable, "-m", "bench", *sys.argv[1:], "--only", name]
        subprocess.run(part, check=True)


@contextmanager
def _scratch(name: str) -> Iterator[Path]:
    """A folder for as long as it is needed."""
    folder = Path(".bench", name).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bench_landing(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    services = up(folder / "services", report=out.print)
    try:
        spark = _session(out)
        out.print("Warming up: the compiler of the JVM takes a while to know the code")
        land(produce(services, 20, 3, 2 * arguments.batch), folder, arguments.batch)
        data: dict[int, Data] = {}
        for tables in arguments.tables:
            records = arguments.batch * arguments.batches
            out.print(f"{tables} tables: producing {records:,} records")
            data[tables] = produce(services, tables, 3, records)
        landed = land_in_turn(data, folder, arguments.batch, arguments.rounds, out.print)
        out.print(_landing_table(landed, data, arguments.batch))
        if not arguments.alone:
            out.print(_peer_table(spark, data, folder, out))
            out.print(_decoding_table(decode_all(spark, out.print)))
    finally:
        down(folder / "services")


def _bench_changes(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    spark = _session(out)
    merge_many(spark, folder / "warm", 4, 500, lambda _: None)
    merged = [
        merge_many(spark, folder / "many", arguments.merged, 1_000, out.print),
        *merge_large(spark, folder / "large", arguments.large, out.print),
    ]
    out.print(_merging_table(merged))


def _bench_gold(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    spark = _session(out)
    derive_many(spark, folder / "warm", 4, 20_000, lambda _: None)
    derived = derive_many(spark, folder / "many", arguments.games, 2_000_000, out.print)
    out.print(deriving_table([derived]))
    behind = [
        derive_behind(folder / "behind", arguments.games, records, 6, out.print)
        for records in FOLLOWED
    ]
    out.print(following_table(behind))
    large = [
        derive_large(spark, folder / "large", groups, CHANGED_GROUPS, out.print)
        for groups in arguments.groups
    ]
    out.print(large_table(large, CHANGED_GROUPS))


def _bench_expectations(_: argparse.Namespace, __: Path, out: Console) -> None:
    out.print(checking_table(check_all(out.print)))


def _bench_history(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    batches = [one for one in BATCHES if one <= arguments.history]
    out.print(history_table(list(measure_history(folder, batches, out.print))))


@contextmanager
def _services(folder: Path, out: Console) -> Iterator[Services]:
    try:
        yield up(folder / "services", report=out.print)
    finally:
        down(folder / "services")


def _bench_visible(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    tables, rate = arguments.visible
    with _services(folder, out) as services:
        _session(out)
        spent = arguments.seconds, arguments.rounds
        found = measure_visible(services, folder, tables, rate, *spent, out.print)
        out.print(visible_table(found, tables, rate))


def _bench_start(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    out.print(starts_table(measure_starts(folder, arguments.rounds, out.print)))


def _bench_storage(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    tables, batch = arguments.storage
    fetch_jars(["s3"], out.print)
    try:
        store = up_storage(folder / "services", report=out.print)
        found = measure_storage(store, folder, tables, batch, arguments.rounds, out.print)
        out.print(storage_table(found, tables, batch))
    finally:
        down(folder / "services")


def _bench_maintain(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    tables, batches = arguments.maintain
    found = measure_maintenance(lambda: _session(out), folder, tables, batches, out.print)
    out.print(maintained_table(found))


def _bench_readers(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    with _services(folder, out) as services:
        spent = arguments.rounds, arguments.seconds
        found = measure_readers(services, folder, arguments.readers, *spent, out.print)
        out.print(readers_table(found))


def _bench_live_waits(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    with _services(folder, out) as services:
        out.print(
            live_table(live_waits(services, folder, arguments.orders, arguments.live, out.print))
        )


def _bench_waits(arguments: argparse.Namespace, folder: Path, out: Console) -> None:
    found = list(measure_waits(folder, arguments.seeds, WEEKS, out.print))
    out.print(waits_table([waits for waits, _ in found]))
    if arguments.plot:
        Path(arguments.plot).write_text(day_plot(found[0][1]))


PARTS = {
    "landing": _bench_landing,
    "changes": _bench_changes,
    "gold": _bench_gold,
    "expectations": _bench_expectations,
    "history": _bench_history,
    "start": _bench_start,
    "storage": _bench_storage,
    "maintain": _bench_maintain,
    "visible": _bench_visible,
    "readers": _bench_readers,
    "live-waits": _bench_live_waits,
    "waits": _bench_waits,
}


def _session(out: Console) -> SparkSession:
    """With Spark's own Avro reader, which only the comparison needs."""
    jars = fetch_jars(["spark", "avro"], out.print)
    paths = ",".join(str(path) for conf in jars.values() for path in conf)
    return spark_session("bench", {"spark.jars": paths})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("make bench ARGS=…", description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=FAN_OUT)
    parser.add_argument("--batch", type=int, default=8_000_000, help="records a batch")
    parser.add_argument("--batches", type=int, default=3, help="the first one is not counted")
    parser.add_argument("--rounds", type=int, default=3, help="how often each topic is landed")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    parser.add_argument("--merged", type=int, default=200, help="tables to merge side by side")
    parser.add_argument("--large", type=int, default=10_000_000, help="rows of a large table")
    parser.add_argument("--games", type=int, default=250, help="games to derive tables of")
    parser.add_argument(
        "--groups", type=int, nargs="+", default=GROUPS, help="groups of a large derived table"
    )
    parser.add_argument(
        "--history", type=int, default=10_000, help="most batches of a ledger; 100000 takes long"
    )
    parser.add_argument(
        "--visible",
        type=int,
        nargs=2,
        default=VISIBLE,
        metavar=("TABLES", "RATE"),
        help="tables, and records per second, to measure delays with",
    )
    parser.add_argument(
        "--storage",
        type=int,
        nargs=2,
        default=STORAGE,
        metavar=("TABLES", "RECORDS"),
        help="tables, and records per batch, to land in an object store",
    )
    parser.add_argument(
        "--maintain",
        type=int,
        nargs=2,
        default=MAINTAIN,
        metavar=("TABLES", "BATCHES"),
        help="tables to maintain, and batches to land in them",
    )
    parser.add_argument("--readers", type=int, nargs="+", default=READERS)
    parser.add_argument("--seconds", type=int, default=20, help="how long to measure delays")
    parser.add_argument("--orders", type=float, default=50, help="live orders per second")
    parser.add_argument("--live", type=float, default=120, help="seconds of live orders")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, help="worlds of pizza stores"
    )
    parser.add_argument("--plot", help="file for a drawing of a day with a broken oven (SVG)")
    parser.add_argument("--alone", action="store_true", help="without the other ways")
    return parser.parse_args()


def _landing_table(landed: list[Landing], data: dict[int, Data], batch: int) -> Table:
    memory = psutil.virtual_memory().total / (1 << 30)
    table = Table(
        title=f"Kafka to Delta, batches of {batch:,} records, 3 schema versions a table "
        f"({os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()})",
    )
    for heading in (
        "tables",
        "rows/s",
        "spread",
        f"of {counted(landed[0].tables, 'table')}",
        "commits",
        "CPU s per M rows",
        "peak memory",
        "simulator records/s",
    ):
        table.add_column(heading, justify="right")
    for one in landed:
        low, high = one.spread
        table.add_row(
            f"{one.tables:,}",
            f"{one.rate:,.0f}",
            f"{low / 1000:,.0f}k to {high / 1000:,.0f}k",
            _shares(one.of_first),
            f"{one.commit_seconds:.2f} s",
            f"{one.cpu_per_million:.1f}",
            f"{one.peak_bytes / (1 << 30):.2f} GiB",
            f"{data[one.tables].produced_per_second:,.0f}",
        )
    return table


def _shares(found: list[float]) -> str:
    if not found:
        return "1.00"
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def _peer_table(spark: SparkSession, data: dict[int, Data], folder: Path, out: Console) -> Table:
    table = Table(
        title=f"Beside other ways: the same {PEER_BATCH:,} records a batch, the same session"
    )
    for heading in ("way", "tables", "rows/s", "Headgate rows/s", "Headgate is"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    ours: dict[int, float] = {}

    def add(way: str, tables: int, source: int, rate: float) -> None:
        if source not in ours:
            out.print(f"Headgate, {source} tables, batches of {PEER_BATCH:,}")
            ours[source] = land(data[source], folder, PEER_BATCH).rate
        mine = ours[source]
        table.add_row(way, f"{tables}", f"{rate:,.0f}", f"{mine:,.0f}", f"{mine / rate:.0f} x")

    for tables in (10, 250):
        if tables in data:
            out.print(f"a Delta write per game, {tables} games: one batch")
            rate = a_write_per_game(spark, data[tables], folder, PEER_BATCH)
            add("a Delta write per game in foreachBatch", tables, tables, rate)
    for streams in STREAMS:
        source = min((one for one in data if one >= streams), default=None)
        if source is not None:
            out.print(f"one stream per game, {streams} games")
            rate = a_stream_per_game(spark, data[source], folder, PEER_BATCH, streams)
            add("one stream per game", streams, source, rate * streams / source)
    return table


def _decoding_table(decoded: list[Decoding]) -> Table:
    table = Table(title="Decoding alone: payloads to columns, on one core")
    for heading in ("records", "way", "rows/s", "MB/s", "Headgate is"):
        table.add_column(heading, justify="left" if heading in ("records", "way") else "right")
    for one in decoded:
        mine = next(each for each in decoded if each.records == one.records)
        ratio = "" if one is mine else f"{mine.rate / one.rate:.1f} x"
        table.add_row(one.records, one.way, f"{one.rate:,.0f}", f"{one.megabytes:,.0f}", ratio)
    return table


def _merging_table(merged: list[Merging]) -> Table:
    table = Table(title="Change files to change logs and merged tables, beside Spark's MERGE")
    for heading in (
        "what",
        "Headgate",
        "of it merging",
        "MERGE per table, no log",
        "Headgate is",
        "CPU",
        "peak memory",
    ):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for one in merged:
        table.add_row(
            one.what,
            f"{one.ours:.1f} s",
            f"{one.merging:.1f} s",
            f"{one.peer:.1f} s",
            f"{one.peer / one.ours:.1f} x",
            f"{one.cost.cpu_seconds:.1f} s",
            f"{one.cost.peak_bytes / (1 << 30):.2f} GiB",
        )
    return table


if __name__ == "__main__":
    main()
