"""JSON files may write 10 and 10.5 in the same column without a change of type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.change_lake import ChangeLake


def file_of(folder: Path, name: str, *prices: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    lines = [
        {
            "uuid": f"{name}-{number}",
            "source_timestamp": "2026-01-01T00:00:00Z",
            "read_method": "mysql-cdc-binlog",
            "source_metadata": {
                "database": "shop",
                "table": "products",
                "primary_keys": ["id"],
                "log_file": "mysql-bin.000001",
                "log_position": sum(map(ord, name)) * 100 + number,
                "change_type": "INSERT",
                "is_deleted": False,
            },
            "payload": {"id": f"{name}{number}", "price": price},
        }
        for number, price in enumerate(prices)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def prices(lake: ChangeLake) -> list[dict[str, Any]]:
    rows = lake.rows("shop_products")
    return sorted(
        ({k: v for k, v in row.items() if not k.startswith("_")} for row in rows),
        key=lambda row: str(row["id"]),
    )


@pytest.mark.parametrize("together", [True, False])
def test_integers_and_floats_share_a_column(tmp_path: Path, together: bool) -> None:
    lake = ChangeLake(tmp_path)
    files = [file_of(tmp_path / "landing", "a", 10.5, 2), file_of(tmp_path / "landing", "b", 10)]
    for batch in [files] if together else [[file] for file in files]:
        lake.land_files(batch)
    assert prices(lake) == [
        {"id": "a0", "price": 10.5},
        {"id": "a1", "price": 2.0},
        {"id": "b0", "price": 10.0},
    ]


def test_value_that_a_column_cannot_hold_gets_its_own_column(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path)
    lake.land_files([file_of(tmp_path / "landing", "a", 10)])
    lake.land_files(
        [file_of(tmp_path / "landing", "b", 10.5), file_of(tmp_path / "landing", "c", 7.0)]
    )
    found = prices(lake)
    (apart,) = set(found[0]) - {"id", "price"}
    assert found == [
        {"id": "a0", "price": 10, apart: None},
        {"id": "b0", "price": None, apart: 10.5},
        {"id": "c0", "price": 7, apart: None},
    ]
