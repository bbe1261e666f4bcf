"""Change files: many merged tables at once, and a large one, beside Spark's MERGE."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from bench.measure import Cost, measured
from bench.running import Running
from headgate.config import Datastream, Files, PipelineConfig
from headgate.engine.events import BatchLanded, Event, TablesMerged
from headgate.engine.runner import RunOptions
from headgate.lab.shop.datastream import FileOptions, write_changes
from headgate.lab.shop.statement import Change, ChangeKind, Column
from headgate.run import run_pipeline

_COLUMNS = (
    Column("id", "bigint"),
    Column("name", "varchar", length=40),
    Column("price", "double"),
    Column("stock", "bigint"),
)
_LOOK_EVERY = 2.0
"""Seconds between looks at the memory, which would take up to a tenth of what is measured."""
_BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Merging:
    """The same changes, merged in two ways."""

    what: str
    tables: int
    changes: int
    ours: float
    """Seconds from files to merged tables, the change log included."""
    merging: float
    """Of these, the merges alone."""
    peer: float
    cost: Cost


def merge_many(
    spark: SparkSession, folder: Path, tables: int, changes: int, say: Callable[[str], None]
) -> Merging:
    """Each table has as many rows as it gets changes.

    Ours is the median of three batches; the last one is merged the other way, too.
    """
    pipeline = _pipeline(folder)
    names = [f"t{number:03d}" for number in range(tables)]
    say(f"{tables} tables: writing files of {tables * changes:,} changes, four times")
    _land(
        pipeline, 0, [_write(folder / "batch-0", name, _inserts(name, changes)) for name in names]
    )
    what = f"{tables} tables, {changes:,} changes each"
    rounds: list[Merging] = []
    for number in range(1, _ROUNDS + 1):
        for name in names if number == _ROUNDS else ():
            shutil.copytree(_merged(pipeline, name), folder / "peer" / name)
        made = [
            _write(
                folder / f"batch-{number}", name, _changes(name, changes, changes, changes, number)
            )
            for name in names
        ]
        with measured(every=_LOOK_EVERY) as cost:
            batch, merged = _land(pipeline, number, made)
        ours = batch.seconds + merged.seconds
        say(f"{what}: {ours:.2f} s ({merged.seconds:.2f} s merging)")
        rounds.append(Merging(what, tables, tables * changes, ours, merged.seconds, 0.0, cost))
    say(f"{tables} tables: now a MERGE for each of them")
    peer = sum(
        _merge_with_spark(spark, folder / "peer" / name, files)
        for name, files in zip(names, made, strict=True)
    )
    _require_same(pipeline, folder, names)
    return replace(_median(rounds), peer=peer)


def merge_large(
    spark: SparkSession, folder: Path, rows: int, say: Callable[[str], None]
) -> Iterator[Merging]:
    """One table that is much larger than what is merged into it, in one run.

    The first merge of each kind is not counted; a figure is the median of the others.
    """
    say(f"1 table of {rows:,} rows: writing it")
    pipeline = _pipeline(folder)
    _land(pipeline, 0, [_write(folder / "first", "large", _inserts("large", 1_000))])
    path = _merged(pipeline, "large")
    for start in range(1_000, rows, 1_000_000):
        write_deltalake(path, _rows(path, start, min(rows, start + 1_000_000)), mode="append")
    shutil.copytree(path, folder / "peer" / "large")
    kinds = {
        "1,000 changes of recent keys": (1_000, 10_000),
        "1,000 changes of any keys": (1_000, rows),
        "100,000 changes of any keys": (100_000, rows),
    }
    numbers = count(1)
    with Running(pipeline) as run:
        for kind, (changes, among) in kinds.items():
            rounds: list[Merging] = []
            for number in islice(numbers, _ROUNDS + 1):
                made = _changes("large", rows, changes, among, number)
                files = _write(folder / f"round-{number}", "large", made)
                with measured(every=_LOOK_EVERY) as cost:
                    landing, merging = _land_files(run, pipeline, files, changes)
                ours = landing + merging
                peer = _merge_with_spark(spark, folder / "peer" / "large", files)
                what = f"1 table of {rows:,} rows, {kind}"
                say(f"{what}: {ours:.2f} s ({merging:.2f} s merging); MERGE {peer:.2f} s")
                rounds.append(Merging(what, 1, changes, ours, merging, peer, cost))
            _require_same(pipeline, folder, ["large"])
            yield _median(rounds[1:])


_ROUNDS = 3


def _median(rounds: Sequence[Merging]) -> Merging:
    by_time = sorted(rounds, key=lambda one: one.ours)
    return replace(by_time[len(by_time) // 2], peer=median(one.peer for one in rounds))


def _land_files(
    run: Running, pipeline: PipelineConfig, files: Sequence[Path], changes: int
) -> tuple[float, float]:
    """Hand over files to a run; return the seconds of landing and of merging them."""
    folder = Path(pipeline.change_files.path)
    hidden = [folder / f".{file.parent.parent.name}-{file.name}" for file in files]
    for file, copy in zip(files, hidden, strict=True):
        shutil.copy(file, copy)
    for copy in hidden:
        copy.rename(folder / copy.name.removeprefix("."))
    rows, landing, merging = 0, 0.0, 0.0
    is_merged = False
    while rows < changes or not is_merged:
        match run.next_event():
            case BatchLanded() as batch:
                rows, landing, is_merged = rows + batch.rows, landing + batch.seconds, False
            case TablesMerged() as done:
                merging, is_merged = merging + done.seconds, True
    return landing, merging


def _pipeline(folder: Path) -> PipelineConfig:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "landing").mkdir(parents=True)
    return PipelineConfig(
        name="bench",
        source=Files(path=str(folder / "landing")),
        envelope=Datastream(),
        lake=str(folder / "lake"),
    )


def _merged(pipeline: PipelineConfig, table: str) -> Path:
    return Path(pipeline.lake, f"bench_{table}")


def _land(
    pipeline: PipelineConfig, number: int, files: Sequence[Sequence[Path]]
) -> tuple[BatchLanded, TablesMerged]:
    """Put the files of a batch into the landing folder and run."""
    for several in files:
        for file in several:
            name = f"{number}-{file.parent.name}-{file.name}"
            shutil.copy(file, Path(pipeline.change_files.path, name))
    events: list[Event] = []
    run_pipeline(pipeline, RunOptions(once=True), events.append)
    (batch,) = (event for event in events if isinstance(event, BatchLanded))
    (merged,) = (event for event in events if isinstance(event, TablesMerged))
    return batch, merged


def _write(folder: Path, table: str, changes: Sequence[Change]) -> list[Path]:
    return write_changes(changes, folder / table, FileOptions(changes_per_file=50_000))


def _inserts(table: str, rows: int) -> list[Change]:
    return [_change(table, number, "INSERT", number) for number in range(rows)]


def _changes(table: str, rows: int, changes: int, among: int, number: int = 1) -> list[Change]:
    """Seven in ten change a row, among the last ones; two add one, one takes one away."""
    chance = np.random.default_rng(number)
    there = rows - 1 - chance.choice(among, changes, replace=False)
    made: list[Change] = []
    for place, key in enumerate(there.tolist()):
        kind: ChangeKind = "DELETE" if place % 10 == 0 else "UPDATE"
        if place % 10 in (1, 2):
            kind, key = "INSERT", rows * number + place
        made.append(_change(table, key, kind, number * 10_000_000 + place))
    return made


def _change(table: str, key: int, kind: ChangeKind, position: int) -> Change:
    values = {"id": key, "name": f"name {position}", "price": position / 7, "stock": position}
    return Change(
        database="bench",
        table=table,
        columns=_COLUMNS,
        primary_key=("id",),
        kind=kind,
        values=values,
        log_file="mysql-bin.000001",
        log_position=position,
        at=_BEGAN + timedelta(milliseconds=position // 1_000),
    )


def _rows(path: Path, start: int, end: int) -> pa.Table:
    """Rows as a merge would have put them."""
    keys = np.arange(start, end)
    order = np.char.add("1.0000.00000000000000000001.", np.char.zfill(keys.astype(str), 20))
    columns = {
        "id": pa.array(keys),
        "name": pa.array(np.char.add("name ", keys.astype(str))),
        "price": pa.array(keys / 7),
        "stock": pa.array(keys),
        "_change_type": pa.repeat("INSERT", len(keys)),
        "_source_timestamp": pa.repeat(pa.scalar(_BEGAN, pa.timestamp("us", "UTC")), len(keys)),
        "_order": pa.array(order),
    }
    schema = pa.schema(DeltaTable(path).schema())
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _merge_with_spark(spark: SparkSession, path: Path, files: Sequence[Path]) -> float:
    """The usual way: the newest change of each key, then MERGE. No change log is kept."""
    began = time.perf_counter()
    changes = spark.read.format("avro").load([str(file) for file in files])
    changes.createOrReplaceTempView("changes")
    spark.sql(
        f"""
        MERGE INTO delta.`{path}` AS row USING (
          SELECT * FROM (
            SELECT payload.*, source_metadata.change_type AS _change_type,
              source_metadata.is_deleted AS gone, source_timestamp,
              source_metadata.log_position AS position,
              row_number() OVER (
                PARTITION BY payload.id ORDER BY source_metadata.log_file DESC,
                source_metadata.log_position DESC
              ) AS rank
            FROM changes
          ) WHERE rank = 1
        ) AS change
        ON row.id = change.id
        WHEN MATCHED AND change.gone THEN DELETE
        WHEN MATCHED THEN UPDATE SET name = change.name, price = change.price,
          stock = change.stock, _change_type = change._change_type
        WHEN NOT MATCHED AND NOT change.gone THEN
          INSERT (id, name, price, stock, _change_type)
          VALUES (change.id, change.name, change.price, change.stock, change._change_type)
        """
    ).collect()
    return time.perf_counter() - began


def _require_same(pipeline: PipelineConfig, folder: Path, names: Sequence[str]) -> None:
    """A figure about two ways of which one is wrong says nothing."""
    for name in names:
        ours, peer = (
            DeltaTable(path).to_pyarrow_table(columns=["id", "name"]).sort_by("id")
            for path in (_merged(pipeline, name), folder / "peer" / name)
        )
        assert ours.equals(peer), f"{name}: the two ways do not agree"
