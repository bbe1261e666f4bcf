"""Reading a table at one version."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from headgate.lake.snapshot import Snapshot

ROWS = pa.table(
    {
        'a "name" of `SQL`': pa.array(["x", None], pa.string()),
        "bytes": pa.array([b"\0", b""], pa.binary()),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31)], pa.date32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "nested": pa.array(
            [{"list": ["a", "b"], "map": [("k", b"v")]}, None],
            pa.struct(
                [("list", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.binary()))]
            ),
        ),
        "part": pa.array(["one", "two"], pa.string()),
    }
)


def _opened(lake: Path) -> Snapshot:
    snapshot = Snapshot.open(str(lake), "t")
    assert snapshot is not None
    return snapshot


def test_read_returns_the_columns_and_types_of_the_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["part"])
    table = _opened(tmp_path)
    assert table.read().schema == table.schema
    assert table.read().sort_by("part").to_pylist() == ROWS.sort_by("part").to_pylist()
    assert sorted(row["part"] for row in table.read(["part", "at"]).to_pylist()) == ["one", "two"]
    assert table.read([]).num_columns == 0


def test_fields_that_older_files_lack_are_null_wherever_they_are(tmp_path: Path) -> None:
    old, new = pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int32()), ("y", pa.string())])
    for kind, value in ((old, {"x": 1}), (new, {"x": 2, "y": "b"})):
        columns = {
            "map": pa.array([[("k", value)]], pa.map_(pa.string(), kind)),
            "list": pa.array([[value]], pa.list_(kind)),
            "struct": pa.array([value], kind),
        }
        rows = pa.table(columns)
        write_deltalake(tmp_path / "t", rows, mode="append", schema_mode="merge")
    values = [{"x": 1, "y": None}, {"x": 2, "y": "b"}]
    found = _opened(tmp_path).read()
    assert sorted(found["struct"].to_pylist(), key=repr) == values
    assert sorted(found["list"].to_pylist(), key=repr) == [[one] for one in values]
    assert sorted(found["map"].to_pylist(), key=repr) == [[("k", one)] for one in values]


def test_read_leaves_out_rows_that_a_deletion_vector_deletes(tmp_path: Path) -> None:
    """A table as another engine leaves it, with a deletion vector."""
    write_deltalake(tmp_path / "t", pa.table({"n": list(range(30))}))
    log = tmp_path / "t" / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (added,) = [action["add"] for action in actions if "add" in action]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 0}
    changes = [
        {"protocol": protocol},
        {"remove": removed},
        {"add": {**added, "deletionVector": vector}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, changes)))
    table = _opened(tmp_path)
    assert not table.is_plain
    deleted = {3, 4, 7, 11, 18, 29}
    assert table.read()["n"].to_pylist() == [n for n in range(30) if n not in deleted]


def test_timestamps_that_spark_writes_as_int96_are_read_in_full(tmp_path: Path) -> None:
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path / "t", rows)
    (file,) = (tmp_path / "t").glob("*.parquet")
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    assert _opened(tmp_path).rows()["at"].to_pylist() == times
    assert _opened(tmp_path).read()["at"].to_pylist() == times


def test_read_returns_the_rows_of_its_version(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    table = _opened(tmp_path)
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    table.delta.update_incremental()
    assert table.read().num_rows == 2
    assert _opened(tmp_path).read().num_rows == 4


def test_rows_of_one_version_are_always_in_the_same_order(tmp_path: Path) -> None:
    for start in range(0, 40, 10):
        numbers = pa.table({"n": list(range(start, start + 10))})
        write_deltalake(tmp_path / "t", numbers, mode="append")
    first = _opened(tmp_path).read()
    assert all(_opened(tmp_path).read().equals(first) for _ in range(5))
    assert sorted(first["n"].to_pylist()) == list(range(40))


def test_a_process_may_exit_right_after_reading(tmp_path: Path) -> None:
    for _ in range(6):
        write_deltalake(tmp_path / "t", ROWS, mode="append")
    script = f"""
        from headgate.lake.snapshot import Snapshot
        assert Snapshot.open({str(tmp_path)!r}, "t").read().num_rows == 12
    """
    for _ in range(4):
        subprocess.run([sys.executable, "-c", dedent(script)], check=True, timeout=300)
    assert DeltaTable(tmp_path / "t").version() == 5
