from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest

from headgate.lab.shop.datastream import FILE_NAME, FileOptions, write_changes
from headgate.lab.shop.statement import Change, Column
from tests.lab.shop.fold import read_records

_AT = datetime(2026, 1, 1, 8, 5, 59, tzinfo=UTC)
_ROW: dict[Column, object] = {
    Column("i", "int"): 1,
    Column("b", "bigint"): 2**40,
    Column("d", "decimal", precision=10, scale=2): Decimal("-12.30"),
    Column("v", "varchar", length=20): "Łódź",
    Column("t", "text"): 'two\nlines, "quoted"',
    Column("m", "timestamp"): datetime(2026, 1, 1, 8, 0, 0, 123456, tzinfo=UTC),
    Column("y", "date"): date(1969, 12, 31),
    Column("o", "boolean"): True,
    Column("f", "double"): 0.1,
    Column("j", "json"): '{"a": [1]}',
}
_VALUES = {column.name: value for column, value in _ROW.items()}
_CHANGE = Change(
    "shop", "things", tuple(_ROW), ("i",), "UPDATE", _VALUES, "mysql-bin.000002", 4711, _AT
)
_EMPTY = replace(
    _CHANGE, kind="DELETE", values=dict.fromkeys(_VALUES) | {"i": 2}, log_position=4800
)


def _several(count: int) -> list[Change]:
    return [replace(_CHANGE, log_position=number) for number in range(count)]


def _positions(files: Sequence[Path]) -> list[list[int]]:
    return [[each["sort_keys"][2] for each in read_records([file])] for file in files]


def test_avro_file_says_all_of_a_change(tmp_path: Path) -> None:
    (file,) = write_changes([_CHANGE, _EMPTY], tmp_path)
    first, second = read_records([file])
    assert first.pop("uuid") != second["uuid"]
    assert FILE_NAME.fullmatch(file.name)
    assert file.name.startswith(first.pop("schema_key"))
    millis = int(_AT.timestamp() * 1000)
    assert first == {
        "read_timestamp": _AT + timedelta(seconds=5),
        "source_timestamp": _AT,
        "object": "shop_things",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/headgate/locations/here/streams/shop",
        "sort_keys": [millis, "mysql-bin.000002", 4711],
        "source_metadata": {
            "table": "things",
            "database": "shop",
            "primary_keys": ["i"],
            "log_file": "mysql-bin.000002",
            "log_position": 4711,
            "change_type": "UPDATE",
            "is_deleted": False,
        },
        "payload": _VALUES,
    }
    assert second["source_metadata"]["is_deleted"]
    assert second["payload"] == _EMPTY.values


def test_avro_types_are_those_of_datastream(tmp_path: Path) -> None:
    (file,) = write_changes([_CHANGE], tmp_path)
    with file.open("rb") as stream:
        schema = fastavro.reader(stream).writer_schema
    assert isinstance(schema, dict)
    payload = schema["fields"][-1]["type"]["fields"]
    assert {each["name"]: each["type"][1] for each in payload} == {
        "i": "int",
        "b": "long",
        "d": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        "v": {"type": "string", "logicalType": "varchar", "length": 20},
        "t": "string",
        "m": {"type": "long", "logicalType": "timestamp-micros"},
        "y": {"type": "int", "logicalType": "date"},
        "o": "boolean",
        "f": "double",
        "j": {"type": "string", "logicalType": "json"},
    }


def test_json_file_has_a_record_a_line(tmp_path: Path) -> None:
    (file,) = write_changes([_CHANGE, _EMPTY], tmp_path, FileOptions("json"))
    assert file.suffix == ".jsonl"
    first, second = map(json.loads, file.read_text("utf-8").splitlines())
    assert first["source_timestamp"] == "2026-01-01T08:05:59Z"
    assert first["sort_keys"] == [int(_AT.timestamp() * 1000), "mysql-bin.000002", 4711]
    assert first["payload"] == _VALUES | {
        "d": -12.3,
        "m": "2026-01-01T08:00:00.123456Z",
        "y": "1969-12-31",
    }
    assert second["payload"] == _EMPTY.values


def test_folder_is_that_of_the_table_and_the_minute(tmp_path: Path) -> None:
    later = replace(_CHANGE, at=_AT + timedelta(seconds=1))
    files = write_changes([_CHANGE, later], tmp_path)
    assert [str(file.parent.relative_to(tmp_path)) for file in files] == [
        "shop_things/2026/01/01/08/05",
        "shop_things/2026/01/01/08/06",
    ]


def test_new_columns_begin_a_new_file(tmp_path: Path) -> None:
    more = replace(_CHANGE, columns=(*_CHANGE.columns, Column("z", "int")), values={"i": 1})
    one, other = write_changes([_CHANGE, more], tmp_path)
    assert one.name[:40] != other.name[:40]
    assert [record["payload"].get("z", "none") for record in read_records([one, other])] == [
        "none",
        None,
    ]


def test_file_has_only_so_many_changes(tmp_path: Path) -> None:
    files = write_changes(_several(5), tmp_path, FileOptions(changes_per_file=2))
    assert _positions(files) == [[0, 1], [2, 3], [4]]


def test_changes_are_dealt_out_to_writers(tmp_path: Path) -> None:
    files = write_changes(_several(40), tmp_path, FileOptions(writers=3))
    found = _positions(files)
    assert len(found) == 3
    assert all(each == sorted(each) for each in found)
    assert sorted(position for each in found for position in each) == list(range(40))


def test_files_can_come_in_any_order(tmp_path: Path) -> None:
    files = write_changes(_several(20), tmp_path, FileOptions(changes_per_file=1, shuffled=True))
    found = [position for (position,) in _positions(files)]
    assert found != sorted(found)
    assert sorted(found) == list(range(20))


def test_files_can_come_twice(tmp_path: Path) -> None:
    options = FileOptions(changes_per_file=1, duplicates=0.5)
    files = write_changes(_several(20), tmp_path, options)
    assert len(set(files)) == len(files)
    assert 20 < len(files) < 40
    assert len({record["uuid"] for record in read_records(files)}) == 20
    assert len({file.read_bytes() for file in files}) == 20


@pytest.mark.parametrize("options", [FileOptions("avro"), FileOptions("json")])
def test_same_changes_give_the_same_files(tmp_path: Path, options: FileOptions) -> None:
    once = write_changes(_several(3), tmp_path / "a", options)
    again = write_changes(_several(3), tmp_path / "b", options)
    assert [file.name for file in once] == [file.name for file in again]
    assert [file.read_bytes() for file in once] == [file.read_bytes() for file in again]


def test_another_seed_gives_other_names_to_changes(tmp_path: Path) -> None:
    one, other = (write_changes([_CHANGE], tmp_path, FileOptions(seed=seed))[0] for seed in (1, 2))
    assert one != other
    assert len({record["uuid"] for record in read_records([one, other])}) == 2


def test_both_halves_of_a_key_change_have_names_of_their_own(tmp_path: Path) -> None:
    halves = [replace(_CHANGE, kind="UPDATE-DELETE"), replace(_CHANGE, kind="UPDATE-INSERT")]
    (file,) = write_changes(halves, tmp_path)
    assert len({record["uuid"] for record in read_records([file])}) == 2


def test_backfill_has_files_of_its_own(tmp_path: Path) -> None:
    row = replace(_CHANGE, kind="INSERT", log_file="", log_position=0, backfill=True)
    _, file = write_changes([_CHANGE, row], tmp_path)
    (record,) = read_records([file])
    assert "_mysql-backfill-fulldump_" in file.name
    assert record["read_method"] == "mysql-backfill-fulldump"
    assert record["sort_keys"][1:] == ["", 0]


def test_nothing_unfinished_is_left(tmp_path: Path) -> None:
    files = write_changes(_several(3), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == files


def test_unfinished_file_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(KeyboardInterrupt):
        write_changes([_CHANGE], tmp_path)
    (left,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert left.name.startswith(".")


def test_number_that_its_column_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on field i"):
        write_changes([replace(_CHANGE, values=_VALUES | {"i": 2**31})], tmp_path)
