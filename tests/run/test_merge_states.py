"""States that are merged in memory equal those that Spark merges."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.gold.states import can_merge, merge_states
from headgate.lake.key_index import KeyIndex
from headgate.sql.gold_select import parse_gold
from headgate.sql.incremental import Incremental, incremental

NUMBERS = [None, 0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e308, 5e-324]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [None, 0, 1, -7, 2**61]),
    "int": (pa.int32(), [None, 0, 5, -(2**31)]),
    "double": (pa.float64(), NUMBERS),
    "money": (pa.decimal128(12, 2), [None, Decimal("0.01"), Decimal("-9999999999.99")]),
    "text": (pa.string(), [None, "", "a", "B", "é", "\U0001f600", "\uffff"]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1, 1, 1), date(2026, 1, 1)]),
    "at": (pa.timestamp("us", "UTC"), [None, datetime(2026, 1, 1, 0, 0, 0, 1, UTC)]),
}
SELECT = """
SELECT id, id2, count(*) AS counted, count(day) AS days, sum(long) AS longs, sum(int) AS ints,
  sum(double) AS summed, sum(money) AS moneys, min(double) AS least, max(double) AS greatest,
  min(money) AS least_money, max(text) AS last_text, min(text) AS first_text, min(flag) AS none,
  max(flag) AS some, bool_and(flag) AS every_flag, bool_or(flag) AS any_flag, max(day) AS last_day,
  min(day) AS first_day, max(at) AS last_at, min(int) AS least_int
FROM silver GROUP BY id, id2
"""


def states_of(select: str) -> Incremental:
    found = incremental(parse_gold(select))
    assert isinstance(found, Incremental)
    return found


def pairs() -> tuple[pa.Table, pa.Table]:
    """Return two tables with all pairs of values; each pair is a group, some are in one only."""
    size = max(len(values) for _, values in VALUES.values())
    places = [(one, other) for one in range(size) for other in range(size)]

    def table(side: int) -> pa.Table:
        chosen = [place for at, place in enumerate(places) if at % 7 != side]
        keys = {
            "id": pa.array([one for one, _ in chosen], pa.int32()),
            "id2": pa.array([str(other) if other else None for _, other in chosen]),
        }
        values = {
            name: pa.array([known[place[side] % len(known)] for place in chosen], kind)
            for name, (kind, known) in VALUES.items()
        }
        return pa.table({**keys, **values})

    return table(0), table(1)


def in_spark(spark: SparkSession, states: Incremental, kept: pa.Table, new: pa.Table) -> list[Any]:
    for name, rows in (("kept_states", kept), ("new_states", new)):
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    spark.sql(
        "SELECT * FROM kept_states UNION ALL SELECT * FROM new_states"
    ).createOrReplaceTempView("all_states")
    merged: pa.Table = spark.sql(states.merge_sql("all_states", ())).toArrow()
    return list(merged.cast(new.schema).to_pylist())


def test_merged_states_equal_those_of_spark(spark: SparkSession) -> None:
    states = states_of(SELECT)
    before, after = pairs()
    partial = []
    for rows in (before, after):
        spark.createDataFrame(rows).createOrReplaceTempView("rows")
        partial.append(spark.sql(states.partial_sql("rows", ())).toArrow())
    kept, new = partial
    assert can_merge(states, new.schema)
    keys = KeyIndex(new, ["id", "id2"])
    found = kept.filter(pa.array(keys.find(kept) >= 0))
    merged = merge_states(states, new, keys, found).to_pylist()
    assert len(merged) == len(new) > len(found) > 0
    wanted = {(row["id"], row["id2"]): row for row in in_spark(spark, states, kept, new)}
    assert [repr(row) for row in merged] == [repr(wanted[row["id"], row["id2"]]) for row in merged]


@pytest.mark.parametrize(
    ("select", "kind"),
    [
        ("SELECT id, avg(value) AS value FROM silver GROUP BY id", pa.float64()),
        ("SELECT id, 2 * sum(value) AS value FROM silver GROUP BY id", pa.int64()),
        ("SELECT id, any_value(value) AS value FROM silver GROUP BY id", pa.int64()),
        ("SELECT id, max(value) AS value FROM silver GROUP BY id", pa.list_(pa.int64())),
        ("SELECT id, bit_xor(value) AS value FROM silver GROUP BY id", pa.int64()),
    ],
)
def test_other_states_are_left_to_spark(select: str, kind: pa.DataType) -> None:
    states = states_of(select)
    types = {one.name: kind for one in states.states}
    assert not can_merge(states, pa.schema([("id", pa.int64()), *types.items()]))


@pytest.mark.parametrize(
    ("kind", "largest"),
    [(pa.int64(), 2**63 - 1), (pa.decimal128(38, 0), Decimal(10**38 - 1))],
)
def test_a_sum_that_is_too_large_is_left_to_spark(kind: pa.DataType, largest: Any) -> None:
    states = states_of("SELECT id, sum(value) AS total FROM silver GROUP BY id")
    rows = pa.table({"id": pa.array([1]), "total": pa.array([largest], kind)})
    with pytest.raises(pa.ArrowInvalid):
        merge_states(states, rows, KeyIndex(rows, ["id"]), rows)
