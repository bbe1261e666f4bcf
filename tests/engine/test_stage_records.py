from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.config import Confluent, Duration, Registry
from headgate.engine.task_results import decode_results, task_results
from headgate.errors import RegistryUnavailable
from headgate.lake.staged import StagedFile
from headgate.reasons import Reason
from headgate.testing.lake import stage_in_process
from tests.engine.games import (
    BROKEN,
    PLAIN,
    RETYPED,
    UNKNOWN,
    WIDER,
    GamesLake,
    record,
    records,
    varint,
)


@pytest.fixture
def lake(tmp_path: Path) -> GamesLake:
    return GamesLake(tmp_path)


def read(lake: GamesLake, files: list[StagedFile], table: str) -> list[dict[str, object]]:
    paths = [lake.path / table / file.path for file in files if file.table == table]
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def test_each_route_gets_a_file_with_its_rows_and_their_origin(lake: GamesLake) -> None:
    values = [record("chess", 5), record("go", 6), record("chess", 7)]
    files = stage_in_process(records(values, 10))(lake.plan)
    assert [(file.table, file.route, file.rows) for file in files] == [
        ("silver_chess", "chess", 2),
        ("silver_go", "go", 1),
    ]
    [first, second] = read(lake, files, "silver_chess")
    assert (first["n"], first["_offset"], first["_topic"]) == (5, 10, "games")
    assert (second["n"], second["_offset"], second["_schema_id"]) == (7, 12, PLAIN)


def test_staged_file_describes_its_rows(lake: GamesLake) -> None:
    [file] = stage_in_process(records([record("chess", 5)]))(lake.plan)
    path = lake.path / file.table / file.path
    assert file.size == path.stat().st_size
    assert file.schema.names == pq.read_schema(path).names
    assert file.schema_ids == (PLAIN,)
    assert '"numRecords": 1' in file.statistics


def test_schemas_that_agree_share_a_file(lake: GamesLake) -> None:
    values = [record("chess", 1), record("chess", 2, WIDER)]
    [file] = stage_in_process(records(values))(lake.plan)
    assert file.schema_ids == (PLAIN, WIDER)
    assert [row["name"] for row in read(lake, [file], "silver_chess")] == [None, "x"]


def test_schemas_that_disagree_get_files_of_their_own(lake: GamesLake) -> None:
    values = [record("chess", 1), record("chess", 2, RETYPED)]
    files = stage_in_process(records(values))(lake.plan)
    assert sorted(str(row["n"]) for row in read(lake, files, "silver_chess")) == ["1", "2"]
    assert len(files) == 2


@pytest.mark.parametrize(("max_share", "max_file", "files"), [(1, 9, 2), (1, 2, 3), (9, 9, 2)])
def test_shares_of_a_portion_give_the_same_rows(
    lake: GamesLake, monkeypatch: pytest.MonkeyPatch, max_share: int, max_file: int, files: int
) -> None:
    monkeypatch.setattr("headgate.engine.record_plan._MAX_SHARE_ROWS", max_share)
    monkeypatch.setattr("headgate.engine.record_plan._MAX_FILE_ROWS", max_file)
    routes = [("chess", PLAIN), ("chess", WIDER), ("go", PLAIN)]
    values = [record(route, n, schema) for n in (1, 2) for route, schema in routes]
    staged = stage_in_process(records(values))(lake.plan)
    assert len(staged) == files
    chess = read(lake, staged, "silver_chess")
    assert sorted((row["_offset"], row["n"], row["_schema_id"]) for row in chess) == [
        (0, 1, PLAIN),
        (1, 1, WIDER),
        (3, 2, PLAIN),
        (4, 2, WIDER),
    ]
    assert [row["_offset"] for row in read(lake, staged, "silver_go")] == [2, 5]


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_portions_end_before_they_are_too_large_unless_one_batch_is(
    lake: GamesLake, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    batches = [
        records([record("chess", n)] * size, n * 10) for n, size in enumerate((1, 1, 1, 5, 1))
    ]
    monkeypatch.setattr("headgate.engine.record_plan._CHUNK_ROWS", chunk)
    monkeypatch.setattr("headgate.engine.record_plan._MAX_PORTION_BYTES", 2 * batches[0].nbytes)
    staged = decode_results(task_results(lake.plan.stage(batches)))
    assert [file.rows for file in staged] == [2, 1, 5, 1]
    offsets = [row["_offset"] for row in read(lake, staged, "silver_chess")]
    assert offsets == [0, 10, 20, 30, 31, 32, 33, 34, 40]


BAD = {
    Reason.NULL_VALUE: None,
    Reason.TOO_LARGE: b"x" * ((1 << 20) + 1),
    Reason.ENVELOPE_UNDECODABLE: b"\xff",
    Reason.ROUTE_MISSING: record(None, 1),
    Reason.ROUTE_UNUSABLE: record("../..", 1),
    Reason.SCHEMA_ID_MISSING: record("chess", 1, None),
    Reason.SCHEMA_UNKNOWN: record("chess", 1, UNKNOWN),
    Reason.SCHEMA_REFUSED: record("chess", 1, BROKEN),
    Reason.PAYLOAD_UNDECODABLE: record("chess", 1, PLAIN).replace(b"\x08\x01", b"\x08\xff"),
}


def test_rejected_records_are_in_quarantine_with_their_bytes_and_reason(lake: GamesLake) -> None:
    values = [record("chess", 1), *BAD.values(), record("chess", 2)]
    files = stage_in_process(records(values, 100))(lake.plan)
    landed, quarantine = files
    assert (landed.table, landed.rows) == ("silver_chess", 2)
    assert (quarantine.table, quarantine.reasons) == ("quarantine", dict.fromkeys(BAD, 1))
    found = {row["reason"]: row for row in read(lake, files, "quarantine")}
    for offset, (reason, value) in enumerate(BAD.items(), start=101):
        assert (found[reason]["value"], found[reason]["_offset"]) == (value, offset)
    assert str(found["schema_refused"]["detail"]).startswith("__root__.proto:1:1: Expected")


def test_bronze_has_every_record_that_names_its_route(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, bronze="bronze")
    values = [record("chess", 1), record("go", 2), record("chess", 3, UNKNOWN), b"\xff"]
    files = stage_in_process(records(values))(lake.plan)
    bronze = [file for file in files if file.table == "bronze"]
    assert [(file.partition, file.rows) for file in bronze] == [
        ({"route": "chess"}, 2),
        ({"route": "go"}, 1),
    ]
    assert [row["payload"] for row in read(lake, files, "bronze")] == [
        b"\x08\x01",
        b"\x08\x03",
        b"\x08\x02",
    ]


def test_no_records_give_no_files(lake: GamesLake) -> None:
    assert stage_in_process(records([]))(lake.plan) == []
    assert list(lake.plan.stage([])) == []


def test_new_tables_beyond_the_cap_are_in_quarantine(tmp_path: Path) -> None:
    lake = GamesLake(tmp_path, max_tables=2)
    values = [record(route, 1) for route in ("a", "b", "c", "a", "d")]
    files = stage_in_process(records(values))(lake.plan)
    assert [file.table for file in files] == ["silver_a", "silver_b", "quarantine"]
    assert files[-1].reasons == {"too_many_tables": 2}
    assert [row["detail"] for row in read(lake, files, "quarantine")] == [
        "for table silver_c",
        "for table silver_d",
    ]


def test_error_of_an_executor_is_raised_on_the_driver(lake: GamesLake) -> None:
    plan = lake.plan
    unreachable = Registry(url="http://127.0.0.1:9", timeout=Duration(milliseconds=1))
    broken = type(plan)(**{**vars(plan), "registry": unreachable})
    results = list(broken.stage([records([record("chess", 1)])]))
    with pytest.raises(RegistryUnavailable, match="no valid response for schema 1") as caught:
        decode_results(task_results(results))
    assert caught.value.where == "http://127.0.0.1:9"


def test_both_spellings_of_a_message_index_in_one_portion(lake: GamesLake) -> None:
    def framed(n: int) -> bytes:
        index = b"\x02\x00" if n % 3 else b"\x00"
        return b"\0" + PLAIN.to_bytes(4, "big") + index + b"\x08" + varint(n)

    numbers = range(1, 10)
    lake.declare(envelope=Confluent())
    files = stage_in_process(records([framed(n) for n in numbers]))(lake.plan)
    rows = read(lake, files, "silver_games")
    assert sorted((row["_offset"], row["n"]) for row in rows) == [(n - 1, n) for n in numbers]
