"""Tombstones: found by key, combined now and then, and dropped when they are old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.cdc import tombstones
from headgate.cdc.key import ROW_ID, TableKey
from headgate.cdc.tombstones import Tombstones
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.snapshot import Snapshot
from tests.lake.large_tables import merged_as_if

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
HORIZON = timedelta(hours=1)


def deleted(*keys: int, order: str = "5", at: datetime = BEGAN) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            ROW_ID: pa.nulls(len(keys), pa.string()),
            "_order": pa.array([order] * len(keys)),
            "_source_timestamp": pa.array([at] * len(keys), pa.timestamp("us", "UTC")),
        }
    )


def held(lake: Path) -> Tombstones:
    return Tombstones(DeltaRsCommitter(str(lake)), "graves", TableKey(("id",)))


def stored(lake: Path) -> Snapshot:
    table = Snapshot.newest(str(lake), "graves")
    assert table is not None
    return table


def test_change_of_a_lower_order_is_superseded(tmp_path: Path) -> None:
    held(tmp_path).add(deleted(1, 2), deleted(1, order="7"))
    changes = pa.concat_tables([deleted(1, 2, order="6"), deleted(3, order="1")])
    assert held(tmp_path).drop_superseded(changes)["id"].to_pylist() == [2, 3]


@pytest.mark.parametrize("large", [False, True])
def test_few_files_and_the_greatest_order_of_each_key(tmp_path: Path, large: bool) -> None:
    with merged_as_if(large):
        for number in range(100):
            held(tmp_path).add(deleted(number % 10, 100 + number, order=f"{number:03d}"))
    rows = stored(tmp_path).rows()
    greatest: dict[int, str] = {}
    for row in rows.to_pylist():
        greatest[row["id"]] = max(row["_order"], greatest.get(row["id"], ""))
    expected = {number % 10: f"{number:03d}" for number in range(100)}
    assert greatest == expected | {100 + number: f"{number:03d}" for number in range(100)}
    if not large:
        assert len(stored(tmp_path).sizes) <= tombstones._MAX_FILES + 1
        assert len(rows) < 200


def test_only_files_that_may_have_the_keys_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with merged_as_if(large=True):
        for start in range(0, 1_000, 100):
            held(tmp_path).add(deleted(*range(start, start + 100)))
        read: set[str] = set()
        whole = Snapshot.file_rows

        def recorded(table: Snapshot, path: str, *columns: Any) -> pa.Table:
            read.add(path)
            return whole(table, path, *columns)

        monkeypatch.setattr(Snapshot, "file_rows", recorded)
        assert not len(held(tmp_path).drop_superseded(deleted(310, 320, order="1")))
    assert len(read) == 1


def test_dropped_when_twice_as_old_as_the_horizon(tmp_path: Path) -> None:
    for hours, left in ((0, {0}), (1, {0, 1}), (2, {0, 1, 2}), (3, {2, 3})):
        at = BEGAN + timedelta(hours=hours)
        held(tmp_path).add(deleted(hours, at=at), newest=at, horizon=HORIZON)
        assert {*stored(tmp_path).rows()["id"].to_pylist()} == left


def test_key_that_has_become_wider(tmp_path: Path) -> None:
    narrow = deleted(1)
    held(tmp_path).add(narrow.set_column(0, "id", narrow["id"].cast(pa.int32())))
    assert held(tmp_path).drop_superseded(deleted(1, 2, order="4"))["id"].to_pylist() == [2]
    held(tmp_path).add(deleted(2))
    assert stored(tmp_path).schema.field("id").type == pa.int64()
