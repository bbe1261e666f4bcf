"""A small lake of change files: two tables of a shop, some changes that could not land."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headgate.cdc.source_tables import KnownSource
from headgate.config import load_pipeline
from headgate.engine.follow_up import Followed, TableChanged
from headgate.examples import find_example
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.statement import Change, ChangeKind, Column
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import Entry
from tests.cdc.in_process import ChangeLake

FIRST = datetime(2026, 11, 1, 12, tzinfo=UTC)
OF_ANOTHER_SERIES = 3
"""Changes whose order is not known until somebody declares it."""

COLUMNS = (Column("id", "bigint"), Column("name", "varchar", length=40))
AMOUNT = Column("amount", "bigint")


@dataclass
class ShopLake(ChangeLake):
    """A pipeline file, and what runs of it would have landed and written in the ledger."""

    entries: list[Entry] = field(default_factory=list)
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    batches: int = 0

    def __post_init__(self) -> None:
        self.file = self.folder / "shop.yaml"
        self.file.write_text(find_example("shop").text(), "utf-8")
        super().__post_init__()
        self.declare()

    def declare(self, was: str = "", becomes: str = "") -> None:
        """Read the pipeline file, once it says something else."""
        self.file.write_text(self.file.read_text("utf-8").replace(was, becomes), "utf-8")
        pipeline = load_pipeline(self.file)
        assert pipeline.lands_changes
        self.pipeline = pipeline
        self.lake = Path(pipeline.lake)
        self.ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)

    def declare_lineages(self, *lineages: str) -> None:
        declared = f"envelope:\n  datastream:\n    lineages: {json.dumps(lineages)}\n"
        self.declare("envelope: datastream\n", declared)

    def land_changes(self, *changes: Change) -> None:
        """One batch; changes of one table and minute share a file."""
        self.land(write_changes(changes, self.folder / "landing" / str(self.batches)))
        self.batches += 1

    def merge(self, logs: Iterable[tuple[str, KnownSource]]) -> None:
        super().merge(logs)
        self.entries += [result.entry for result in self.results]

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        self.entries = []
        super().follow(changed, batch)
        return Followed(self.entries)


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
    lake.land([rubbish])
    return lake
