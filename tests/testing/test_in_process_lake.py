from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

import headgate
from headgate.errors import LandingError, UsageError
from headgate.lab.shop.datastream import write_changes
from headgate.testing import Crash, FailingCommitter, FolderRegistry, InProcessLake, Record
from tests.inspect.change_lake import change

CHESS = 'syntax = "proto3"; message event { string user_name = 1; int32 score = 2; }'
ORDER = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'


def games(**declared: Any) -> headgate.Pipeline:
    keys: dict[str, Any] = {
        "source": headgate.Kafka(servers="x:9092", topics=["games"]),
        "registry": "http://127.0.0.1:9",
        "envelope": headgate.Wrapper(
            message="wrapper", route="game", schema_id="schema", payload="data"
        ),
        "lake": "./lake",
    }
    return headgate.Pipeline(name="games", **{**keys, **declared})


@pytest.fixture
def lake(tmp_path: Path) -> InProcessLake:
    return InProcessLake(games(), tmp_path)


def ann(lake: InProcessLake, score: int = 0) -> Record:
    """Return a record of chess, whose schema is registered if it is not yet."""
    chess = lake.register("chess", CHESS)
    return lake.record("chess", chess, {"user_name": "ann", "score": score})


def test_result_and_rows_are_those_of_a_run(lake: InProcessLake) -> None:
    result = lake.land([ann(lake, 1), None, ann(lake, 2)])
    assert (result.batches, result.rows, result.quarantined) == (1, 2, {"null_value": 1})
    assert result.new_tables == ("silver_chess",)
    assert result.ok
    assert lake.rows("silver_chess", "score", "_topic", "_offset") == [
        {"score": 1, "_topic": "games", "_offset": 0},
        {"score": 2, "_topic": "games", "_offset": 2},
    ]
    (quarantined,) = lake.quarantine()
    assert (quarantined.reason, quarantined.value) == ("null_value", None)


def test_everything_is_in_the_folder(lake: InProcessLake, tmp_path: Path) -> None:
    lake.land([ann(lake)])
    assert lake.path == tmp_path / "lake"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "schemas"]
    assert lake.pipeline.checkpoint.startswith(str(tmp_path))
    assert lake.pipeline.registry == headgate.Registry(folder=str(tmp_path / "schemas"))
    assert lake.pipeline.status().rows == 1


def test_schemas_of_a_folder_are_copied_with_their_ids(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "12.chess.proto").write_text(CHESS)
    lake = InProcessLake(games(registry=str(own)), tmp_path / "test")
    lake.land([lake.record("chess", 12, {"user_name": "ann"})])
    assert lake.rows("silver_chess", "user_name", "_schema_id") == [
        {"user_name": "ann", "_schema_id": 12}
    ]
    assert lake.register("go", CHESS) == 13
    assert [path.name for path in own.iterdir()] == ["12.chess.proto"]


def test_offsets_continue_by_partition_and_in_a_new_process(tmp_path: Path) -> None:
    for _ in range(2):
        lake = InProcessLake(games(), tmp_path)
        record = ann(lake)
        lake.land([record, replace(record, partition=1), record])
    lake.land([replace(record, partition=1, offset=40)])
    lake.land([record, replace(record, partition=1)])
    places = [(row["_partition"], row["_offset"]) for row in lake.rows("silver_chess")]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 40), (1, 41)]


def test_record_keeps_what_it_was_given(lake: InProcessLake) -> None:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    given = replace(
        ann(lake), key=b"k", headers=[("trace", b"7")], topic="more", offset=5, timestamp=at
    )
    lake.land([given])
    (row,) = lake.rows("silver_chess")
    assert (row["_key"], row["_topic"], row["_offset"], row["_timestamp"]) == (b"k", "more", 5, at)
    assert row["_headers"] == [{"key": "trace", "value": b"7"}]


def test_topic_is_the_route_of_framed_records(tmp_path: Path) -> None:
    lake = InProcessLake(games(envelope=headgate.Confluent()), tmp_path)
    chess, order = lake.register("chess-value", CHESS), lake.register("orders-value", ORDER)
    encoded = BytesIO()
    fastavro.schemaless_writer(encoded, fastavro.parse_schema(json.loads(ORDER)), {"id": 7})
    lake.land(
        [
            lake.record("chess", chess, {"user_name": "ann"}),
            lake.record("orders", order, encoded.getvalue()),
            lake.record("orders", 99, b"of an unknown schema"),
        ]
    )
    assert lake.rows("silver_chess", "user_name") == [{"user_name": "ann"}]
    assert lake.rows("silver_orders", "id") == [{"id": 7}]
    assert [one.reason for one in lake.quarantine()] == ["schema_unknown"]


def test_fields_need_a_protobuf_schema(lake: InProcessLake) -> None:
    with pytest.raises(UsageError, match="registered Protobuf schema"):
        lake.record("orders", lake.register("orders", ORDER), {"id": 7})
    with pytest.raises(UsageError, match="registered Protobuf schema"):
        lake.record("orders", 99, {"id": 7})


def test_schema_that_is_registered_later_is_found(lake: InProcessLake) -> None:
    early = lake.record("chess", 1, b"\x0a\x03ann")
    assert lake.land([early]).quarantined == {"schema_unknown": 1}
    lake.register("chess", CHESS)
    assert lake.land([early]).rows == 1
    lake.pipeline.quarantine.replay()
    assert len(lake.rows("silver_chess")) == 2


def test_more_than_a_page_of_quarantined_records_is_returned(lake: InProcessLake) -> None:
    lake.land([b"\xff"] * 25)
    assert len(lake.quarantine()) == 25
    assert InProcessLake(games(), lake.folder / "empty").quarantine().total == 0


@pytest.mark.parametrize("failure", ["refusing", "unreadable"])
def test_failing_table_is_pending_until_it_succeeds(lake: InProcessLake, failure: str) -> None:
    lake.land([ann(lake, 1)])
    failing = FailingCommitter(lake.committer)
    getattr(failing, failure).add("silver_chess")
    lake.committer = failing
    go = lake.record("go", 1, {"user_name": "bob"})
    result = lake.land([ann(lake, 2), go])
    assert [one.table for one in result.pending] == ["silver_chess"]
    assert len(lake.rows("silver_go")) == 1
    failing.heal()
    assert lake.run().ok
    assert [row["score"] for row in lake.rows("silver_chess")] == [1, 2]


def test_commit_whose_response_is_lost_has_landed(lake: InProcessLake) -> None:
    lake.committer = failing = FailingCommitter(lake.committer, losing_response={"silver_chess"})
    assert lake.land([ann(lake, 1)]).ok
    assert [commit.table for commit in failing.commits] == ["silver_chess"]
    assert len(lake.rows("silver_chess")) == 1


@pytest.mark.parametrize("when", ["crashing_before", "crashing_after"])
@pytest.mark.parametrize("new_process", [False, True])
def test_batch_that_crashed_lands_once(lake: InProcessLake, when: str, new_process: bool) -> None:
    lake.committer = failing = FailingCommitter(lake.committer)
    getattr(failing, when).add("silver_chess")
    with pytest.raises(Crash):
        lake.land([ann(lake, 1)])
    failing.heal()
    lake = InProcessLake(games(), lake.folder) if new_process else lake
    lake.land([ann(lake, 2)])
    rows = lake.rows("silver_chess", "score", "_offset")
    assert rows == [{"score": 1, "_offset": 0}, {"score": 2, "_offset": 1}]


def test_batch_that_a_rule_stops_is_kept_until_the_rule_is_removed(tmp_path: Path) -> None:
    rule = headgate.Expectation(rule="score < 5", on_fail="fail")
    lake = InProcessLake(games(expect={"silver_*": {"low": rule}}), tmp_path)
    for _ in range(2):
        with pytest.raises(LandingError, match="low"):
            lake.land([ann(lake, 9)])
    lake.pipeline = lake.pipeline.model_copy(update={"expect": {}})
    assert lake.run().batches == 2
    assert [row["_offset"] for row in lake.rows("silver_chess")] == [0, 1]


def test_change_files_are_merged(tmp_path: Path) -> None:
    pipeline = headgate.Pipeline(
        name="shop",
        source=headgate.Files(path="./landing"),
        envelope=headgate.Datastream(),
        lake="./lake",
        history="history_{database}_{table}",
    )
    lake = InProcessLake(pipeline, tmp_path)
    files = [
        write_changes([one], tmp_path / "landing" / str(at))
        for at, one in enumerate(
            (
                change("orders", 1, "new", at=1),
                change("orders", 1, "paid", at=2, kind="UPDATE"),
                change("orders", 2, "new", at=3),
            )
        )
    ]
    assert lake.land_files(files[1]).tables == ("log_shop_orders",)
    lake.land_files(files[2] + files[0])
    assert lake.rows("shop_orders", "id", "name") == [
        {"id": 1, "name": "paid"},
        {"id": 2, "name": "new"},
    ]
    assert len(lake.rows("history_shop_orders")) == 3
    assert all(one.is_ok for one in lake.pipeline.verify())
    with pytest.raises(UsageError, match="change files"):
        lake.land([b""])


def test_files_are_for_change_pipelines(lake: InProcessLake) -> None:
    with pytest.raises(UsageError, match="lands records"):
        lake.land_files(["orders.avro"])


def test_importing_does_not_load_spark() -> None:
    script = "import sys, headgate.testing; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_registry_is_the_one_for_folders(lake: InProcessLake) -> None:
    assert isinstance(lake.registry, FolderRegistry)
    assert lake.registry.subjects() == []
    lake.register("orders", ORDER)
    assert lake.registry.fetch(1).schema_type == "AVRO"
