"""Columns of merged and history tables that others add, widen, drop or retype."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType

from headgate.cdc.merge import merge_tables
from headgate.cdc.merge_table import TableMerged
from headgate.cdc.unmerged import MergePlan
from headgate.lake.commit import MergeRule, commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.merge import merge_into_files
from headgate.lake.snapshot import Snapshot

POINT = pa.struct([pa.field("x", pa.int64())])
PAYLOAD = {"id": pa.int64(), "name": pa.string(), "point": POINT, "amount": pa.int32()}


class Shop:
    """A change log, and the tables that it is merged into."""

    def __init__(self, lake: Path, key: tuple[str, ...] = ("id",)) -> None:
        self.lake, self.key, self.orders = lake, key, 0
        self.committer = DeltaRsCommitter(str(lake))
        self.land((1, "a"), (2, "b"))

    def land(self, *rows: tuple[int, str], **more: pa.Array) -> list[TableMerged]:
        """Land and merge changes."""
        numbers = range(self.orders + 1, self.orders + len(rows) + 1)
        self.orders += len(rows)
        columns = {
            "id": [key for key, _ in rows],
            "name": [name for _, name in rows],
            "point": [{"x": number} for number in numbers],
            "amount": list(numbers),
        }
        first = datetime(2026, 1, 1, tzinfo=UTC)
        changes = {
            **{name: pa.array(values, PAYLOAD[name]) for name, values in columns.items()},
            "_order": [f"{number:09}" for number in numbers],
            "_uuid": list(map(str, numbers)),
            "_is_deleted": [False] * len(rows),
            "_change_type": ["UPDATE"] * len(rows),
            "_source_timestamp": [first + timedelta(seconds=number) for number in numbers],
            "_primary_keys": pa.array([self.key] * len(rows), pa.list_(pa.string())),
        }
        log = pa.table({**changes, **more})
        write_deltalake(self.lake / "log", log, mode="append", schema_mode="merge")
        return self.merge()

    def merge(self) -> list[TableMerged]:
        plan = MergePlan(str(self.lake), "log", "shop", "history", "_tombstones", "app")
        results = list(merge_tables([plan], self.committer))
        assert all(isinstance(result, TableMerged) for result in results), results
        return results  # type: ignore[return-value]

    def opened(self, table: str) -> DeltaTable:
        return DeltaTable(self.lake / table)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.opened(table).to_pyarrow_table().sort_by("_order").select(columns)
        return [tuple(row.values()) for row in rows.to_pylist()]

    def alter(self, table: str, columns: Iterable[pa.Field]) -> None:
        """Change the columns of a table, and none of its rows."""
        folder = self.lake / table / "_delta_log"
        entry = json.loads((folder / f"{0:020}.json").read_text().splitlines()[2])
        text = Schema.from_arrow(pa.schema(columns)).to_json()
        metadata = {**entry["metaData"], "schemaString": text}
        version = self.opened(table).version() + 1
        (folder / f"{version:020}.json").write_text(json.dumps({"metaData": metadata}))

    def columns(self, table: str) -> pa.Schema:
        return pa.schema(self.opened(table).schema())


@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "no key"])
def test_rows_keep_their_values_in_columns_that_others_have_added(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    shop = Shop(tmp_path, key)
    tables = ["shop", "history"] if key else ["shop"]
    for table in tables:
        shop.opened(table).alter.add_columns([DeltaField("note", PrimitiveType("string"))])
    shop.land((1, "c"), (3, "d"))
    for table in tables:
        assert all(value is None for (value,) in shop.rows(table, "note"))
    later = [(2, "b"), (1, "c"), (3, "d")]
    assert shop.rows("shop", "id", "name") == (later if key else [(1, "a"), *later])
    # The log may get a column of its own at the same time.
    results = shop.land((2, "e"), more=pa.array([7]))
    assert not [result.rebuilt for result in results if result.rebuilt]
    assert shop.rows("shop", "id", "more")[-1] == (2, 7)
    assert {"note", "more"} <= set(shop.columns("shop").names)


def test_updated_rows_keep_values_that_only_the_table_has(tmp_path: Path) -> None:
    """Rows with them cannot be of others: that would be noticed, and the table rebuilt."""
    committer = DeltaRsCommitter(str(tmp_path))
    nested = [{"x": 1, "theirs": 10, "deep": {"y": 1, "theirs": 5}}, None]
    rows = pa.table({"id": [1, 2], "note": ["one", "two"], "point": nested, "name": ["a", "b"]})
    commit_rows(committer, "shop", rows)
    changes = pa.table(
        {
            "id": [1, 2, 3],
            "name": ["A", "B", "C"],
            "point": [{"x": 9, "deep": {"y": 8}}, {"x": 7, "deep": None}, None],
        }
    )
    table = Snapshot.open(str(tmp_path), "shop")
    assert table is not None
    written = merge_into_files(table, changes, MergeRule(("id",)))
    (file,) = written.files
    found = pq.read_table(tmp_path / "shop" / file.path).sort_by("id")
    assert found["note"].to_pylist() == ["one", "two", None]
    assert found["name"].to_pylist() == ["A", "B", "C"]
    assert found["point"].to_pylist() == [
        {"x": 9, "theirs": 10, "deep": {"y": 8, "theirs": 5}},
        {"x": 7, "theirs": None, "deep": None},
        None,
    ]


def test_columns_that_others_have_added_to_structs_stay(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    wider = pa.struct([*POINT, pa.field("theirs", pa.string())])
    for table in ("shop", "history"):
        columns = [
            column.with_type(wider) if column.name == "point" else column
            for column in shop.columns(table)
        ]
        shop.alter(table, columns)
    results = shop.land((1, "c"), (3, "d"))
    assert not [result.rebuilt for result in results if result.rebuilt]
    assert shop.rows("shop", "id", "point") == [
        (2, {"x": 2, "theirs": None}),
        (1, {"x": 3, "theirs": None}),
        (3, {"x": 4, "theirs": None}),
    ]
    assert shop.columns("history").field("point").type == wider


def test_columns_that_others_have_widened_stay(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    columns = [
        column.with_type(pa.int64()) if column.name == "amount" else column
        for column in shop.columns("shop")
    ]
    shop.alter("shop", columns)
    results = shop.land((1, "c"))
    assert not [result.rebuilt for result in results if result.rebuilt]
    assert shop.rows("shop", "id", "amount") == [(2, 2), (1, 3)]
    assert shop.columns("shop").field("amount").type == pa.int64()


@pytest.mark.parametrize("does", ["drop", "rename", "retype", "other case"])
def test_columns_that_others_have_dropped_or_retyped_are_rebuilt(tmp_path: Path, does: str) -> None:
    shop = Shop(tmp_path)
    names = {"rename": "title", "other case": "NAME"}
    for table in ("shop", "history"):
        columns = []
        for column in shop.columns(table):
            if column.name != "name":
                columns.append(column)
            elif does == "retype":
                columns.append(pa.field("name", pa.date32()))
            elif does in names:
                columns.append(pa.field(names[does], pa.string()))
        shop.alter(table, columns)
    results = shop.land((1, "c"))
    assert [result.rebuilt for result in results] == ["another writer has changed its columns"] * 2
    assert shop.rows("shop", "id", "name") == [(2, "b"), (1, "c")]
    assert shop.rows("history", "id", "name") == [(1, "a"), (2, "b"), (1, "c")]
