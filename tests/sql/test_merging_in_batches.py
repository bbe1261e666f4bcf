"""Groups that are kept up to date batch by batch are those that all rows give at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.sql.gold_select import parse_gold
from headgate.sql.incremental import Incremental, incremental
from tests.sql.in_duckdb import Lake, Row

SAME_AS_DECLARED = {
    "count, min and max": (
        "SELECT user, count(*) AS n, count(x) AS xs, min(x) AS low,"
        " max(t) AS high FROM silver GROUP BY user"
    ),
    "sum and avg": "SELECT user, sum(x) AS s, avg(x) AS a, avg(y) AS b FROM silver GROUP BY user",
    "truth": (
        "SELECT day, bool_and(ok) AS every_one, bool_or(ok) AS some_one, count_if(x > 0) AS n"
        " FROM silver GROUP BY day"
    ),
    "bits": "SELECT user, bit_and(x) AS a, bit_or(x) AS o, bit_xor(x) AS x FROM silver GROUP BY 1",
    "filters": (
        "SELECT user, count(*) FILTER (WHERE ok) AS n, avg(x) FILTER (WHERE x > 0 OR ok) AS a,"
        " max(t) FILTER (WHERE v IS NOT NULL) AS m FROM silver GROUP BY user"
    ),
    "expressions over aggregates": (
        "SELECT user, round(sum(x) / count(*), 2) AS r, coalesce(max(x), 0) - min(x) AS spread,"
        " CASE WHEN count(x) = 0 THEN 'none' ELSE concat('n', count(x)) END AS word"
        " FROM silver GROUP BY user"
    ),
    "keys that are computed, hidden and null": (
        "SELECT upper(s.user) AS user, count(*) AS n FROM silver AS s"
        " WHERE t IS NULL OR t > -3 GROUP BY s.user, day % 2"
    ),
    "a key inside an output": (
        "SELECT coalesce(user, 'nobody') AS who, day + 1 AS next, sum(x) AS s FROM silver"
        " GROUP BY user, day"
    ),
    "group by an output, a number and a constant": (
        "SELECT day % 2 AS odd, 7 AS seven, user, count(*) AS n FROM silver GROUP BY odd, 2, 3"
    ),
    "group by all": "SELECT user, day, max(x) AS x FROM silver GROUP BY ALL",
    "no key": "SELECT count(*) AS n, max(x) AS high, avg(x) AS a FROM silver",
    "a field inside": "SELECT nested.field AS f, sum(nested.field) AS s FROM silver GROUP BY 1",
    "distinct that makes no difference": (
        "SELECT user, max(DISTINCT x) AS high FROM silver GROUP BY user"
    ),
}
ITS_OWN_VALUE = {
    "first and last by time": (
        "SELECT user, max_by(v, t) AS last, min_by(v, t) FILTER (WHERE ok) AS first FROM silver"
        " GROUP BY user"
    ),
    "nested": "SELECT user, concat(max_by(v, t), '!') AS last FROM silver GROUP BY user",
}
"""Which of several with the same time Spark takes is open; here it is always the same."""

ROWS = st.builds(
    Row,
    table=st.sampled_from(["silver_a", "silver_b"]),
    user=st.sampled_from(["ann", "bob", None]),
    day=st.sampled_from([1, 2, None]),
    x=st.integers(-4, 4) | st.none(),
    y=st.integers(-4, 4).map(float) | st.none(),
    ok=st.booleans() | st.none(),
    t=st.integers(-4, 4) | st.none(),
    v=st.sampled_from(["p", "q", None]),
)
BATCHES = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=4)


def planned(sql: str) -> Incremental:
    found = incremental(parse_gold(sql))
    assert isinstance(found, Incremental)
    return found


@pytest.mark.parametrize("sql", SAME_AS_DECLARED.values(), ids=SAME_AS_DECLARED)
@settings(deadline=None, max_examples=8)
@given(batches=BATCHES)
def test_batches_give_what_the_declared_query_gives(sql: str, batches: list[list[Row]]) -> None:
    how, lake = planned(sql), Lake()
    for rows in batches:
        lake.add(rows)
        lake.merge_batch(how)
    found = lake.rows_of(how.outputs_sql("gold"))
    assert found == lake.rows_of(how.full_sql("all_rows"))
    declared = parse_gold(sql).by_table("all_rows")
    assert declared is not None
    visible = 1 + len(how.outputs)
    assert sorted((row[:visible] for row in found), key=repr) == lake.rows_of(declared)


@pytest.mark.parametrize("sql", ITS_OWN_VALUE.values(), ids=ITS_OWN_VALUE)
@settings(deadline=None, max_examples=10)
@given(batches=BATCHES)
def test_batches_give_what_all_rows_give_at_once(sql: str, batches: list[list[Row]]) -> None:
    how, lake = planned(sql), Lake()
    for rows in batches:
        lake.add(rows)
        lake.merge_batch(how)
    assert lake.rows_of(how.outputs_sql("gold")) == lake.rows_of(how.full_sql("all_rows"))


@settings(deadline=None, max_examples=10)
@given(batches=BATCHES)
def test_one_table_over_all_has_no_table_as_key(batches: list[list[Row]]) -> None:
    how, lake = planned("SELECT user, count(*) AS n, avg(x) AS a FROM silver GROUP BY user"), Lake()
    for rows in batches:
        lake.add(rows)
        lake.merge_batch(how, extra_keys=())
    assert lake.rows_of(how.outputs_sql("gold", ())) == lake.rows_of(how.full_sql("all_rows", ()))


@settings(deadline=None, max_examples=10)
@given(batches=BATCHES)
def test_a_single_group_over_all_is_merged_without_any_key(batches: list[list[Row]]) -> None:
    how, lake = planned("SELECT count(*) AS n, max(x) AS high FROM silver"), Lake()
    for rows in batches:
        lake.add(rows)
        lake.merge_batch(how, extra_keys=())
    assert lake.rows_of(how.outputs_sql("gold", ())) == lake.rows_of(how.full_sql("all_rows", ()))


def test_any_value_is_one_of_the_group() -> None:
    how, lake = planned("SELECT user, any_value(v, true) AS v FROM silver GROUP BY user"), Lake()
    for v in (None, "p", None):
        lake.add([Row("silver_a", "ann", 1, 1, 1.0, True, 1, v)])
        lake.merge_batch(how)
    assert lake.rows_of(how.outputs_sql("gold")) == [("silver_a", "ann", "p")]
