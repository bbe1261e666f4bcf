"""Work to be killed: each can be run again until it is done, and compared with a plain model.

python -m tests.kills.workloads games FOLDER
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from unittest.mock import patch

from deltalake import DeltaTable

from headgate import maintain
from headgate.lab.shop.simulate import DatabaseModel, ShopPlan, simulate_shop
from headgate.lake import ledger
from headgate.lake.log import versions_of_entries
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.replay import PortionLimit
from headgate.testing import FailingCommitter, Record
from tests.cdc.change_lake import ChangeLake
from tests.engine.games import LARGER, PLAIN, RETYPED, TWIN, UNKNOWN, WIDER, GamesLake, record
from tests.kills.seams import LANDING, MAINTAINING, MERGING, PREDICTING, REPLAYING, Seam
from tests.lake.large_tables import merged_as_if
from tests.models.orders import OrdersLake
from tests.quarantine.replaying import drop, learn, replay

Rows = list[dict[str, Any]]


class Workload(Protocol):
    """Something to land, in this process and without Spark."""

    @property
    def seams(self) -> Sequence[Seam]:
        """The seams that a run reaches."""
        ...

    def prepare(self, folder: Path) -> None:
        """Write the source."""

    def run(self, folder: Path) -> None:
        """Continue wherever an earlier run ended, and land everything."""

    def check(self, folder: Path) -> None:
        """Compare the lake with the model."""


class Games:
    """Records of two tables whose columns change, of which some land by a replay only."""

    seams = (*LANDING, *REPLAYING)

    def prepare(self, folder: Path) -> None:
        GamesLake(folder)

    def run(self, folder: Path) -> None:
        with patch.multiple(ledger, _TOTALS_EVERY=2, _COMPACTED_EVERY=2):
            self._run(folder)

    def _run(self, folder: Path) -> None:
        lake = GamesLake(folder, bronze="bronze")
        committer = lake.committer = FailingCommitter(lake.committer)
        lake.run()
        landed = lake.ledger.landed()
        for number in range(0 if landed is None else landed + 1, len(_batches())):
            if number == 2:
                committer.refusing.add("silver_b")
            lake.land([sent.record for sent in _batches()[number]])
            committer.heal()
        lake.run()
        learn(lake)
        replay(lake, portion=PortionLimit(6))
        drop(lake, QuarantineFilter(reason="envelope_undecodable"))

    def check(self, folder: Path) -> None:
        lake = folder / "lake"
        found: dict[tuple[int, int], list[str]] = defaultdict(list)
        values: dict[tuple[int, int], set[str]] = {}
        bronze: Counter[tuple[int, int]] = Counter()
        for table in (*sorted(lake.glob("silver_*")), lake / "quarantine", lake / "bronze"):
            for row in read(table):
                place = row["_partition"], row["_offset"]
                if table.name == "bronze":
                    bronze[place] += 1
                elif table.name != "quarantine":
                    found[place].append(table.name)
                    values[place] = {str(value) for value in row.values()}
                elif row["state"] != "replayed":
                    found[place].append(row["state"])
        sent = [one for batch in _batches() for one in batch]
        assert dict(found) == {one.place: [one.expected] for one in sent}
        landed = [one for one in sent if one.expected.startswith("silver_")]
        assert [one for one in landed if str(one.number) not in values[one.place]] == []
        assert {bronze[one.place] for one in landed} == {1}
        assert set(bronze.values()) == {1}


_RUBBISH, _NEVER_KNOWN = 0, 99
_KINDS = (PLAIN, PLAIN, WIDER, RETYPED, TWIN, LARGER, UNKNOWN, UNKNOWN, _NEVER_KNOWN, _RUBBISH)


class _Sent:
    """A record of a batch, and where it must end up."""

    def __init__(self, number: int, place: tuple[int, int], route: str, kind: int) -> None:
        value = b"\xff" if kind == _RUBBISH else record(route, number, kind)
        self.number = number
        self.place = place
        self.record = Record(value, partition=place[0])
        self.expected = {_RUBBISH: "dropped", _NEVER_KNOWN: "open"}.get(kind, f"silver_{route}")


@cache
def _batches() -> list[list[_Sent]]:
    """Return the same records in every process; later batches have more kinds of schemas."""
    random = Random(5)
    offsets: Counter[int] = Counter()
    batches = []
    for batch in range(4):
        sent = []
        for kind in _KINDS if batch else (PLAIN, WIDER, UNKNOWN):
            partition, number = random.randrange(2), 1000 + offsets.total()
            place = partition, offsets[partition]
            sent.append(_Sent(number, place, random.choice("ab"), kind))
            offsets[partition] += 1
        batches.append(sent)
    return batches


class Maintained:
    """Many small batches of two tables, whose files are combined and whose versions expire."""

    seams = (*LANDING, *MAINTAINING)
    _BATCHES = 70

    def prepare(self, folder: Path) -> None:
        GamesLake(folder)

    def run(self, folder: Path) -> None:
        often = patch.multiple(maintain, _COMPACTED_EVERY=4, _EXPIRED_EVERY=8, _FEWEST=2)
        with often, patch.multiple(ledger, _TOTALS_EVERY=5, _COMPACTED_EVERY=5):
            lake = GamesLake(folder, maintain={"max_versions": 20})
            lake.run()
            landed = lake.ledger.landed()
            for number in range(0 if landed is None else landed + 1, self._BATCHES):
                lake.land([record(route, number) for route in "ab"])

    def check(self, folder: Path) -> None:
        lake = GamesLake(folder, maintain={"max_versions": 20})
        for file in (folder / "lake").rglob("*.parquet"):
            os.utime(file, (0, 0))  # What was not committed is an orphan after a day.
        assert not [one.error for one in lake.pipeline.run_maintenance() if one.error]
        for route in "ab":
            table = folder / "lake" / f"silver_{route}"
            assert [row["n"] for row in lake.rows(table.name)] == [*range(self._BATCHES)]
            kept = {
                path.rpartition("/")[2]
                for version in versions_of_entries(os.listdir(table / "_delta_log"))
                for path in DeltaTable(table, version=version).file_uris()
            }
            assert {path.name for path in table.glob("*.parquet")} == kept


class Shop:
    """Change files of a shop, some of them twice, and one that is not a change file."""

    seams = (*LANDING, *MERGING)

    def __init__(self, large: bool = False) -> None:
        """`large` means tables with many files."""
        self._large = large

    def prepare(self, folder: Path) -> None:
        with TemporaryDirectory() as made:
            simulate_shop_into(Path(made))
            # Names that say nothing about their order.
            files = sorted(Path(made).rglob("*.avro"), key=lambda file: file.name)
            Random(3).shuffle(files)
            (folder / "landing").mkdir(parents=True)
            for number, file in enumerate(files):
                shutil.copy(file, folder / "landing" / f"{number:03d}.avro")
        (folder / "landing" / "007-broken.avro").write_bytes(b"no change file")

    def run(self, folder: Path) -> None:
        declared = {"history": "history_{database}_{table}"}
        with merged_as_if(self._large):
            lake = ChangeLake(folder, declared)
            lake.run()
            landed = lake.ledger.landed()
            batches = list(_portions(sorted((folder / "landing").iterdir()), 6))
            for files in batches[0 if landed is None else landed + 1 :]:
                lake.land_files(files)

    def check(self, folder: Path) -> None:
        lake = folder / "lake"
        assert_merged(lake, shop_rows())
        current = {
            table: [row for row in read(lake / f"history_shop_{table}") if row["_is_current"]]
            for table in shop_rows()
        }
        for table, rows in shop_rows().items():
            assert_same_rows(current[table], rows, table)
        assert [row["reason"] for row in read(lake / "quarantine")] == ["file_unreadable"]


def simulate_shop_into(folder: Path) -> DatabaseModel:
    """Write change files, and return the database after all changes."""
    model = DatabaseModel()
    plan = ShopPlan(folder, changes=150, changes_per_file=20, writers=2, duplicates=0.2, seed=4)
    for _ in simulate_shop(plan, model):
        pass
    return model


@cache
def shop_rows() -> Mapping[str, Rows]:
    """Return the rows of the simulated database, by table."""
    with TemporaryDirectory() as folder:
        model = simulate_shop_into(Path(folder))
    return {name: [dict(row) for row in table.rows] for name, table in model.tables.items()}


def assert_merged(lake: Path, tables: Mapping[str, Rows]) -> None:
    """Compare merged tables with those of the database; each change must be in its log once."""
    for table, rows in tables.items():
        assert_same_rows(read(lake / f"shop_{table}"), rows, table)
    for log in lake.glob("log_shop_*"):
        changes = Counter(row["_uuid"] for row in read(log))
        assert set(changes.values()) == {1}, log.name


def assert_same_rows(found: Rows, wanted: Rows, table: str) -> None:
    columns = list(wanted[0]) if wanted else []
    assert _comparable(found, columns) == _comparable(wanted, columns), table


def _comparable(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return rows without the names of time zones, which differ between libraries."""
    return sorted(repr([_plain(row.get(column)) for column in columns]) for row in rows)


def _plain(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value


class Waits:
    """Orders of stores, each of which changes the predicted wait of its store."""

    seams = (*LANDING, *PREDICTING)
    _BATCHES = ((1, 2), (1, 1, 3), (2,), (3, 1), (2, 2, 2), (1,))
    """The stores of the orders."""

    def prepare(self, folder: Path) -> None:
        self._lake(folder)

    def run(self, folder: Path) -> None:
        with patch.multiple(ledger, _TOTALS_EVERY=2, _COMPACTED_EVERY=2):
            lake = self._lake(folder)
            lake.run()
            landed = lake.ledger.landed()
            for number in range(0 if landed is None else landed + 1, len(self._BATCHES)):
                lake.land([lake.order(store, number) for store in self._BATCHES[number]])

    def check(self, folder: Path) -> None:
        lake = self._lake(folder)
        orders: Counter[int] = Counter()
        expected = []
        for stores in self._BATCHES:
            orders.update(stores)
            expected += [(store, orders[store] * 5.0) for store in sorted({*stores})]
        assert Counter(row["store_id"] for row in lake.rows("orders_landed")) == orders
        assert [wait[:2] for wait in lake.waits()] == expected
        ids = [row["prediction_id"] for row in lake.rows("waits")]
        assert len({*ids}) == len(ids)

    def _lake(self, folder: Path) -> OrdersLake:
        lake = OrdersLake(folder)
        lake.models.promote(5)
        return lake


def read(table: Path) -> Rows:
    rows: Rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def _portions(files: Sequence[Path], size: int) -> Iterator[Sequence[Path]]:
    for start in range(0, len(files), size):
        yield files[start : start + size]


WORKLOADS: dict[str, Workload] = {
    "games": Games(),
    "shop": Shop(),
    "large-shop": Shop(large=True),
    "waits": Waits(),
    "maintained": Maintained(),
}


if __name__ == "__main__":
    WORKLOADS[sys.argv[1]].run(Path(sys.argv[2]))
