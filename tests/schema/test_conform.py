from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.schema.conform import conform, conform_rows

TIMESTAMP = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TEXTS = pa.array(["a", None, "b"])


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (TEXTS.cast(pa.string_view()), pa.string()),
        (TEXTS.cast(pa.large_string()), pa.string()),
        (TEXTS.dictionary_encode(), pa.string()),
        (pa.array([b"a", None], pa.binary_view()), pa.binary()),
        (pa.array([["a"], None], pa.large_list(pa.string_view())), pa.list_(pa.string())),
        (pa.array([[{"x": "a"}]], pa.list_(pa.struct([("x", pa.string_view())]))),
         pa.list_(pa.struct([("x", pa.string())]))),
        (pa.array([TIMESTAMP, None], pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC")),
        (pa.array([7, None], pa.int32()), pa.int64()),
    ],
    ids=str,
)  # fmt: skip
def test_values_do_not_depend_on_their_layout(array: pa.Array, target: pa.DataType) -> None:
    found = conform(array, target)
    assert found.type.equals(target)
    assert found.to_pylist() == array.to_pylist()


def test_spark_timestamps_without_a_zone_are_utc() -> None:
    naive = pa.array([TIMESTAMP.replace(tzinfo=None)], pa.timestamp("ns"))
    assert conform(naive, pa.timestamp("us", "UTC")).to_pylist() == [TIMESTAMP]


def test_value_that_the_type_cannot_hold_is_null() -> None:
    assert conform(TEXTS, pa.int64()).to_pylist() == [None, None, None]


def test_files_rewritten_by_delta_rs_keep_their_strings(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"name": ["a", "b"], "names": [["x"], ["y"]]}))
    table = DeltaTable(tmp_path)
    table.delete("name = 'a'")
    schema = pa.schema(table.schema())
    (path,) = table.file_uris()
    (rows,) = pq.ParquetFile(path).iter_batches()
    assert conform_rows(rows, schema).to_pylist() == [{"name": "b", "names": ["y"]}]
