"""A small lake of change files: two tables of a shop, some changes that could not land."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import headgate
from headgate.examples import find_example
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.statement import Change, ChangeKind, Column
from tests.cdc.change_lake import ChangeLake

FIRST = datetime(2026, 11, 1, 12, tzinfo=UTC)
OF_ANOTHER_SERIES = 3
"""Changes whose order is not known until somebody declares it."""

COLUMNS = (Column("id", "bigint"), Column("name", "varchar", length=40))
AMOUNT = Column("amount", "bigint")


class ShopLake(ChangeLake):
    """A pipeline file, and what runs of it would have landed and written in the ledger."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file = folder / "shop.yaml"
        self.file.write_text(find_example("shop").text(), "utf-8")
        self.made_at = datetime.now(UTC)
        self.batches = 0
        self.declare()

    def declare(self, was: str = "", becomes: str = "") -> None:
        """Read the pipeline file, once it says something else."""
        self.file.write_text(self.file.read_text("utf-8").replace(was, becomes), "utf-8")
        self.pipeline = headgate.load(self.file)

    def declare_lineages(self, *lineages: str) -> None:
        declared = f"envelope:\n  datastream:\n    lineages: {json.dumps(lineages)}\n"
        self.declare("envelope: datastream\n", declared)

    def land_changes(self, *changes: Change) -> None:
        """One batch; changes of one table and minute share a file."""
        self.land_files(write_changes(changes, self.folder / "landing" / str(self.batches)))
        self.batches += 1


def change(
    table: str,
    key: int,
    name: str,
    at: int,
    kind: ChangeKind = "INSERT",
    series: str = "mysql-bin",
    amount: int | None = None,
) -> Change:
    """One of the so many-th minute; with an amount, the table has a column for it by then."""
    values: dict[str, object] = {"id": key, "name": name}
    return Change(
        database="shop",
        table=table,
        columns=COLUMNS if amount is None else (*COLUMNS, AMOUNT),
        primary_key=("id",),
        kind=kind,
        values=values if amount is None else {**values, "amount": amount},
        log_file=f"{series}.000001",
        log_position=1000 + at,
        at=FIRST + timedelta(minutes=at),
    )


def make_shop_lake(folder: Path) -> ShopLake:
    """Orders and customers; then orders get a column, another server takes over, and a file is
    rubbish."""
    lake = ShopLake(folder)
    lake.land_changes(
        *(change("orders", key, "new", at=key) for key in range(1, 5)),
        *(change("customers", key, "Ann", at=key) for key in range(1, 3)),
    )
    taken_over = [
        change("orders", 1, "shipped", at=20, kind="UPDATE", series="binlog"),
        change("orders", 2, "gone", at=21, kind="DELETE", series="binlog"),
        change("orders", 9, "late", at=22, series="binlog"),
    ]
    assert len(taken_over) == OF_ANOTHER_SERIES
    lake.land_changes(
        change("orders", 3, "paid", at=10, kind="UPDATE", amount=7),
        change("orders", 4, "gone", at=11, kind="DELETE", amount=8),
        *taken_over,
    )
    rubbish = folder / "landing" / "2" / "rubbish.avro"
    rubbish.parent.mkdir()
    rubbish.write_bytes(b"no change file")
    os.utime(rubbish, (0, 0))
    lake.land_files([rubbish])
    return lake
