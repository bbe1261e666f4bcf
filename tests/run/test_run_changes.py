"""Change pipelines as they are run: by Spark, on files of a real and of a made-up database."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headgate.cdc.rewind import rewind
from headgate.cdc.verify import verify
from headgate.config import Datastream, Duration, Files, Merge, PipelineConfig, Size, load_pipeline
from headgate.engine.events import BatchLanded, FilesWait, Idle, TablesMerged
from headgate.engine.runner import RunOptions
from headgate.lab.database import Database
from headgate.lab.shop.binary_log import connect
from headgate.lab.shop.database import ShopDatabase, read_tables
from headgate.lab.shop.datastream import FileOptions, write_changes
from headgate.lab.shop.simulate import DatabaseModel, ShopPlan, simulate_shop
from headgate.lab.shop.statement import Change
from headgate.lab.shop.workload import OPENING, statements
from headgate.run import run_pipeline
from headgate.sources.stop_signal import StopSignal
from tests.rounds import rounds
from tests.run.conftest import Told

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

PARTS = 3
STATEMENTS = 120


def pipeline(folder: Path, **more: Any) -> PipelineConfig:
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    return PipelineConfig(
        name="shop",
        **{
            "source": Files(path=str(folder / "landing"), files_per_batch=40),
            "envelope": Datastream(),
            "lake": str(folder / "lake"),
            **more,
        },
    )


def rows_of(lake: Path, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = DeltaTable(lake / table).to_pyarrow_table().to_pylist()
    return sorted((tuple(row.get(name) for name in columns) for row in rows), key=repr)


def assert_same(lake: Path, tables: Tables, name: str = "shop_{}") -> None:
    for table, rows in tables.items():
        columns = list(rows[0]) if rows else []
        wanted = sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
        found = rows_of(lake, name.format(table), columns)
        assert sorted(map(plain, found)) == sorted(map(plain, wanted)), table


def plain(row: tuple[Any, ...]) -> str:
    """Moments without the names of their zones, which differ between libraries."""
    return repr([one.timestamp() if isinstance(one, datetime) else one for one in row])


@dataclass
class RealShop:
    """A workload on the real database, told by files, and the tables after each part of it."""

    files: list[Path]
    dumps: list[tuple[datetime, Tables]]

    @property
    def tables(self) -> Tables:
        return self.dumps[-1][1]


@pytest.fixture(scope="module")
def real_shop(database: Database, tmp_path_factory: pytest.TempPathFactory) -> RealShop:
    changes: list[Change] = []
    dumps: list[tuple[datetime, Tables]] = []
    happening = statements(seed=11, evolve_every=15)
    with connect(database) as connection:
        shop = ShopDatabase(database, connection, "shop")
        shop.recreate()
        for _ in range(PARTS):
            for statement in islice(happening, OPENING + STATEMENTS):
                shop.run(statement)
            changes += shop.new_changes()
            dumps.append((datetime.now(UTC), read_tables(connection)))
            # The log's clock has whole seconds: what comes next is later by it, too.
            time.sleep(1.1)
    options = FileOptions(changes_per_file=25, writers=3, shuffled=True, duplicates=0.2, seed=5)
    files = write_changes(changes, tmp_path_factory.mktemp("files"), options)
    return RealShop(files, dumps)


def put(files: Sequence[Path], folder: Path) -> None:
    """Under names that say nothing of their order."""
    order = list(files)
    random.Random(3).shuffle(order)
    for number, file in enumerate(order):
        shutil.copy(file, folder / "landing" / f"{number:05d}{file.suffix}")


@rounds(1, 20)
def test_merged_tables_are_the_real_database_though_runs_are_killed(
    real_shop: RealShop, tmp_path: Path, cases: int
) -> None:
    (tmp_path / "landing").mkdir()
    file = tmp_path / "shop.yaml"
    file.write_text(
        """
name: shop
source: {files: {path: ./landing, files_per_batch: 20}}
envelope: datastream
lake: ./lake
history: history_{database}_{table}
trigger: 100ms
gold:
  rows_of_{route}: SELECT count(*) AS rows, max(_source_timestamp) AS last FROM merged
  all_rows: SELECT route, count(*) AS rows FROM merged GROUP BY route
"""
    )
    put(real_shop.files, tmp_path)
    chance = random.Random(7)
    for _ in range(cases):
        run = headgate("run", str(file), "--json")
        assert run.stdout is not None
        # After some batches, at whatever point of the next one it happens to be.
        for _ in range(chance.randint(3, 12)):
            assert run.stdout.readline()
        run.kill()
        run.communicate()

    last = headgate("run", str(file), "--once", "--json")
    _, errors = last.communicate(timeout=500)

    assert last.returncode == 0, errors
    lake = tmp_path / "lake"
    assert not (lake / "quarantine").exists()
    assert_same(lake, real_shop.tables)
    counts = {f"shop_{table}": len(rows) for table, rows in real_shop.tables.items()}
    derived = DeltaTable(lake / "all_rows").to_pyarrow_table().to_pylist()
    assert {row["route"]: row["rows"] for row in derived} == {k: v for k, v in counts.items() if v}
    for table, count in counts.items():
        (row,) = DeltaTable(lake / f"rows_of_{table}").to_pyarrow_table().to_pylist()
        assert row["rows"] == count
    for log in lake.glob("log_shop_*"):
        uuids = DeltaTable(log).to_pyarrow_table(columns=["_uuid"])["_uuid"].to_pylist()
        assert len(uuids) == len(set(uuids)), log.name

    made = load_pipeline(file)
    assert made.lands_changes
    for number, (moment, tables) in enumerate(real_shop.dumps):
        for table in tables:
            rewind(made, f"shop.{table}", moment.isoformat(), f"then_{number}_{table}")
        assert_same(lake, tables, f"then_{number}_{{}}")
    verified = list(verify(made))
    assert {one.total for one in verified} == {0}
    assert {one.trouble for one in verified} == {None}
    assert len(verified) == 2 * len(real_shop.tables)
    DeltaTable(lake / "shop_vouchers").delete("_change_type = 'INSERT'")
    assert sum(one.total for one in verify(made, ["shop_vouchers"])) > 0


def headgate(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headgate", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_both_engines_come_to_the_same_rows(real_shop: RealShop, tmp_path: Path) -> None:
    made = pipeline(
        tmp_path,
        source=Files(path=str(tmp_path / "landing"), files_per_batch=len(real_shop.files) // 2),
        merge=Merge(spark_above=Size.parse("1 B")),
    )
    put(real_shop.files, tmp_path)
    told = Told()
    run_pipeline(made, RunOptions(once=True), told)
    assert sum(event.by_spark for event in told.of(TablesMerged)) > 0
    assert_same(tmp_path / "lake", real_shop.tables)


@pytest.mark.usefixtures("spark")
def test_what_comes_while_it_runs_lands_without_a_restart(tmp_path: Path) -> None:
    """New tables and columns, a file that is still being written, one that is none at all."""
    model = DatabaseModel()
    plan = ShopPlan(landing=tmp_path / "made", changes=600, changes_per_file=50)
    *_, shop = simulate_shop(plan, model)
    files = sorted(plan.landing.rglob("*.avro"))
    half = len(files) // 2
    made = pipeline(tmp_path, trigger=Duration(milliseconds=200))
    put(files[:half], tmp_path)
    told, stop = Told(), StopSignal()
    run = threading.Thread(target=run_pipeline, args=(made, RunOptions(), told, stop))
    run.start()
    try:
        told.wait_for(lambda: bool(told.of(Idle)))
        late = tmp_path / "landing" / "late.avro"
        content = files[half].read_bytes()
        late.write_bytes(content[: len(content) // 2])
        told.wait_for(lambda: bool(told.of(FilesWait)))
        (tmp_path / "landing" / "broken.avro").write_bytes(b"Obj\x01 and nothing that follows")
        for number, file in enumerate(files[half + 1 :]):
            shutil.copy(file, tmp_path / "landing" / f"second-{number}.avro")
        late.write_bytes(content)
        told.wait_for(lambda: landed(told) == shop.changes + shop.backfilled)
    finally:
        stop.request()
        run.join()
    assert_same(
        tmp_path / "lake",
        {name: table.rows for name, table in model.tables.items()},
    )
    quarantined = sum(map(Counter, (one.quarantined for one in told.of(BatchLanded))), Counter())
    assert quarantined == {"file_unreadable": 1}


def landed(told: Told) -> int:
    return sum(batch.rows for batch in told.of(BatchLanded))
