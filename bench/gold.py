"""Derived tables of many games at once, beside an aggregation and a MERGE for each game."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from rich.table import Table

from bench.measure import Cost, measured
from bench.running import Running
from headgate.config import Delta, PipelineConfig, Registry, Wrapper
from headgate.engine.events import BatchLanded, Event, GoldDerived
from headgate.engine.runner import RunOptions
from headgate.gold.declared import Landed
from headgate.gold.derive import GoldDeriver
from headgate.lab.destination import DeltaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.streams import app_id
from headgate.registry.folder import FolderRegistry
from headgate.run import run_pipeline

PLAYERS = 1_000
"""Of each game."""

_AGGREGATE = (
    "SELECT user_name, count(*) AS session_count, min(event_timestamp) AS first_seen, "
    "max(event_timestamp) AS last_seen FROM {} GROUP BY user_name"
)


@dataclass(frozen=True)
class Deriving:
    """The same new rows, aggregated into the same tables in two ways."""

    games: int
    records: int
    landing: float
    """Seconds from the source to the silver tables."""
    ours: float
    """Seconds from the silver tables to the derived ones."""
    peer: float
    cost: Cost


def derive_many(
    spark: SparkSession, folder: Path, games: int, records: int, say: Callable[[str], None]
) -> Deriving:
    """The third batch is measured: by then each game has derived rows, and the JVM knows how."""
    pipeline = _pipeline(folder)
    say(f"{games} games: three batches of {records:,} records, the last one is measured")
    for seed in (1, 2):
        _send(pipeline, games, records, seed)
        _land(pipeline)
    names = sorted(path.name[7:-7] for path in Path(pipeline.lake).glob("silver_*_events"))
    before = {name: _silver(pipeline, name).file_uris() for name in names}
    for name in names:
        shutil.copytree(_gold(pipeline, name), folder / "peer" / name)
    _send(pipeline, games, records, seed=3)
    with measured() as cost:
        batch, derived = _land(pipeline)
    landing = batch.seconds
    say(f"{games} games: landed in {landing:.1f} s, derived in {derived.seconds:.1f} s")
    say(f"{games} games: now an aggregation and a MERGE for each of them")
    peer = 0.0
    for name in names:
        new = sorted(set(_silver(pipeline, name).file_uris()) - set(before[name]))
        peer += _merge_with_spark(spark, folder / "peer" / name, new)
    _require_same(pipeline, folder, names)
    return Deriving(games, records, landing, derived.seconds, peer, cost)


def deriving_table(derived: Sequence[Deriving]) -> Table:
    table = Table(
        title=f"Derived tables, {PLAYERS:,} players a game, beside an aggregation and a MERGE each"
    )
    for heading in (
        "games",
        "records",
        "landing",
        "deriving",
        "MERGE per game",
        "Headgate is",
        "CPU of both",
        "peak memory",
    ):
        table.add_column(heading, justify="right")
    for one in derived:
        table.add_row(
            f"{one.games}",
            f"{one.records:,}",
            f"{one.landing:.1f} s",
            f"{one.ours:.1f} s",
            f"{one.peer:.1f} s",
            f"{one.peer / one.ours:.1f} x",
            f"{one.cost.cpu_seconds:.1f} s",
            f"{one.cost.peak_bytes / (1 << 30):.2f} GiB",
        )
    return table


@dataclass(frozen=True)
class Following:
    """Batches of one run, and the derived tables behind them; seconds of a batch, on average."""

    games: int
    records: int
    """Of each batch."""
    batches: int
    landing: float
    deriving: float


def derive_behind(
    folder: Path, games: int, records: int, batches: int, say: Callable[[str], None]
) -> Following:
    """Land several batches in a run, and derive behind them; the first one is not counted."""
    pipeline = _pipeline(folder)
    say(f"{games} games: {batches} batches of {records:,} records in one run")
    for seed in range(batches):
        _send(pipeline, games, records, seed)
    assert isinstance(pipeline.source, Delta)
    size = sum(file.stat().st_size for file in Path(pipeline.source.path).glob("*.parquet"))
    # A batch ends with the file that exceeds its size.
    source = pipeline.source.model_copy(update={"batch": int(0.98 * size / batches)})
    events: list[Event] = []
    run_pipeline(
        pipeline.model_copy(update={"source": source}), RunOptions(once=True), events.append
    )
    _, *landed = (event for event in events if isinstance(event, BatchLanded))
    _, *derived = (event for event in events if isinstance(event, GoldDerived))
    assert [event.rows for event in landed] == [records] * (batches - 1)
    landing = sum(event.seconds for event in landed) / len(landed)
    deriving = sum(event.seconds for event in derived) / len(landed)
    return Following(games, records, batches, landing, deriving)


def following_table(found: Sequence[Following]) -> Table:
    table = Table(title="Derived tables behind landing, in one run; seconds of a batch")
    for heading in ("games", "records a batch", "batches", "landing", "deriving", "of landing"):
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(
            f"{one.games}",
            f"{one.records:,}",
            f"{one.batches}",
            f"{one.landing:.1f} s",
            f"{one.deriving:.1f} s",
            f"{one.deriving / one.landing:.2f}",
        )
    return table


@dataclass(frozen=True)
class LargeDeriving:
    """A derived table of many groups, of which few change; times in seconds."""

    groups: int
    first: float
    """The first computation."""
    plain_first: float
    """The same by Spark's GROUP BY, written to Delta."""
    ours: float
    """A batch with few changed groups."""
    peer: float
    landed_and_derived: float
    """A batch of as many records in a run that lands several, until all are derived."""
    by_itself: float
    """The same of batches that arrive one by one, each after the one before is derived."""
    in_new_process: float
    """The same of the first batch of a process."""
    cost: Cost
    """Of the batch with few changed groups."""


def derive_large(
    spark: SparkSession, folder: Path, groups: int, changed: int, say: Callable[[str], None]
) -> LargeDeriving:
    """Both ways compute all of it twice, in turn; the better time counts.

    Of the batches after that, the first is not counted; a figure is the median of the others.
    At last, runs land batches of records, each of a random group, and derive the table: all that
    wait, one by one, and one in each of a few processes.
    """
    say(f"{groups:,} groups: writing their rows")
    pipeline = _pipeline(folder)
    _send(pipeline, 1, changed, 0, groups)
    _land(pipeline)
    chance = np.random.default_rng(groups)
    players = chance.permutation(groups)
    for start in range(0, groups, 1_000_000):
        _append(pipeline, players[start : start + 1_000_000])
    landed = [Landed(f"silver_{_GAME}_events", _GAME, _GAME)]
    silver = f"delta.`{_silver(pipeline, _GAME).table_uri}`"
    query = spark.sql(_AGGREGATE.format(silver))
    firsts, plains = [], []
    for number in range(2):
        shutil.rmtree(_gold(pipeline, _GAME), ignore_errors=True)
        committer = DeltaRsCommitter(pipeline.lake)
        deriver = GoldDeriver(spark, committer, pipeline, app_id(pipeline.name), lambda _: None)
        firsts.append(_seconds(partial(deriver.derive, landed)))
        plain = str(folder / f"plain-{number}")
        plains.append(_seconds(partial(query.write.format("delta").save, plain)))
    first, plain_first = min(firsts), min(plains)
    say(f"{groups:,} groups: first in {first:.1f} s, by a plain query in {plain_first:.1f} s")
    shutil.copytree(_gold(pipeline, _GAME), folder / "peer" / _GAME)
    ours, peers = [], []
    for _ in range(_ROUNDS + 1):
        before = set(_silver(pipeline, _GAME).file_uris())
        _append(pipeline, chance.choice(groups, changed, replace=False))
        with measured() as cost:
            ours.append(_seconds(lambda: deriver.derive(landed)))
        new = sorted(set(_silver(pipeline, _GAME).file_uris()) - before)
        peers.append(_merge_with_spark(spark, folder / "peer" / _GAME, new))
        say(f"{groups:,} groups, {changed:,} changed: {ours[-1]:.2f} s; MERGE {peers[-1]:.2f} s")
    _require_same(pipeline, folder, [_GAME])
    each = _land_and_derive(pipeline, changed, groups)
    say(f"{groups:,} groups: batches of {changed:,} records landed and derived in {each:.2f} s")
    by_itself = _one_by_one(pipeline, changed, groups)
    say(f"{groups:,} groups: one by one, in {by_itself:.2f} s")
    in_new_process = _in_new_process(pipeline, changed, groups)
    say(f"{groups:,} groups: in a new process, in {in_new_process:.2f} s")
    return LargeDeriving(
        groups,
        first=first,
        plain_first=plain_first,
        ours=median(ours[1:]),
        peer=median(peers[1:]),
        landed_and_derived=each,
        by_itself=by_itself,
        in_new_process=in_new_process,
        cost=cost,
    )


def _land_and_derive(pipeline: PipelineConfig, records: int, groups: int) -> float:
    """Return the seconds for each batch of a run, without the first one."""
    for seed in range(1, _BATCHES + 2):
        _send(pipeline, 1, records, seed, groups)
    ends: dict[type[Event], list[float]] = {BatchLanded: [], GoldDerived: []}

    def listen(event: Event) -> None:
        if type(event) in ends:
            ends[type(event)].append(time.perf_counter())

    # A batch has one file, of one call to send.
    source = pipeline.source.model_copy(update={"batch": 1})
    run_pipeline(pipeline.model_copy(update={"source": source}), RunOptions(once=True), listen)
    first, *others = ends[BatchLanded]
    assert len(others) == _BATCHES
    return (ends[GoldDerived][-1] - first) / _BATCHES


def _one_by_one(pipeline: PipelineConfig, records: int, groups: int) -> float:
    """Return the seconds that a batch takes to land and to be derived, if no other one is near."""
    found = []
    with Running(pipeline) as run:
        for seed in range(_BATCHES + 1, 2 * _BATCHES + 1):
            _send(pipeline, 1, records, seed, groups)
            landing, deriving = 0.0, 0.0
            while not (landing and deriving):
                match run.next_event():
                    case BatchLanded() as batch:
                        # What was derived before is not of this batch.
                        landing, deriving = landing + batch.seconds, 0.0
                    case GoldDerived() as derived:
                        deriving += derived.seconds
            found.append(landing + deriving)
    return median(found[_WARM_UP:])


def _in_new_process(pipeline: PipelineConfig, records: int, groups: int) -> float:
    """Return the same for the first batch of a process, without its start."""
    found = []
    for seed in range(_ROUNDS):
        _send(pipeline, 1, records, 2 * _BATCHES + 1 + seed, groups)
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            batch, derived = process.submit(_land, pipeline).result()
        found.append(batch.seconds + derived.seconds)
    return median(found)


_ROUNDS = 3
_BATCHES = 20
_WARM_UP = 5
"""Batches of a run that are not counted: the JVM compiles what they need."""


_GAME = "chess"


def _seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _append(pipeline: PipelineConfig, players: np.ndarray) -> None:
    rows = {
        "user_name": np.char.add("player_", np.char.zfill(players.astype(str), 5)),
        "event_timestamp": pa.array(players, pa.int64()).cast(pa.timestamp("us", "UTC")),
    }
    path = Path(pipeline.lake, f"silver_{_GAME}_events")
    write_deltalake(path, pa.table(rows), mode="append", schema_mode="merge")


def large_table(derived: Sequence[LargeDeriving], changed: int) -> Table:
    table = Table(title=f"A derived table of many groups, and a batch that changes {changed:,}")
    for heading in (
        "groups",
        "first",
        "plain GROUP BY",
        "ratio",
        "a batch",
        "MERGE",
        "Headgate is",
        "landed and derived",
        "one by one",
        "in a new process",
        "peak memory",
    ):
        table.add_column(heading, justify="right")
    for one in derived:
        table.add_row(
            f"{one.groups:,}",
            f"{one.first:.1f} s",
            f"{one.plain_first:.1f} s",
            f"{one.first / one.plain_first:.2f}",
            f"{one.ours:.2f} s",
            f"{one.peer:.2f} s",
            f"{one.peer / one.ours:.1f} x",
            f"{one.landed_and_derived:.2f} s",
            f"{one.by_itself:.2f} s",
            f"{one.in_new_process:.2f} s",
            f"{one.cost.peak_bytes / (1 << 30):.2f} GiB",
        )
    return table


def _pipeline(folder: Path) -> PipelineConfig:
    shutil.rmtree(folder, ignore_errors=True)
    return PipelineConfig(
        name="bench",
        source=Delta(path=str(folder / "inbox"), batch="4 GB"),
        registry=Registry(folder=str(folder / "schemas")),
        envelope=Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(folder / "lake"),
        silver="silver_{route}_events",
        gold={"gold_{route}_player_agg": _AGGREGATE.format("silver")},
    )


def _silver(pipeline: PipelineConfig, game: str) -> DeltaTable:
    return DeltaTable(Path(pipeline.lake, f"silver_{game}_events"))


def _gold(pipeline: PipelineConfig, game: str) -> Path:
    return Path(pipeline.lake, f"gold_{game}_player_agg")


def _send(
    pipeline: PipelineConfig, games: int, records: int, seed: int, players: int = PLAYERS
) -> None:
    assert isinstance(pipeline.source, Delta)
    assert pipeline.registry is not None
    inbox = DeltaDestination(pipeline.source.path, "games")
    plan = GamesPlan(games, versions=3, records=records, seed=seed, players=players)
    with closing(FolderRegistry(Path(str(pipeline.registry.folder)))) as registry:
        for _ in simulate_games(plan, registry, inbox):
            pass


def _land(pipeline: PipelineConfig) -> tuple[BatchLanded, GoldDerived]:
    events: list[Event] = []
    run_pipeline(pipeline, RunOptions(once=True), events.append)
    (batch,) = (event for event in events if isinstance(event, BatchLanded))
    (derived,) = (event for event in events if isinstance(event, GoldDerived))
    return batch, derived


def _merge_with_spark(spark: SparkSession, path: Path, files: Sequence[str]) -> float:
    """The usual way, with the new rows given for nothing: aggregate them, then MERGE."""
    began = time.perf_counter()
    spark.read.parquet(*files).createOrReplaceTempView("new_rows")
    spark.sql(
        f"""
        MERGE INTO delta.`{path}` AS row USING ({_AGGREGATE.format("new_rows")}) AS new
        ON row.user_name <=> new.user_name
        WHEN MATCHED THEN UPDATE SET session_count = row.session_count + new.session_count,
          first_seen = least(row.first_seen, new.first_seen),
          last_seen = greatest(row.last_seen, new.last_seen)
        WHEN NOT MATCHED THEN INSERT *
        """
    ).collect()
    return time.perf_counter() - began


def _require_same(pipeline: PipelineConfig, folder: Path, names: Sequence[str]) -> None:
    """A figure about two ways of which one is wrong says nothing."""
    for name in names:
        ours, peer = (
            DeltaTable(path).to_pyarrow_table().sort_by("user_name")
            for path in (_gold(pipeline, name), folder / "peer" / name)
        )
        assert ours.equals(peer), f"{name}: the two ways do not agree"
