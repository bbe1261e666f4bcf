"""What Headgate does with a table of a lake, and the rows that are there afterwards."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.config import Contract
from headgate.engine.events import Event, GoldFailed, MergeFailed
from headgate.engine.follow_up import TableChanged
from headgate.engine.land_table import BatchMark, TablePending, land_table
from headgate.engine.plan import TableShape
from headgate.gold.follow import GoldFollowUp
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.statement import Change, ChangeKind, Column
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Mark
from headgate.lake.maintain import MaintenancePolicy, maintain_table
from headgate.lake.parquet import stage_rows
from headgate.lake.snapshot import Snapshot
from headgate.lake.writers import StagedFiles
from headgate.remove import owned_by, remove
from headgate.schema.changes import TableHistory
from headgate.serve.catalog import Catalog
from headgate.serve.push import Portion, PushQuery
from tests.cdc.change_lake import ChangeLake
from tests.features.tables import Feature

LOG, MERGED, HISTORY = "log_theatre_seats", "theatre_seats", "history_theatre_seats"
GOLD = f"names_of_{MERGED}"
ROWS = {1: ("a", 10), 2: ("b", 20), 3: ("c", 30), 4: ("d", 40)}
"""Name and amount by id."""
_BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
_OLD = 10 * 24 * 3600.0
_COLUMNS = (Column("id", "bigint"), Column("name", "varchar", length=20), Column("amount", "int"))
_GOLD = "SELECT name, count(*) AS n, sum(amount) AS total FROM merged GROUP BY name"


class Refused(Exception):
    """Raised for what an event reports as failed."""


class FeatureLake(ChangeLake):
    """A lake of change files whose merged table has no columns but those of its source."""

    def __init__(self, folder: Path, spark: SparkSession | None = None, keyed: bool = True) -> None:
        declared: dict[str, Any] = {
            "history": "history_{database}_{table}",
            "merge": {"metadata": False},
            "gold": {"names_of_{route}": _GOLD},
        }
        super().__init__(folder, declared)
        self.keyed = keyed
        self.spark = spark
        if spark is not None:
            self.committer = choose_committer("auto", lambda: spark, self.pipeline.lake)

    def land_changes(self, number: int, *changes: tuple[ChangeKind, int, str, int]) -> None:
        """Land a file with changes: kind, id, name, amount."""
        made = [
            Change(
                "theatre",
                "seats",
                _COLUMNS,
                ("id",) if self.keyed else (),
                kind,
                {"id": key, "name": name, "amount": amount},
                log_file="mysql-bin.000001",
                log_position=1000 * number + place,
                at=_BEGIN + timedelta(minutes=number, seconds=place),
            )
            for place, (kind, key, name, amount) in enumerate(changes)
        ]
        folder = self.folder / f"files-{number}"
        self.land_files(write_changes(made, folder))
        self.raise_failures()

    def run(self) -> Any:
        return super(ChangeLake, self).run()

    def raise_failures(self) -> None:
        for file in self.pipeline.pending():
            raise Refused(file.error)
        for event in self.events:
            if isinstance(event, (MergeFailed, GoldFailed)):
                raise Refused(event.error)


def make_lake(folder: Path, keyed: bool) -> FeatureLake:
    lake = FeatureLake(folder, keyed=keyed)
    lake.land_changes(1, *(("INSERT", key, *values) for key, values in ROWS.items()))
    return lake


@dataclass
class Cell:
    """A table with a feature, in a lake of its own."""

    lake: FeatureLake
    spark: SparkSession
    feature: Feature
    checked: str = MERGED
    """The table whose last commit tells who wrote it."""

    @property
    def rows(self) -> dict[int, tuple[str, int]]:
        """Rows as they were made."""
        return {key: row for key, row in ROWS.items() if key not in self.feature.deleted}

    def table(self, name: str) -> Path:
        return self.lake.path / name

    def read(self, name: str, *columns: str) -> Counter[tuple[Any, ...]]:
        """Read rows by Spark."""
        found = self.spark.read.format("delta").load(str(self.table(name)))
        return Counter(tuple(row) for row in found.select(*columns).collect())

    def require(self, name: str, rows: Mapping[int, tuple[str, int]]) -> None:
        wanted = Counter((key, *row) for key, row in rows.items())
        same(self.read(name, "id", "name", "amount"), wanted)

    def land(self, rows: pa.Table) -> None:
        """Land a file of rows in the merged table."""
        file = stage_rows(self.lake.pipeline.lake, MERGED, rows)
        file = replace(file, schema_ids=(7,), route="seats")
        landed = land_table(
            self.lake.committer,
            self.lake.pipeline.lake,
            MERGED,
            TableShape(pa.schema([])),
            [file],
            (),
            BatchMark(Mark("app", 1)),
            TableHistory(),
            Contract(),
        )
        if isinstance(landed, TablePending):
            raise Refused(landed.error)

    def derive(self) -> None:
        events: list[Event] = []
        gold = GoldFollowUp(self.spark, self.lake.committer, self.lake.pipeline, events.append)
        self.lake.events += events
        gold.follow([TableChanged(MERGED)], None)
        self.lake.events += events
        self.lake.raise_failures()

    def totals(self, rows: Mapping[int, tuple[str, int]]) -> None:
        same(
            self.read(GOLD, "name", "n", "total"),
            Counter((name, 1, amount) for name, amount in rows.values()),
        )

    def age(self, name: str) -> None:
        """Make all files of a table look ten days old."""
        for file in self.table(name).rglob("*"):
            if file.is_file():
                old = file.stat().st_mtime - _OLD
                os.utime(file, (old, old))


def same(found: object, wanted: object) -> None:
    """Raise unless rows are as they should be."""
    if found != wanted:
        raise AssertionError(f"found {found}, wanted {wanted}")


def _new(**more: pa.Array) -> pa.Table:
    columns = {"id": pa.array([9]), "name": ["z"], "amount": pa.array([90], pa.int32())}
    return pa.table({**columns, **more})


_LANDED = {9: ("z", 90)}


def land(cell: Cell) -> None:
    cell.land(_new())
    cell.require(MERGED, cell.rows | _LANDED)


def land_new_column(cell: Cell) -> None:
    cell.land(_new(colour=pa.array(["red"])))
    cell.require(MERGED, cell.rows | _LANDED)
    found = cell.read(MERGED, "id", "colour")
    same(found, Counter([(9, "red"), *((key, None) for key in cell.rows)]))


def widen(cell: Cell) -> None:
    """Land a value that the column's type cannot have."""
    cell.land(_new(amount=pa.array([2**40], pa.int64())))
    found = cell.spark.read.format("delta").load(str(cell.table(MERGED)))
    amounts = [name for name in found.columns if name.startswith("amount")]
    rows = {row["id"]: {row[name] for name in amounts} - {None} for row in found.collect()}
    same(rows, {key: {amount} for key, (_, amount) in cell.rows.items()} | {9: {2**40}})


_CHANGES: Sequence[tuple[ChangeKind, int, str, int]] = (
    ("UPDATE", 1, "a2", 11),
    ("DELETE", 2, "b", 20),
    ("INSERT", 5, "e", 50),
)


def _changed(rows: Mapping[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
    return {key: row for key, row in rows.items() if key != 2} | {1: ("a2", 11), 5: ("e", 50)}


def merge_into(cell: Cell) -> None:
    cell.lake.land_changes(2, *_CHANGES)
    cell.require(MERGED, _changed(cell.rows))
    if "delta.enableChangeDataFeed" in cell.feature.properties:
        newest = len(list((cell.table(MERGED) / "_delta_log").glob("*.json"))) - 1
        feed = cell.spark.read.format("delta").option("readChangeFeed", "true")
        changes = feed.option("startingVersion", newest).load(str(cell.table(MERGED)))
        kinds = Counter((row["_change_type"], row["id"]) for row in changes.collect())
        same(
            kinds,
            Counter(
                [
                    ("update_preimage", 1),
                    ("update_postimage", 1),
                    ("delete", 2),
                    ("insert", 5),
                ]
            ),
        )


def _rebuild(cell: Cell) -> None:
    """Merge the log from its beginning, then what lands after."""
    for name in (MERGED, HISTORY, f"_tombstones_{MERGED}"):
        shutil.rmtree(cell.table(name), ignore_errors=True)
    cell.lake.run()
    cell.lake.raise_failures()


def merge_from_log(cell: Cell) -> None:
    _rebuild(cell)
    cell.require(MERGED, cell.rows)
    cell.lake.land_changes(2, *_CHANGES)
    cell.require(MERGED, _changed(cell.rows))
    cell.checked = LOG


def append_from_log(cell: Cell) -> None:
    _rebuild(cell)
    cell.require(MERGED, cell.rows)
    cell.lake.land_changes(2, ("INSERT", 5, "e", 50))
    cell.require(MERGED, cell.rows | {5: ("e", 50)})
    cell.checked = LOG


def _versions(rows: Mapping[int, tuple[str, int]]) -> Counter[tuple[Any, ...]]:
    old = [(key, *row, key not in (1, 2)) for key, row in rows.items()]
    return Counter([*old, (1, "a2", 11, True), (5, "e", 50, True)])


def _history(cell: Cell) -> Counter[tuple[Any, ...]]:
    return cell.read(HISTORY, "id", "name", "amount", "_is_current")


def history_from_log(cell: Cell) -> None:
    _rebuild(cell)
    cell.lake.land_changes(2, *_CHANGES)
    same(_history(cell), _versions(cell.rows))
    cell.checked = LOG


def rewind(cell: Cell) -> None:
    cell.lake.land_changes(2, *_CHANGES)
    cell.lake.pipeline.rewind(MERGED, to=_BEGIN + timedelta(minutes=1, seconds=30), into="then")
    cell.require("then", cell.rows)
    cell.checked = "then"


def verify(cell: Cell) -> None:
    _rebuild(cell)
    found = cell.lake.pipeline.verify()
    verified = {table.table: table.total for table in found.merged}
    same(verified, dict.fromkeys((MERGED, HISTORY), 0))
    cell.checked = ""


def derive_from(cell: Cell) -> None:
    cell.derive()
    cell.totals(cell.rows)
    cell.lake.land_changes(2, ("INSERT", 5, "e", 50))
    cell.derive()
    cell.totals(cell.rows | {5: ("e", 50)})
    cell.checked = GOLD


def derive_into(cell: Cell) -> None:
    cell.lake.land_changes(2, ("INSERT", 5, "e", 50))
    cell.derive()
    cell.totals(ROWS | {5: ("e", 50)})
    cell.checked = GOLD


def refresh(cell: Cell) -> None:
    cell.lake.land_changes(2, *_CHANGES)
    (done,) = cell.lake.pipeline.refresh(GOLD)
    if done.error is not None:
        raise Refused(done.error)
    cell.totals(_changed(ROWS))
    cell.checked = GOLD


def compact(cell: Cell) -> None:
    done = cell.lake.committer.compact(MERGED, 1 << 20)
    cell.require(MERGED, cell.rows)
    cell.checked = MERGED if done.files else ""


def _snapshot(cell: Cell, name: str = MERGED) -> Snapshot:
    found = Snapshot.open(cell.lake.pipeline.lake, name)
    assert found is not None
    return found


def _maintain(cell: Cell, policy: MaintenancePolicy, staged: StagedFiles | None = None) -> None:
    cell.age(MERGED)
    table = Snapshot.open(cell.lake.pipeline.lake, MERGED)
    assert table is not None
    done = maintain_table(cell.lake.committer, table, policy, staged)
    if done.error is not None:
        raise Refused(done.error)
    cell.require(MERGED, cell.rows)
    cell.checked = ""


def expire(cell: Cell) -> None:
    _maintain(cell, MaintenancePolicy(keep=timedelta(days=1)))


def orphans(cell: Cell) -> None:
    left = cell.table(MERGED) / f"part-{uuid4()}.parquet"
    left.write_bytes(b"left behind")
    _maintain(cell, MaintenancePolicy(), StagedFiles())
    same(left.exists(), False)


def remove_all(cell: Cell) -> None:
    owned = owned_by(cell.lake.pipeline).everything
    remove(cell.lake.pipeline, owned)
    same(cell.table(MERGED).exists(), False)
    cell.checked = ""


def pull(cell: Cell) -> None:
    found = cell.lake.pipeline.query(f"SELECT id, name, amount FROM {MERGED}").read()
    rows = Counter(tuple(row.values()) for row in found.to_pylist())
    same(rows, Counter((key, *row) for key, row in cell.rows.items()))
    cell.checked = ""


def push(cell: Cell) -> None:
    text = f"SELECT id, name, amount FROM {MERGED} EMIT CHANGES"
    query = PushQuery(Catalog(cell.lake.pipeline), text)
    seen: Counter[tuple[Any, ...]] = Counter()

    def take(portion: object) -> None:
        assert isinstance(portion, Portion)
        for change in portion.changes():
            seen[tuple(change.row.values())] += 1 if "delete" not in change.operation else -1

    for portion in query.start():
        take(portion)
    same(+seen, Counter((key, *row) for key, row in cell.rows.items()))
    table = f"delta.`{cell.table(MERGED)}`"
    if "append" not in str(cell.feature.properties):
        cell.spark.sql(f"DELETE FROM {table} WHERE id = 1")
    cell.spark.sql(f"INSERT INTO {table} (id, name, amount) VALUES (9, 'z', 90)")
    while (more := query.poll()) is not None:
        take(more)
    after = {**cell.rows, **_LANDED}
    if "append" not in str(cell.feature.properties):
        del after[1]
    same(+seen, Counter((key, *row) for key, row in after.items()))
    cell.checked = ""


@dataclass(frozen=True)
class Operation:
    """What is done, and the table that has the feature."""

    do: Callable[[Cell], None]
    table: str = MERGED
    keyed: bool = True


OPERATIONS: Mapping[str, Operation] = {
    "land": Operation(land),
    "land a new column": Operation(land_new_column),
    "widen": Operation(widen),
    "merge into": Operation(merge_into),
    "merge from its log": Operation(merge_from_log, LOG),
    "append from its log": Operation(append_from_log, LOG, keyed=False),
    "history from its log": Operation(history_from_log, LOG),
    "rewind its log": Operation(rewind, LOG),
    "verify with its log": Operation(verify, LOG),
    "derive from": Operation(derive_from),
    "derive into": Operation(derive_into, GOLD),
    "refresh": Operation(refresh, GOLD),
    "compact": Operation(compact),
    "expire": Operation(expire),
    "delete orphans": Operation(orphans),
    "remove": Operation(remove_all),
    "pull query": Operation(pull),
    "push query": Operation(push),
}


def writer(table: Path) -> str:
    """Return who has written the newest version of a table, in the words of the page."""
    newest = max((table / "_delta_log").glob(f"{'[0-9]' * 20}.json"))
    for line in newest.read_text().splitlines():
        engine = json.loads(line).get("commitInfo", {}).get("engineInfo", "")
        if engine.startswith("Kernel"):
            return "by Kernel"
        if engine.startswith("Apache-Spark"):
            return "by Spark"
    return "yes"
