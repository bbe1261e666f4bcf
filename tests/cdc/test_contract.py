"""Schema changes of a source table, under each contract mode."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.engine.events import BatchLanded, SchemaChanged
from headgate.lab.shop.datastream import write_changes
from headgate.lab.shop.statement import Change, ChangeKind, Column
from tests.cdc.change_lake import ChangeLake

ID, NAME, AGE = Column("id", "bigint"), Column("name", "varchar"), Column("age", "int")
BEFORE = (ID, NAME, AGE)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def change(number: int, columns: tuple[Column, ...], kind: ChangeKind, *values: object) -> Change:
    return Change(
        database="shop",
        table="people",
        columns=columns,
        primary_key=("id",),
        kind=kind,
        values=dict(zip((column.name for column in columns), values, strict=True)),
        log_file="mysql-bin.000001",
        log_position=number,
        at=BEGAN + timedelta(minutes=number),
    )


@pytest.fixture
def lake(tmp_path: Path, contract: str) -> ChangeLake:
    lake = ChangeLake(tmp_path, {"contract": {"columns": contract, "types": contract}})
    rows = [(1, "Ada", 36), (2, "Bo", 41)]
    first = [change(n, BEFORE, "INSERT", *row) for n, row in enumerate(rows)]
    lake.land_files(write_changes(first, tmp_path / "landing"))
    return lake


def land(lake: ChangeLake, columns: tuple[Column, ...], *values: object) -> None:
    """Land a change of row 1 with other columns, then one of row 2 with the old columns."""
    late = change(10, BEFORE, "UPDATE", 2, "Bo", 42)
    files = [change(11, columns, "UPDATE", *values), late]
    lake.land_files(write_changes(files, lake.folder / "landing" / "second"))


def merged(lake: ChangeLake) -> dict[int, dict[str, Any]]:
    rows = lake.rows("shop_people")
    return {
        row["id"]: {name: value for name, value in row.items() if not name.startswith("_")}
        for row in rows
    }


def kinds(lake: ChangeLake) -> list[str]:
    changed = [event for event in lake.events if isinstance(event, SchemaChanged)]
    return [type(event.change).__name__ for event in changed if event.table == "log_shop_people"]


def quarantined(lake: ChangeLake) -> Counter[str]:
    batches = [event for event in lake.events if isinstance(event, BatchLanded)]
    return sum((Counter(batch.quarantined) for batch in batches), Counter())


ADDED = (*BEFORE, Column("city", "varchar"))
DROPPED = (ID, NAME)
WIDENED = (ID, NAME, Column("age", "bigint"))
RETYPED = (ID, NAME, Column("age", "varchar"))


@pytest.mark.parametrize("contract", ["evolve"])
def test_tables_follow_an_added_column(lake: ChangeLake) -> None:
    land(lake, ADDED, 1, "Ada", 37, "Paris")
    assert merged(lake) == {
        1: {"id": 1, "name": "Ada", "age": 37, "city": "Paris"},
        2: {"id": 2, "name": "Bo", "age": 42, "city": None},
    }
    assert kinds(lake) == ["CreateTable", "AddColumn"]


@pytest.mark.parametrize("contract", ["evolve", "freeze", "discard_row", "discard_value"])
def test_dropped_column_stays_and_becomes_null(lake: ChangeLake, contract: str) -> None:
    land(lake, DROPPED, 1, "Eve")
    assert merged(lake) == {
        1: {"id": 1, "name": "Eve", "age": None},
        2: {"id": 2, "name": "Bo", "age": 42},
    }
    assert kinds(lake) == ["CreateTable", "DropColumn"]
    land_again = [change(20, DROPPED, "UPDATE", 2, "Bob")]
    lake.land_files(write_changes(land_again, lake.folder / "landing" / "third"))
    assert merged(lake)[2] == {"id": 2, "name": "Bob", "age": None}
    assert kinds(lake) == ["CreateTable", "DropColumn"]


@pytest.mark.parametrize("contract", ["evolve"])
def test_widened_column_is_widened_in_log_and_merged_table(lake: ChangeLake) -> None:
    land(lake, WIDENED, 1, "Ada", 2**40)
    assert merged(lake)[1] == {"id": 1, "name": "Ada", "age": 2**40}
    assert merged(lake)[2] == {"id": 2, "name": "Bo", "age": 42}
    for table in ("log_shop_people", "shop_people"):
        schema = pa.schema(DeltaTable(str(lake.path / table)).schema())
        assert schema.field("age").type == pa.int64()
    assert kinds(lake) == ["CreateTable", "WidenType"]


@pytest.mark.parametrize("contract", ["evolve"])
def test_retyped_column_gets_its_own_column(lake: ChangeLake) -> None:
    land(lake, RETYPED, 1, "Ada", "old")
    found = merged(lake)
    (apart,) = set(found[1]) - {"id", "name", "age"}
    assert found[1] == {"id": 1, "name": "Ada", "age": None, apart: "old"}
    assert found[2] == {"id": 2, "name": "Bo", "age": 42, apart: None}
    assert kinds(lake) == ["CreateTable", "RetypeColumn"]


@pytest.mark.parametrize("contract", ["freeze", "discard_row"])
@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        (ADDED, (1, "Ada", 37, "Paris"), "contract_columns"),
        (RETYPED, (1, "Ada", "old"), "contract_types"),
        (WIDENED, (1, "Ada", 2**40), "contract_types"),
    ],
)
def test_rows_blocked_by_the_contract_are_in_quarantine(
    lake: ChangeLake, columns: tuple[Column, ...], values: tuple[object, ...], reason: str
) -> None:
    land(lake, columns, *values)
    assert merged(lake) == {
        1: {"id": 1, "name": "Ada", "age": 36},
        2: {"id": 2, "name": "Bo", "age": 42},
    }
    assert quarantined(lake) == {reason: 1}


@pytest.mark.parametrize("contract", ["discard_value"])
@pytest.mark.parametrize(
    ("columns", "values"), [(ADDED, (1, "Ada", 37, "Paris")), (RETYPED, (1, "Ada", "old"))]
)
def test_values_discarded_by_the_contract_are_null(
    lake: ChangeLake, columns: tuple[Column, ...], values: tuple[object, ...]
) -> None:
    land(lake, columns, *values)
    assert set(merged(lake)[1]) == {"id", "name", "age"}
    assert not quarantined(lake)


def test_table_blocked_by_the_contract_is_reported(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, {"contract": {"tables": "freeze"}})
    lake.land_files(
        write_changes([change(1, BEFORE, "INSERT", 1, "Ada", 36)], tmp_path / "landing")
    )
    assert quarantined(lake) == {"contract_tables": 1}
    assert kinds(lake) == ["CreateTable"]
    assert not (lake.path / "log_shop_people").exists()
