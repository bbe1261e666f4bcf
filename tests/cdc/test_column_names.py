"""Columns of sources that are named like columns of ours."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headgate
from headgate.engine.events import MergeFailed
from headgate.envelopes.datastream.changes import RESERVED_COLUMN_NAMES
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.statement import Change, ChangeKind, Column
from headgate.schema.names import column_names
from tests.cdc.change_lake import ChangeLake

SOURCES = ("cdc", "lake/merge.py", "lake/key_index.py", "lake/commit.py", "envelopes/datastream")


def names_in_code() -> Iterator[str]:
    """Yield all texts of the code that merges which could be names of columns."""
    package = Path(headgate.__file__).parent
    for source in SOURCES:
        path = package / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    name = node.value
                    if name.isascii() and name.isidentifier() and len(name) < 40:
                        yield name


NAMES = sorted({name.lower(): name for name in (*names_in_code(), "id")}.values())


def values(name: str, key: int, number: int) -> Any:
    return key if name == "id" else f"{name} of {number}"


def change(key: int, number: int, kind: ChangeKind, primary_key: tuple[str, ...]) -> Change:
    of_key = {name: values(name, key, key) for name in primary_key}
    others = {name: values(name, key, number) for name in NAMES}
    columns = [Column(name, "bigint" if name == "id" else "varchar", length=60) for name in NAMES]
    return Change(
        database="shop",
        table="orders",
        columns=tuple(columns),
        primary_key=primary_key,
        kind=kind,
        values=others | of_key,
        log_file="mysql-bin.000001",
        log_position=1000 + number,
        at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number),
    )


def test_names_are_found() -> None:
    """Else the tests below would test nothing."""
    assert {"_order", "_valid_to", "_is_deleted", "_uuid", "key", "min"} <= {*NAMES}


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata", "no metadata"])
@pytest.mark.parametrize("primary_key", [("id",), tuple(NAMES[:40]), tuple(NAMES[-40:])])
def test_source_columns_may_have_any_name(
    tmp_path: Path, primary_key: tuple[str, ...], metadata: bool
) -> None:
    tables = {"history": "history_{table}", "merge": {"metadata": metadata}}
    lake = ChangeLake(tmp_path, tables)
    batches: list[list[tuple[int, int, ChangeKind]]] = [
        [(1, 1, "INSERT"), (2, 2, "INSERT")],
        [(1, 5, "UPDATE"), (3, 6, "INSERT"), (2, 7, "DELETE")],
        [(2, 4, "UPDATE"), (1, 3, "UPDATE")],  # late
    ]
    for number, batch in enumerate(batches):
        changes = [change(*one, primary_key) for one in batch]
        lake.land_files(write_changes(changes, tmp_path / "landing" / str(number)))
    columns = dict(zip(NAMES, column_names(NAMES, RESERVED_COLUMN_NAMES), strict=True))

    def wanted(key: int, number: int) -> dict[str, Any]:
        return {
            column: values(name, key, key if name in primary_key else number)
            for name, column in columns.items()
        }

    def stored(table: str) -> list[dict[str, Any]]:
        rows = lake.rows(table)
        own = [{column: row[column] for column in columns.values()} for row in rows]
        return sorted(own, key=repr)

    assert stored("shop_orders") == sorted([wanted(1, 5), wanted(3, 6)], key=repr)
    history = [wanted(1, 1), wanted(1, 3), wanted(1, 5), wanted(2, 2), wanted(2, 4), wanted(3, 6)]
    assert stored("history_orders") == sorted(history, key=repr)


def test_column_that_somebody_adds_to_a_log_and_its_history_needs(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, {"history": "history_{table}"})
    lake.land_files(write_changes([change(1, 1, "INSERT", ("id",))], tmp_path / "landing" / "1"))
    log = Path(lake.pipeline.lake, "log_shop_orders")
    added = (
        DeltaTable(log)
        .to_pyarrow_table()
        .slice(0, 0)
        .append_column("_valid_to", pa.array([], pa.string()))
    )
    write_deltalake(log, added, mode="append", schema_mode="merge")
    with pytest.raises(AssertionError):
        lake.land_files(
            write_changes([change(2, 2, "INSERT", ("id",))], tmp_path / "landing" / "2")
        )
    failed = [event for event in lake.events if isinstance(event, MergeFailed)]
    assert {event.table for event in failed} == {"history_orders"}
    assert "_valid_to" in failed[0].error
    assert "[column-reserved]" in failed[0].error
    assert len(lake.rows("shop_orders")) == 2
