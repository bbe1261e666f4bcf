"""Merged and history tables are the fold of their log, whatever others do to all of them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType

from headgate.cdc import merge as merge_module
from headgate.cdc.merge import merge_tables
from headgate.cdc.merge_table import TableMerged
from headgate.cdc.unmerged import MergePlan
from headgate.lake.commit import Commit, MergeCommit, MergeCounts
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.testing import FailingCommitter

LOG, MERGED, HISTORY, TOMBSTONES = "log", "shop", "shop_history", "_tombstones_shop"
COLUMNS = pa.schema(
    [
        pa.field("id", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("_order", pa.string()),
        pa.field("_uuid", pa.string()),
        pa.field("_is_deleted", pa.bool_()),
        pa.field("_change_type", pa.string()),
        pa.field("_source_timestamp", pa.timestamp("us", "UTC")),
        pa.field("_primary_keys", pa.list_(pa.string())),
    ]
)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = (1.0, 2.0, 3.0, float("nan"))
Row = tuple[Any, ...]


@dataclass
class MeddlingCommitter(FailingCommitter):
    """Has somebody else do something just before a commit."""

    before: list[Callable[[], None]] = field(default_factory=list)

    def commit(self, commit: Commit) -> int:
        self._meddle(commit.table)
        return super().commit(commit)

    def merge(self, merge: MergeCommit) -> MergeCounts:
        self._meddle(merge.table)
        return super().merge(merge)

    def _meddle(self, table: str) -> None:
        if self.before and table in (MERGED, HISTORY):
            self.before.pop()()


@dataclass
class Shop:
    """A change log and its tables, and everybody who writes to them."""

    lake: Path
    random: Random
    metadata: bool
    has_key: bool
    orders: int = 0
    recorded: dict[str, int] = field(default_factory=dict)

    def append(self) -> None:
        changes = [self._change() for _ in range(self.random.randint(1, 3))]
        extra = self.random.random() < 0.2
        rows = pa.Table.from_pylist(changes, COLUMNS)
        if extra:
            rows = rows.append_column("more", pa.array(range(len(rows)), pa.int64()))
        write_deltalake(self.lake / LOG, rows, mode="append", schema_mode="merge")

    def _change(self) -> dict[str, Any]:
        self.orders += 1
        late = self.random.random() < 0.2
        order = self.random.randint(1, self.orders) if late else self.orders
        deleted = self.random.random() < 0.3
        return {
            "id": self.random.choice(KEYS),
            "name": f"name {self.orders}",
            "_order": f"{order:09}.{self.orders:09}",
            "_uuid": str(self.orders),
            "_is_deleted": deleted,
            "_change_type": "DELETE" if deleted else "UPDATE",
            "_source_timestamp": FIRST + timedelta(seconds=order),
            "_primary_keys": ["id"] if self.has_key else [],
        }

    def create_log_again(self) -> None:
        versions = DeltaTable(self.lake / LOG).version() + self.random.randint(-1, 2)
        shutil.rmtree(self.lake / LOG)
        for _ in range(max(versions, 0) + 1):
            self.append()

    def meddle(self, table: str) -> None:
        """Do what others do to a table."""
        if not (self.lake / table / "_delta_log").exists():
            return
        opened = DeltaTable(self.lake / table)
        does = self.random.choice(("restore", "delete", "compact", "update", "add a column"))
        if does == "restore" and opened.version():
            opened.restore(self.random.randrange(opened.version()))
        elif does == "delete":
            opened.delete(f"id = {self.random.randint(1, 3)}.0")
        elif does == "compact":
            opened.optimize.compact()
        elif does == "update" and table != LOG:
            row = f"id = {self.random.randint(1, 3)}.0"
            opened.update(predicate=row, new_values={"name": "theirs"})
        elif does == "add a column" and "theirs" not in pa.schema(opened.schema()).names:
            opened.alter.add_columns([DeltaField("theirs", PrimitiveType("string"))])

    def lose_tombstones(self) -> None:
        shutil.rmtree(self.lake / TOMBSTONES, ignore_errors=True)

    def meddle_with_any(self) -> None:
        self.meddle(self.random.choice((LOG, MERGED, HISTORY)))

    def merge(self) -> None:
        committer = MeddlingCommitter(DeltaRsCommitter(str(self.lake)))
        if self.random.random() < 0.3:
            committer.before.append(self.meddle_with_one_of_ours)
        elif self.random.random() < 0.3:
            committer.before.append(self.merge_beside)
        self._merge(committer)

    def meddle_with_one_of_ours(self) -> None:
        self.meddle(self.random.choice((MERGED, HISTORY)))

    def merge_beside(self) -> None:
        if self.random.random() < 0.5:
            self.append()
        self._merge(FailingCommitter(DeltaRsCommitter(str(self.lake))))

    def _merge(self, committer: FailingCommitter) -> None:
        written = self.random.choice((self.recorded, self.recorded, {}))
        plan = replace(self.plan, written=dict(written))
        for result in merge_tables([plan], committer):
            assert isinstance(result, TableMerged), result
            self.recorded[result.table] = result.version

    @property
    def plan(self) -> MergePlan:
        tables = LOG, MERGED, HISTORY, TOMBSTONES
        return MergePlan(str(self.lake), *tables, app="shop:merge", metadata=self.metadata)

    def rows(self, table: str, *columns: str) -> Counter[Row]:
        found = DeltaTable(self.lake / table).to_pyarrow_table().select(columns).to_pylist()
        return Counter(comparable(row.values()) for row in found)

    def fold(self) -> Counter[Row]:
        if not self.has_key:
            return Counter(comparable((row["id"], row["name"])) for row in self._changes())
        last = {comparable([row["id"]]): row for row in self._changes()}.values()
        return Counter(
            comparable((row["id"], row["name"])) for row in last if not row["_is_deleted"]
        )

    def versions(self) -> Iterator[Row]:
        changes = self._changes()
        for at, row in enumerate(changes):
            if row["_is_deleted"]:
                continue
            later = [
                one
                for one in changes[at + 1 :]
                if comparable([one["id"]]) == comparable([row["id"]])
            ]
            ends = later[0]["_source_timestamp"] if later else None
            yield comparable((row["id"], row["name"], row["_source_timestamp"], ends, not later))

    def _changes(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(self.lake / LOG).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["_order"])

    def assert_folded(self) -> None:
        assert self.rows(MERGED, "id", "name") == self.fold()
        if self.has_key:
            columns = "id", "name", "_valid_from", "_valid_to", "_is_current"
            assert self.rows(HISTORY, *columns) == Counter(self.versions())


def comparable(values: Sequence[Any] | Any) -> Row:
    return tuple("NaN" if value != value else value for value in values)


def run(folder: Path, seed: int) -> None:
    random = Random(seed)
    shop = Shop(folder, random, random.random() < 0.7, random.random() < 0.7)
    shop.append()
    actors = [shop.append] * 4 + [shop.meddle_with_any] * 3
    actors += [shop.create_log_again, shop.lose_tombstones]
    for _ in range(6):
        for _ in range(random.randint(1, 3)):
            random.choice(actors)()
        shop.merge()
        # What was done to a table while it was merged is noticed by the next merge.
        shop._merge(FailingCommitter(DeltaRsCommitter(str(shop.lake))))
        shop.assert_folded()


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "sleep", lambda _: None)


@pytest.mark.parametrize("seed", range(16))
def test_tables_are_the_fold_of_their_log(seed: int, tmp_path: Path) -> None:
    run(tmp_path, seed)


@pytest.mark.soak
def test_tables_are_the_fold_of_their_log_in_many_runs(tmp_path: Path) -> None:
    for seed in range(100, 400):
        run(tmp_path / str(seed), seed)


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata", "no metadata"])
def test_late_change_of_a_deleted_row_whose_tombstone_is_lost(
    metadata: bool, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, Random(0), metadata, has_key=True)
    merge = FailingCommitter(DeltaRsCommitter(str(tmp_path)))
    for order, deleted in ((5, False), (7, True), (6, False), (3, False)):
        change = {**shop._change(), "id": 1.0, "_order": f"{order:09}", "_is_deleted": deleted}
        rows = pa.Table.from_pylist([change], COLUMNS)
        write_deltalake(tmp_path / LOG, rows, mode="append")
        if order < 7:
            shop.lose_tombstones()
        shop._merge(merge)
        shop.assert_folded()
