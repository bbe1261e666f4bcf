from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.parquet import file_statistics, stage_rows
from tests.lake.staged import staged

from .committer_contract import commit


def statistics(kind: pa.DataType, values: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_statistics(pa.table({"c": pa.array(values, kind)})))
    assert found["numRecords"] == len(values)
    assert found["nullCount"] == {"c": sum(value is None for value in values)}
    return found


def bounds(kind: pa.DataType, values: list[Any]) -> tuple[Any, Any] | None:
    found = statistics(kind, values)
    low, high = found.get("minValues", {}), found.get("maxValues", {})
    assert low.keys() == high.keys()
    return (low["c"], high["c"]) if low else None


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=8)


@given(some(st.integers(-(2**63), 2**63 - 1)))
@settings(deadline=None)
def test_bounds_of_numbers_are_the_least_and_the_greatest(values: list[int | None]) -> None:
    there = [value for value in values if value is not None]
    assert bounds(pa.int64(), values) == ((min(there), max(there)) if there else None)


@given(some(st.integers(0, 2**64 - 1)))
@settings(deadline=None)
def test_bounds_of_unsigned_numbers_are_whole_numbers(values: list[int | None]) -> None:
    there = [value for value in values if value is not None]
    assert bounds(pa.decimal128(20, 0), values) == ((min(there), max(there)) if there else None)


@given(some(st.floats()))
@settings(deadline=None)
@example([math.nan, 1.0])
@example([math.inf, -math.inf])
@example([-0.0, 0.0])
def test_bounds_of_floats_hold_all_of_them_or_are_missing(values: list[float | None]) -> None:
    there = [value for value in values if value is not None]
    if found := bounds(pa.float64(), values):
        assert all(found[0] <= value <= found[1] for value in there)
    else:
        assert all(math.isfinite(value) for value in there) is (not there)


@given(some(st.text(max_size=72) | st.text("az\U0010ffff", min_size=62, max_size=72)))
@settings(deadline=None)
@example(["x" * 63, "x" * 64, "x" * 65])
@example(["\U0010ffff" * 72])
@example(["z" * 64 + "\U0010ffff" * 3])
@example(["\U00020000" * 65, "é" * 65])
def test_bounds_of_texts_hold_all_of_them_and_are_short(values: list[str | None]) -> None:
    there = [value for value in values if value is not None]
    if found := bounds(pa.string(), values):
        low, high = (bound.encode() for bound in found)
        assert all(low <= value.encode() <= high for value in there)
        assert len(found[0]) <= 64
        assert len(found[1]) <= 65 or found[1][64] == "\U0010ffff"
    else:
        assert there == []


@given(some(st.datetimes(timezones=st.just(UTC))))
@settings(deadline=None)
def test_bounds_of_timestamps_are_exact(values: list[datetime | None]) -> None:
    there = [value for value in values if value is not None]
    found = bounds(pa.timestamp("us", "UTC"), values)
    if there:
        assert found is not None
        assert [datetime.fromisoformat(bound) for bound in found] == [min(there), max(there)]
        assert found[0].endswith("Z")
    else:
        assert found is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us", "UTC"), 10**18),
        (pa.timestamp("us", "UTC"), -(2**63)),
        (pa.timestamp("us"), 2**63 - 1),
        (pa.date32(), 2**31 - 1),
    ],
    ids=str,
)
def test_timestamp_beyond_the_calendar_has_no_bounds(kind: pa.DataType, value: int) -> None:
    assert bounds(kind, [value, 0]) is None


def test_bounds_of_days_are_days() -> None:
    assert bounds(pa.date32(), [date(2026, 1, 2), None]) == ("2026-01-02", "2026-01-02")


def test_bounds_of_booleans_are_booleans() -> None:
    assert bounds(pa.bool_(), [True, None, False]) == (False, True)
    assert bounds(pa.bool_(), [True]) == (True, True)


def test_bounds_of_decimals_have_all_their_digits() -> None:
    values = [Decimal("-0.000000000001"), Decimal("12345678901234567890123456.123456789012")]
    rows = pa.table({"c": pa.array(values, pa.decimal128(38, 12))})
    found = json.loads(file_statistics(rows), parse_float=Decimal)
    assert [found["minValues"]["c"], found["maxValues"]["c"]] == values


def test_bytes_have_no_bounds() -> None:
    assert bounds(pa.binary(), [b"a"]) is None


def test_file_with_a_column_without_bounds_has_no_bounds() -> None:
    rows = pa.table({"n": [1, 2], "x": [math.inf, 1.0]})
    assert json.loads(file_statistics(rows)) == {"numRecords": 2, "nullCount": {"n": 0, "x": 0}}


def test_odd_column_names_are_escaped() -> None:
    rows = pa.table({'a"\\\n\u2028é': [1]})
    assert json.loads(file_statistics(rows))["minValues"] == {'a"\\\n\u2028é': 1}


def test_nested_columns_have_no_statistics() -> None:
    rows = pa.table({"l": [[1]], "s": [{"x": 1}], "n": [1]})
    assert json.loads(file_statistics(rows)) == {
        "numRecords": 1,
        "minValues": {"n": 1},
        "maxValues": {"n": 1},
        "nullCount": {"n": 0},
    }


def test_columns_beyond_the_fortieth_have_no_statistics() -> None:
    found = json.loads(file_statistics(pa.table({f"c{number}": [number] for number in range(60)})))
    assert len(found["minValues"]) == 40


def test_file_without_rows_has_no_bounds() -> None:
    assert bounds(pa.int64(), []) is None


VALUES: dict[str, Callable[[], pa.Array]] = {
    "text": lambda: pa.array(["é" * 72, "\U0010ffff" * 72, "\U00020000" * 72, "", "z" * 64]),
    "unsigned": lambda: pa.array([2**64 - 1, 0, 2**53 + 1], pa.decimal128(20, 0)),
    "large": lambda: pa.array([10**37 + 1, -(10**37) - 1], pa.decimal128(38, 0)),
    "long": lambda: pa.array([2**63 - 1, -(2**63), 2**53 + 1], pa.int64()),
    "float": lambda: pa.array([0.1, 1e38, -1e-38], pa.float32()),
    "double": lambda: pa.array([0.1, 1e300, math.inf, -5e-324]),
    "truth": lambda: pa.array([True, False]),
    "money": lambda: pa.array([Decimal("0.01"), Decimal("-99999999.99")], pa.decimal128(10, 2)),
    "fraction": lambda: pa.array([1, -1], pa.decimal128(38, 0)).cast(pa.decimal128(38, 37)),
    "bytes": lambda: pa.array([b"a", b"\xff" * 50]),
    "moment": lambda: pa.array([1, 10**15 + 1, -1, 10**18], pa.timestamp("us", "UTC")),
    "day": lambda: pa.array([0, -1, 2**31 - 1], pa.date32()),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
def test_reader_that_skips_files_by_statistics_finds_every_row(
    tmp_path: Path, make: Callable[[], pa.Array]
) -> None:
    values = make()
    files = [staged(tmp_path, "t", {"c": values.slice(at, 1)}) for at in range(len(values))]
    commit(DeltaRsCommitter(str(tmp_path)), 0, *files)
    dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    for value in values:
        assert dataset.to_table(filter=ds.field("c") == value).num_rows == 1


@pytest.mark.parametrize("nested", [False, True])
def test_statistics_of_large_files_are_those_of_their_rows(tmp_path: Path, nested: bool) -> None:
    texts = ["", "é" * 40, "\U0010ffff" * 40, "z" * 5_000, None]
    columns: dict[str, Any] = {
        "a.b": [texts[number % 2] for number in range(30_000)],
        "long": [texts[number % 5] for number in range(30_000)],
        "nothing": pa.nulls(30_000, pa.string()),
        "number": range(30_000),
    }
    if nested:
        lines = pa.list_(pa.struct([("n", pa.int64()), ("words", pa.list_(pa.string()))]))
        columns = {
            "a": [{"b": "z", "c": -1}] * 30_000,
            "lines": pa.array([[{"n": -2, "words": ["b"]}]] * 30_000, lines),
            "map": pa.array([[("k", -3)]] * 30_000, pa.map_(pa.string(), pa.int64())),
            **columns,
        }
    rows = pa.table(columns)
    staged_file = stage_rows(str(tmp_path), "t", rows)
    assert json.loads(staged_file.statistics) == json.loads(file_statistics(rows))
