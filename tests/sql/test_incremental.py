from __future__ import annotations

import pytest

from headgate.sql.gold_select import parse_gold
from headgate.sql.incremental import Incremental, State, incremental
from headgate.sql.mergeable import NotMergeable

FROM = "FROM silver GROUP BY user"


def planned(sql: str) -> Incremental:
    found = incremental(parse_gold(sql))
    assert isinstance(found, Incremental)
    return found


def output_of(how: Incremental, name: str) -> str:
    return next(each.expression for each in how.outputs if each.name == name)


MERGED_BY_ITSELF = {
    "count(*)": ("COUNT(*)", "sum(`n`)"),
    "count(1)": ("COUNT(1)", "sum(`n`)"),
    "count(x, t)": ("COUNT(`x`, `t`)", "sum(`n`)"),
    "sum(x)": ("SUM(`x`)", "sum(`n`)"),
    "min(x)": ("MIN(`x`)", "min(`n`)"),
    "max(x + 1)": ("MAX(`x` + 1)", "max(`n`)"),
    "count_if(x > 1)": ("COUNT_IF(`x` > 1)", "sum(`n`)"),
    "bool_and(ok)": ("BOOL_AND(`ok`)", "bool_and(`n`)"),
    "every(ok)": ("EVERY(`ok`)", "bool_and(`n`)"),
    "bool_or(ok)": ("BOOL_OR(`ok`)", "bool_or(`n`)"),
    "some(ok)": ("SOME(`ok`)", "bool_or(`n`)"),
    "any(ok)": ("ANY(`ok`)", "bool_or(`n`)"),
    "any_value(x)": ("ANY_VALUE(`x`)", "any_value(`n`)"),
    "any_value(x) IGNORE NULLS": ("ANY_VALUE(`x`) IGNORE NULLS", "any_value(`n`, true)"),
    "bit_xor(x)": ("BIT_XOR(`x`)", "bit_xor(`n`)"),
    "sum(x) FILTER (WHERE ok)": ("SUM(`x`) FILTER(WHERE `ok`)", "sum(`n`)"),
    "hll_sketch_agg(x)": ("HLL_SKETCH_AGG(`x`)", "hll_union_agg(`n`, false)"),
    "hll_union_agg(x, true)": ("HLL_UNION_AGG(`x`, TRUE)", "hll_union_agg(`n`, TRUE)"),
}


@pytest.mark.parametrize("aggregate", MERGED_BY_ITSELF)
def test_aggregate_is_its_own_state(aggregate: str) -> None:
    how = planned(f"SELECT user, {aggregate} AS n {FROM}")
    partial, merge = MERGED_BY_ITSELF[aggregate]
    assert how.states == (State("n", partial, merge, "n"),)
    assert output_of(how, "n") == "`n`"
    assert how.hidden == ()


def test_average_keeps_sum_and_count() -> None:
    how = planned(f"SELECT user, avg(x) AS a {FROM}")
    assert how.states == (
        State("_a_sum", "SUM(`x`)", "sum(`_a_sum`)", None),
        State("_a_count", "COUNT(`x`)", "sum(`_a_count`)", None),
    )
    assert output_of(how, "a") == "TRY_DIVIDE(`_a_sum`, `_a_count`)"


def test_distinct_count_keeps_a_sketch_of_any_type() -> None:
    how = planned(f"SELECT user, approx_count_distinct(x) AS d {FROM}")
    assert how.states == (
        State(
            "_d_sketch",
            "HLL_SKETCH_AGG(CAST(`x` AS STRING))",
            "hll_union_agg(`_d_sketch`, false)",
            None,
        ),
    )
    assert output_of(how, "d") == "HLL_SKETCH_ESTIMATE(`_d_sketch`)"
    assert "APPROX_COUNT_DISTINCT" not in how.full_sql("rows")


@pytest.mark.parametrize(("error", "size"), [("0.05", 9), ("0.01", 14), ("0.9", 4), ("0.0001", 21)])
def test_sketch_is_as_large_as_its_error_asks(error: str, size: int) -> None:
    how = planned(f"SELECT approx_count_distinct(x, {error}) AS d {FROM}")
    assert how.states[0].partial == f"HLL_SKETCH_AGG(CAST(`x` AS STRING), {size})"


def test_value_by_time_travels_with_its_time() -> None:
    how = planned(f"SELECT user, max_by(v, t) FILTER (WHERE ok) AS last {FROM}")
    assert how.states == (
        State(
            "_last_by",
            "MAX(NAMED_STRUCT('ordering', `t`, 'value', `v`))"
            " FILTER(WHERE (`ok`) AND (`t` IS NOT NULL))",
            "max(`_last_by`)",
            None,
        ),
    )
    assert output_of(how, "last") == "`_last_by`.`value`"


def test_what_two_outputs_need_is_kept_once() -> None:
    how = planned(f"SELECT avg(x) AS a, sum(x) AS s, sum(x) / count(x) AS r, sum(x) AS t {FROM}")
    assert [each.name for each in how.states] == ["s", "t", "_a_count"]
    assert output_of(how, "a") == "TRY_DIVIDE(`s`, `_a_count`)"
    assert output_of(how, "r") == "`s` / `_a_count`"


def test_hidden_names_avoid_outputs_and_columns_in_any_case() -> None:
    how = planned(
        "SELECT avg(_A_SUM) AS a, max(x) AS _a_count FROM silver GROUP BY _key_user, user"
    )
    assert how.hidden == ("_key__key_user", "_key_user_2", "_a_sum_2", "_a_count_2")


def test_keys_are_outputs_or_hidden() -> None:
    how = planned("SELECT date(t) AS day, count(*) AS n FROM silver GROUP BY date(T), user")
    assert [(each.name, each.expression, each.visible) for each in how.keys] == [
        ("day", "DATE(`T`)", True),
        ("_key_user", "`user`", False),
    ]


def test_gold_table_has_outputs_in_order_then_what_is_hidden() -> None:
    how = planned("SELECT avg(x) AS a, upper(s.user) AS user FROM silver s GROUP BY s.user")
    assert how.outputs_sql("states") == (
        "SELECT `_table`, TRY_DIVIDE(`_a_sum`, `_a_count`) AS `a`, UPPER(`_key_user`) AS `user`,"
        " `_key_user`, `_a_sum`, `_a_count`\nFROM `states`"
    )


def test_rows_are_read_from_a_view_under_the_name_that_the_query_gives() -> None:
    how = planned(
        "SELECT item, count(*) AS n FROM silver AS s LATERAL VIEW explode(s.items) e AS item"
        " WHERE s.x > 1 OR ok GROUP BY item"
    )
    assert how.partial_sql("new rows", ()) == (
        "SELECT `item`, COUNT(*) AS `n`\nFROM `new rows` AS `s`\n"
        "LATERAL VIEW EXPLODE(`items`) e AS `item`\nWHERE `x` > 1 OR `ok`\nGROUP BY `item`"
    )


NOT_MERGEABLE = {
    f"SELECT count(DISTINCT x) AS n {FROM}": (
        "count(DISTINCT x) cannot be merged; approx_count_distinct can"
    ),
    f"SELECT sum(DISTINCT x) AS n {FROM}": "sum(DISTINCT x) cannot be merged",
    f"SELECT first(x) AS n {FROM}": (
        "first(x) depends on the order of rows; min_by(value, time) does not"
    ),
    f"SELECT last_value(x) IGNORE NULLS AS n {FROM}": (
        "last_value(x) IGNORE NULLS depends on the order of rows; max_by(value, time) does not"
    ),
    f"SELECT stddev(x) AS n {FROM}": "stddev(x) cannot be merged",
    f"SELECT round(percentile(x, 0.5)) AS n {FROM}": "percentile(x, 0.5) cannot be merged",
    f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS n {FROM}": (
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY x) cannot be merged"
    ),
    f"SELECT collect_list(x) AS n {FROM}": "collect_list(x) cannot be merged",
    f"SELECT max_by(x, t, 3) AS n {FROM}": "max_by(x, t, 3) cannot be merged",
    f"SELECT try_sum(x) AS n {FROM}": "try_sum(x) cannot be merged",
    f"SELECT my_own(x) AS n {FROM}": "my_own is unknown and may be an aggregate",
    f"SELECT max(x) AS n, current_date() AS day {FROM}": (
        "current_date() returns another value each time"
    ),
    "SELECT user, sum(x) OVER (PARTITION BY user) AS n FROM silver": "it has window functions",
    "SELECT DISTINCT user FROM silver": "it has DISTINCT",
    f"SELECT user, max(x) AS n {FROM} HAVING n > 1": "it has HAVING",
    f"SELECT user, max(x) AS n {FROM} ORDER BY n": "it has ORDER BY",
    f"SELECT user, max(x) AS n {FROM} LIMIT 3": "it has LIMIT",
    "SELECT user, max(x) AS n FROM silver GROUP BY ROLLUP (user)": ("it has several grouping sets"),
    "SELECT max(n) AS n FROM (SELECT count(*) AS n FROM silver GROUP BY user)": (
        "it has subqueries"
    ),
    "WITH a AS (SELECT x FROM silver) SELECT max(x) AS n FROM a": "it has subqueries",
    "SELECT max(a.x) AS n FROM silver a JOIN silver b ON a.t = b.t": "it joins tables",
    "SELECT user, x FROM silver": ("it has no aggregates, and so no groups to merge"),
}


@pytest.mark.parametrize("sql", NOT_MERGEABLE)
def test_what_cannot_be_merged_says_why(sql: str) -> None:
    assert incremental(parse_gold(sql)) == NotMergeable(NOT_MERGEABLE[sql])


def test_key_is_not_what_only_has_its_name() -> None:
    how = planned(
        "SELECT transform(xs, user -> user + 1) AS t, a.user AS other, max(x) AS m FROM silver"
        " GROUP BY user, xs, a"
    )
    assert output_of(how, "other") == "`_key_a`.`user`"
    assert output_of(how, "t") == "TRANSFORM(`_key_xs`, `user` -> `user` + 1)"


def test_hidden_name_of_a_key_is_one_that_delta_takes() -> None:
    how = planned("SELECT count(*) AS n FROM silver GROUP BY `my key`, concat(a, ' ')")
    assert how.hidden == ("_key_my_key", "_key_concat")
