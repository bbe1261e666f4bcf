"""A change that is delivered again lands once; another change with its id goes to quarantine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.cdc.chunk import POSITION
from headgate.cdc.repeated import KnownChanges
from headgate.engine.events import BatchLanded
from headgate.quarantine.operations import replay_quarantine
from tests.cdc.change_lake import ChangeLake
from tests.envelopes.datastream.writing import avro, change, json_change, lines, schema
from tests.rounds import some


def user(number: int, name: Any = "Ada", **more: Any) -> dict[str, Any]:
    source = {"log_position": number, **more.pop("source", {})}
    top = {"uuid": f"user-{number}", **more}
    return json_change({"id": number, "name": name}, source, **top)


def land(lake: ChangeLake, name: str, *changes: dict[str, Any]) -> None:
    path = lake.folder / "landing" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lines(*changes))
    lake.land_files([path])


def names(lake: ChangeLake) -> dict[str, Any]:
    rows = lake.rows("log_shop_users")
    found = {row["_uuid"]: row["name"] for row in rows}
    assert len(found) == len(rows)
    return found


def reused(lake: ChangeLake) -> list[bytes]:
    if not (lake.path / "quarantine").exists():
        return []
    rows = lake.rows("quarantine")
    assert {row["reason"] for row in rows} <= {"uuid_reused"}
    return [row["value"] for row in rows]


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    lake = ChangeLake(tmp_path)
    land(lake, "first.json", user(1), user(2))
    return lake


@pytest.mark.parametrize(
    "other",
    [
        user(1, "Bob"),
        user(1, None),
        user(1, source={"change_type": "DELETE", "is_deleted": True}),
        user(1, source={"log_position": 99}),
    ],
)
def test_other_change_with_a_landed_id_is_quarantined(
    lake: ChangeLake, other: dict[str, Any]
) -> None:
    land(lake, "second.json", user(3), other)
    assert names(lake) == {"user-1": "Ada", "user-2": "Ada", "user-3": "Ada"}
    assert reused(lake) == [lines(other)]
    (row,) = lake.rows("quarantine")
    assert (row["_offset"], row["state"]) == (1, "open")
    assert row["route"] == '["shop", null, "users"]'
    assert row["_file"].endswith("second.json")
    last = [event for event in lake.events if isinstance(event, BatchLanded)][-1]
    assert (last.rows, last.quarantined) == (1, {"uuid_reused": 1})
    assert sum(file["rejected"] for file in lake.rows("_files")) == 1


def test_batch_of_nothing_but_reused_ids_lands(lake: ChangeLake) -> None:
    land(lake, "second.json", user(1, "Bob"), user(2, "Bob"))
    assert names(lake) == {"user-1": "Ada", "user-2": "Ada"}
    assert sorted(reused(lake)) == sorted([lines(user(1, "Bob")), lines(user(2, "Bob"))])


def test_other_change_in_the_same_file_is_quarantined(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path)
    land(lake, "first.json", user(1), user(1, "Bob"), user(1), user(1, "Cid"))
    assert names(lake) == {"user-1": "Ada"}
    assert sorted(reused(lake)) == sorted([lines(user(1, "Bob")), lines(user(1, "Cid"))])


def test_other_change_in_the_same_batch_is_quarantined(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path)
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, name in zip(files, ("Ada", "Bob"), strict=True):
        file.write_bytes(lines(user(1, name)))
    lake.land_files(files)
    landed = names(lake)["user-1"]
    (other,) = {"Ada", "Bob"} - {landed}
    assert reused(lake) == [lines(user(1, other))]


def test_change_that_is_delivered_again_is_dropped(lake: ChangeLake) -> None:
    again = user(1, read_timestamp="2026-01-01T00:00:00Z", stream_name="another", sort_keys=[1])
    land(lake, "again.json", again, user(2), user(2))
    assert names(lake) == {"user-1": "Ada", "user-2": "Ada"}
    assert reused(lake) == []


def test_reused_id_stays_in_quarantine_when_it_is_replayed(lake: ChangeLake) -> None:
    land(lake, "second.json", user(1, "Bob"), user(2, "Bob"))
    done = replay_quarantine(lake.pipeline)
    assert (done.landed, done.remaining) == ({}, {"uuid_reused": 2})
    assert names(lake) == {"user-1": "Ada", "user-2": "Ada"}
    assert len(reused(lake)) == 2


def test_replayed_change_whose_id_was_reused_since_stays(tmp_path: Path) -> None:
    frozen = ChangeLake(tmp_path, {"contract": {"columns": "discard_row"}})
    land(frozen, "first.json", user(1))
    wide = user(2)
    wide["payload"]["age"] = 3
    land(frozen, "second.json", user(3), wide)
    lake = ChangeLake(tmp_path)
    land(lake, "third.json", user(2, "Bob"))
    done = replay_quarantine(lake.pipeline)
    assert (done.landed, done.remaining) == ({}, {"uuid_reused": 1})
    assert names(lake) == {"user-1": "Ada", "user-2": "Bob", "user-3": "Ada"}


@pytest.mark.parametrize("contract", [{"columns": "discard_value"}, {"types": "discard_value"}])
def test_values_that_a_contract_discards_do_not_count(
    tmp_path: Path, contract: dict[str, str]
) -> None:
    lake = ChangeLake(tmp_path, {"contract": contract})
    land(lake, "first.json", user(1))
    wide = user(2, name=7 if "types" in contract else "Ada")
    wide["payload"]["age"] = 3
    for name in ("second.json", "again.json"):
        land(lake, name, wide)
    assert reused(lake) == []
    assert len(lake.rows("log_shop_users")) == 2


def test_value_of_a_column_that_came_later_does_not_count(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, {"contract": {"columns": "discard_value"}})
    land(lake, "first.json", user(1))
    wide = user(2)
    wide["payload"]["age"] = 3
    land(lake, "second.json", wide)
    land(ChangeLake(tmp_path), "again.json", wide)
    assert reused(lake) == []


@pytest.mark.parametrize("neighbour", some(["text", 1.5, 10**20, True, {"a": 1}], "text", 1.5))
def test_type_that_neighbours_decide_does_not_count(tmp_path: Path, neighbour: Any) -> None:
    """JSON has no schema: the type of a column depends on all values of a file."""
    lake = ChangeLake(tmp_path)
    land(lake, "first.json", user(1, 7), user(2, "7"))
    land(lake, "second.json", user(3, 8))
    land(lake, "again.json", user(1, 7), user(2, "7"), user(3, 8), user(4, neighbour))
    assert reused(lake) == []
    land(lake, "reused.json", user(3, 9), user(5, neighbour))
    assert reused(lake) == [lines(user(3, 9))]


def test_column_that_was_widened_does_not_count(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path)
    narrow, wide = schema({"id": "int", "x": "float"}), schema({"id": "long", "x": "double"})
    one = change({"id": 1, "x": 0.1}, uuid="one")
    two = change({"id": 2, "x": 0.1}, uuid="two")
    for name, content in {
        "a.avro": avro(narrow, [one]),
        "b.avro": avro(wide, [two]),
        "c.avro": avro(narrow, [one]),
    }.items():
        (tmp_path / name).write_bytes(content)
        lake.land_files([tmp_path / name])
    assert len(lake.rows("log_shop_users")) == 2
    assert reused(lake) == []


AT = datetime(2026, 1, 1, tzinfo=UTC)


def rows(**columns: pa.Array) -> pa.Table:
    """Return changes with the same metadata."""
    count = len(next(iter(columns.values())))
    metadata = {
        "_uuid": pa.array(["one"] * count),
        "_order": pa.array(["1"] * count),
        "_file": pa.array(["a.json"] * count),
        POSITION: pa.array(range(count), pa.int64()),
    }
    return pa.table({**metadata, **columns})


@pytest.mark.parametrize(
    ("landed", "again", "is_same"),
    [
        (pa.array([1]), pa.array([1]), True),
        (pa.array([1]), pa.array([2]), False),
        (pa.array([1]), pa.array([1.0]), True),
        (pa.array([1]), pa.array([1.5]), False),
        (pa.array([1]), pa.array(["1"]), True),
        (pa.array([1]), pa.array(["2"]), False),
        (pa.array([0.1]), pa.array([Decimal("0.1")]), True),
        (pa.array([True]), pa.array(["true"]), True),
        (pa.array([True]), pa.array(["false"]), False),
        (pa.array([float("nan")]), pa.array([float("nan")]), True),
        (pa.array([None], pa.int64()), pa.array([1]), False),
        (pa.array([1]), pa.array([None], pa.int64()), False),
        (pa.array([None], pa.int64()), pa.array([None], pa.string()), True),
        (pa.array([[1, 2]]), pa.array([[1, 2]]), True),
        (pa.array([[1, 2]]), pa.array([[1]]), False),
        (pa.array([{"a": 1}]), pa.array([{"a": 1, "b": None}]), True),
        (pa.array([{"a": 1}]), pa.array([{"a": 2}]), False),
        (pa.array([AT]), pa.array([AT.replace(tzinfo=None)]), True),
        (pa.array([AT]), pa.array([AT.isoformat()]), True),
        (pa.array([b"x"]), pa.array([b"y"]), False),
    ],
)
def test_values_are_compared_across_types(landed: pa.Array, again: pa.Array, is_same: bool) -> None:
    known = KnownChanges([rows(x=landed)], lambda: pa.schema([]), discards=False)
    new, reused = known.take_new(rows(x=again))
    assert len(new) == 0
    assert reused == ({} if is_same else {"a.json": [0]})


def test_change_equals_any_of_the_landed_ones_with_its_id() -> None:
    known = KnownChanges(
        [rows(x=pa.array([1, 2])), rows(x=pa.array([3]))], lambda: pa.schema([]), discards=False
    )
    _, reused = known.take_new(rows(x=pa.array([2, 3, 4])))
    assert reused == {"a.json": [2]}


def test_records_of_the_quarantine_are_valid_json(lake: ChangeLake) -> None:
    land(lake, "second.json", user(1, "Bob"))
    (content,) = reused(lake)
    assert json.loads(content)["payload"] == {"id": 1, "name": "Bob"}
