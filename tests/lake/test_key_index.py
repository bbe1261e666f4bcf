"""Keys are found, and files that have none of them are ruled out."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.lake import key_index, merge
from headgate.lake.commit import commit_rows
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.key_index import KeyIndex
from headgate.lake.merge import find_rows
from headgate.lake.snapshot import Snapshot


@pytest.mark.parametrize("many", [0, 10**6])
@given(
    keys=st.lists(st.one_of(st.none(), st.integers(-9, 9)), unique=True, min_size=1),
    sought=st.lists(st.one_of(st.none(), st.integers(-12, 12))),
)
def test_keys_are_found_among_few_and_among_many(
    many: int, keys: list[int | None], sought: list[int | None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_MANY", many)
        index = KeyIndex(pa.table({"id": pa.array(keys, pa.int64())}), ["id"])
        found = index.find(pa.table({"id": pa.array(sought, pa.int64())}))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in sought]


def test_statistics_of_timestamps_may_be_truncated() -> None:
    """Spark writes those of 12:00:00.000999 as 12:00:00.000."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    keys = pa.table({"at": [noon + timedelta(microseconds=999)]})
    assert KeyIndex(keys, ["at"]).may_be_in(noon - timedelta(hours=1), noon, 0)
    assert not KeyIndex(keys, ["at"]).may_be_in(noon - timedelta(hours=2), noon.replace(hour=11), 0)


FAR = 300_000_000_000_000_000
"""Microseconds of a time beyond the year 9999."""


def numbers(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    edges = st.sampled_from((0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, limit, -limit))
    some = st.one_of(st.integers(-limit, limit), edges.filter(lambda value: abs(value) <= limit))
    return some.map(lambda value: Decimal((value < 0, [*map(int, str(abs(value)))], -scale)))


LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.sampled_from((2**53, 2**53 + 1))
)
TIMES = st.one_of(
    st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    st.integers(1_999, 3_001),
    st.sampled_from((253_402_300_799_999_999, 253_402_300_799_999_000, FAR, -FAR)),
)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): LONGS,
    pa.float32(): st.floats(width=32),
    pa.float64(): st.one_of(st.floats(), st.sampled_from((0.0, -0.0, float("nan")))),
    pa.decimal128(9, 2): numbers(9, 2),
    pa.decimal128(38, 0): numbers(38, 0),
    pa.decimal128(38, 19): numbers(38, 19),
    pa.string(): st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        st.text("xy\uffff\U0010ffff", min_size=60, max_size=70),
    ),
    pa.binary(): st.binary(max_size=4),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us", "UTC"): TIMES,
    pa.timestamp("us"): TIMES,
}


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def write_as_spark(folder: Path, rows: pa.Table) -> None:
    """Write a file with the statistics of Spark: of truncated times and texts, and with NaN."""
    write_deltalake(folder, rows, mode="append")
    entry = folder / "_delta_log" / f"{DeltaTable(folder).version():020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    values = rows["id"].drop_null().combine_chunks()
    facts: dict[str, Any] = {"numRecords": len(rows), "nullCount": {"id": rows["id"].null_count}}
    if len(values) and not pa.types.is_binary(values.type) and not pa.types.is_boolean(values.type):
        ordered = values.take(pc.sort_indices(values))
        least, greatest = (in_json(ordered.slice(at, 1)) for at in (0, len(ordered) - 1))
        if isinstance(greatest, str) and pa.types.is_string(values.type) and greatest[32:]:
            greatest = greatest[:32] + "\U0010ffff" * 2
        if isinstance(least, str) and pa.types.is_string(values.type):
            least = least[:32]
        facts |= {"minValues": {"id": least}, "maxValues": {"id": greatest}}
    text = re.sub(r'"#([^"#]+)#"', r"\1", json.dumps(facts, ensure_ascii=False))
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = text
    entry.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions))


def in_json(value: pa.Array) -> Any:
    if pa.types.is_timestamp(value.type):
        millis = pc.floor_temporal(value, unit="millisecond").cast(pa.timestamp("ms"))
        return pc.strftime(millis, "%Y-%m-%dT%H:%M:%S")[0].as_py() + ("Z" if value.type.tz else "")
    (plain,) = value.to_pylist()
    if isinstance(plain, Decimal):
        return f"#{plain:f}#"
    if isinstance(plain, float):
        return plain if isfinite(plain) else {"nan": "NaN"}.get(str(plain), f"{plain}inity")
    return plain.isoformat() if isinstance(plain, date) else plain


@pytest.mark.parametrize("writer", ["headgate", "delta-rs", "spark"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_rows_are_found_by_their_keys_whoever_wrote_their_statistics(
    kind: pa.DataType, writer: str, data: st.DataObject
) -> None:
    values = st.one_of(KINDS[kind], st.none())
    files = data.draw(st.lists(st.lists(values, min_size=1, max_size=4), min_size=2, max_size=4))
    others = column(data.draw(st.lists(values, max_size=3)), kind)
    arrays = [column(some, kind) for some in files]
    sought = pa.concat_arrays([others, *(array.slice(0, 2) for array in arrays)]).unique()
    keys = KeyIndex(pa.table({"id": sought}), ["id"])
    with TemporaryDirectory() as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "FILE_ROWS", 0)  # no table is small
        for array in arrays:
            rows = pa.table({"id": array})
            if writer == "headgate":
                commit_rows(DeltaRsCommitter(lake), "shop", rows)
            elif writer == "spark":
                write_as_spark(Path(lake, "shop"), rows)
            else:
                write_deltalake(Path(lake, "shop"), rows, mode="append")
        table = Snapshot.open(lake, "shop")
        assert table is not None
        found = find_rows(table, keys, ["id"]).rows
    wanted = pa.chunked_array(arrays).filter(
        pa.array(keys.find(pa.table({"id": pa.chunked_array(arrays)})) >= 0)
    )
    assert len(found) == len(wanted) >= sum(min(len(array), 2) for array in arrays)


@pytest.mark.parametrize("values", [[1.5, float("nan"), 0.0, -0.0], [float("nan"), -0.0]])
def test_nan_is_equal_to_nan_and_zero_to_negative_zero(values: list[float]) -> None:
    keys = pa.table({"id": [float("nan"), 0.0]})
    found = KeyIndex(keys, ["id"]).find(pa.table({"id": values}))
    assert found.tolist() == [0 if value != value else 1 if value == 0 else -1 for value in values]
