"""Comparison of expected with actual rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cdc.compare import RowDifferences, canonical, compare_rows

NAN = float("nan")
NESTED = pa.struct(
    [
        ("numbers", pa.list_(pa.float64())),
        ("facts", pa.map_(pa.string(), pa.struct([("seen", pa.bool_())]))),
        ("raw", pa.binary()),
    ]
)


def table(kind: pa.DataType, *values: Any) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("value", kind)])
    return pa.Table.from_pylist([{"id": at, "value": one} for at, one in enumerate(values)], schema)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [NAN, None, -0.0, 1.5]),
        (pa.float32(), [NAN, None, 0.1]),
        (pa.string(), ["", None, "a", "~"]),
        (pa.binary(), [b"", None, b"\xff\x00"]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 11, 1, tzinfo=UTC), None]),
        (pa.list_(pa.string()), [[], None, [None], ["a", "b"], ["ab"], ["~"], [""]]),
        (pa.list_(pa.list_(pa.int64())), [[[1], [2]], [[1, 2]], [[], None], [[]]]),
        (pa.struct([]), [{}, None]),
        (
            NESTED,
            [
                {"numbers": [NAN, None], "facts": [("a", {"seen": None})], "raw": b"\xff"},
                {"numbers": [], "facts": [("a", None)], "raw": None},
                {"numbers": None, "facts": [], "raw": b""},
                {"numbers": None, "facts": None, "raw": None},
                None,
            ],
        ),
    ],
    ids=str,
)
def test_value_equals_itself_and_no_other(kind: pa.DataType, values: list[Any]) -> None:
    rows = table(kind, *values)
    assert compare_rows(rows, rows, ["id"]) == RowDifferences(len(rows))
    # Also in a slice of an array.
    assert compare_rows(rows.slice(1), rows.slice(1), ["id"]).total == 0
    assert len(set(canonical(rows["value"].combine_chunks()).to_pylist())) == len(values)
    for turn in range(1, len(values)):
        turned = table(kind, *values[turn:], *values[:turn])
        assert compare_rows(rows, turned, ["id"]).different == len(values)


def test_zero_has_no_sign() -> None:
    assert compare_rows(table(pa.float64(), 0.0), table(pa.float64(), -0.0), ["id"]).total == 0
    lists = pa.list_(pa.float64())
    assert compare_rows(table(lists, [0.0]), table(lists, [-0.0]), ["id"]).total == 0


def test_table_may_have_wider_types() -> None:
    assert compare_rows(table(pa.int32(), 7), table(pa.int64(), 7), ["id"]).total == 0


def test_rows_with_a_null_key_are_compared() -> None:
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64())])
    rows = pa.Table.from_pylist([{"id": None, "value": 1}], schema)
    found = compare_rows(rows.slice(0, 0), rows, ["id"])
    assert (found.too_many, found.rows_too_many[0].columns) == (1, {"value": 1})


Rows = list[tuple[int, str | None, int | None]]
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]), st.none() | st.integers(0, 1)),
    max_size=8,
)


@given(wanted=ROWS, found=ROWS)
def test_counts_match_a_model(wanted: Rows, found: Rows) -> None:
    schema = pa.schema([("one", pa.int64()), ("two", pa.string()), ("value", pa.int64())])

    def rows(some: Rows) -> pa.Table:
        named = [dict(zip(schema.names, row, strict=True)) for row in some]
        return pa.Table.from_pylist(named, schema)

    got = compare_rows(rows(wanted), rows(found), ["one", "two"])
    lacking, besides = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    keys, others = (Counter(row[:2] for row in some.elements()) for some in (lacking, besides))
    assert got.missing == (keys - others).total()
    assert got.too_many == (others - keys).total()
    assert got.different == (keys & others).total()
    assert got.rows == len(found)
    assert len(got.missing_rows) == min(got.missing, 5)
    assert all(each.columns for each in got.different_rows)
