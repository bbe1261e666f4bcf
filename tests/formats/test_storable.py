from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.formats.storable import storable_array, storable_fields, storable_type

SCORE = pa.struct([pa.field("points", pa.uint64()), pa.field("levels", pa.list_(pa.uint32()))])
BEST = {"points": 2**64 - 1, "levels": [2**32 - 1, 0]}


def stored(values: list[Any], kind: pa.DataType) -> pa.Array:
    target = storable_type(kind)
    array = storable_array(pa.array(values, kind), target)
    array.validate(full=True)
    assert array.type.equals(target)
    return array


@pytest.mark.parametrize(
    ("kind", "target", "values"),
    [
        (pa.bool_(), pa.bool_(), [True, None]),
        (pa.int32(), pa.int32(), [-(2**31), 2**31 - 1, None]),
        (pa.int64(), pa.int64(), [-(2**63), 2**63 - 1, None]),
        (pa.uint8(), pa.int16(), [0, 2**8 - 1, None]),
        (pa.uint16(), pa.int32(), [0, 2**16 - 1, None]),
        (pa.uint32(), pa.int64(), [0, 2**32 - 1, None]),
        (pa.uint64(), pa.decimal128(20, 0), [0, 2**64 - 1, None]),
        (pa.float32(), pa.float32(), [0.5, float("inf"), None]),
        (pa.float64(), pa.float64(), [1e300, -0.0, None]),
        (pa.string(), pa.string(), ["é", "", None]),
        (pa.large_string(), pa.string(), ["é", None]),
        (pa.binary(), pa.binary(), [b"\0\xff", b"", None]),
        (pa.binary(2), pa.binary(), [b"\0\xff", None]),
        (pa.null(), pa.string(), [None, None]),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), ["a", None, "a"]),
    ],
    ids=str,
)
def test_primitive_values_are_unchanged(
    kind: pa.DataType, target: pa.DataType, values: list[Any]
) -> None:
    array = stored(values, kind)
    assert array.type == target
    assert array.to_pylist() == values


def test_timestamp_has_microseconds_and_keeps_its_zone() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    assert stored([moment, None], pa.timestamp("us", "UTC")).to_pylist() == [moment, None]
    assert storable_type(pa.timestamp("ns", "UTC")) == pa.timestamp("us", "UTC")
    assert storable_type(pa.timestamp("s")) == pa.timestamp("us")


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_duration_is_microseconds(unit: str) -> None:
    array = stored([timedelta(seconds=-3), None], pa.duration(unit))
    assert array.to_pylist() == [-3_000_000, None]


def test_time_of_day_is_microseconds() -> None:
    assert stored([1, None], pa.time64("us")).to_pylist() == [1, None]
    assert stored([1, None], pa.time32("ms")).to_pylist() == [1_000, None]


def test_empty_message_is_a_boolean() -> None:
    assert stored([{}, None], pa.struct([])).to_pylist() == [True, False]


def test_nested_unsigned_numbers_are_kept() -> None:
    best = {"points": Decimal(2**64 - 1), "levels": [2**32 - 1, 0]}
    none = {"points": None, "levels": None}
    assert stored([BEST, None, none], SCORE).to_pylist() == [best, None, none]
    assert stored([[BEST, None], None, []], pa.list_(SCORE)).to_pylist() == [[best, None], None, []]
    assert stored(
        [[("a", BEST), ("b", None)], None, []], pa.map_(pa.string(), SCORE)
    ).to_pylist() == [[("a", best), ("b", None)], None, []]
    assert stored([[(2**32 - 1, 2**64 - 1)]], pa.map_(pa.uint32(), pa.uint64())).to_pylist() == [
        [(2**32 - 1, 2**64 - 1)]
    ]


def test_columns_are_nullable_and_twins_get_unique_names() -> None:
    fields = [pa.field("a", pa.uint32(), nullable=False), pa.field("A", pa.struct([]))]
    first, twin = storable_fields(fields, ["_topic"])
    assert first.equals(pa.field("a", pa.int64()))
    assert twin.name.startswith("A__")
    assert twin.type == pa.bool_()


def test_nested_twins_get_unique_names() -> None:
    inside = storable_type(pa.struct([pa.field("a", pa.int32()), pa.field("A", pa.int32())]))
    assert inside.field(0).name == "a"
    assert inside.field(1).name.startswith("A__")
    array = storable_array(
        pa.array([{"a": 1, "A": 2}], pa.struct([("a", pa.int32()), ("A", pa.int32())])), inside
    )
    assert list(array[0].as_py().values()) == [1, 2]


leaves = st.sampled_from([pa.uint64(), pa.uint32(), pa.int64(), pa.string(), pa.bool_()])
kinds = st.recursive(
    leaves,
    lambda inside: (
        inside.map(pa.list_)
        | inside.map(lambda item: pa.map_(pa.string(), item))
        | st.lists(inside, min_size=1, max_size=3).map(
            lambda types: pa.struct([pa.field(f"f{at}", one) for at, one in enumerate(types)])
        )
    ),
    max_leaves=5,
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    some: st.SearchStrategy[Any]
    if pa.types.is_struct(kind):
        some = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif pa.types.is_map(kind):
        some = st.lists(st.tuples(st.text(max_size=3), values_of(kind.item_type)), max_size=3)
    elif pa.types.is_list(kind):
        some = st.lists(values_of(kind.value_type), max_size=3)
    else:
        bounds = {
            pa.uint64(): st.integers(0, 2**64 - 1),
            pa.uint32(): st.integers(0, 2**32 - 1),
            pa.int64(): st.integers(-(2**63), 2**63 - 1),
            pa.string(): st.text(max_size=5),
            pa.bool_(): st.booleans(),
        }
        some = bounds[kind]
    return st.none() | some


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_nothing_nested_is_lost(data: st.DataObject) -> None:
    kind = data.draw(kinds)
    values = data.draw(st.lists(values_of(kind), max_size=4))
    assert stored(values, kind).to_pylist() == values
    assert storable_type(storable_type(kind)) == storable_type(kind)
