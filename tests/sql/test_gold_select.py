from __future__ import annotations

import pytest

from headgate.config import InvalidPipeline
from headgate.sql.gold_select import GroupKey, OutputColumn, parse_gold
from headgate.sql.parse import parse_expression, sql_of


def test_select_is_told_by_its_parts() -> None:
    select = parse_gold(
        "SELECT upper(s.User_Name) AS who, s.a.b, count(*) AS n FROM silver s"
        " WHERE route <> 'x' GROUP BY upper(user_name), a.b, day"
    )
    assert select.outputs == (
        OutputColumn("who", "UPPER(`User_Name`)"),
        OutputColumn("b", "`a`.`b`"),
        OutputColumn("n", "COUNT(*)"),
    )
    assert select.keys == (
        GroupKey("UPPER(`user_name`)", "who"),
        GroupKey("`a`.`b`", "b"),
        GroupKey("`day`", None),
    )
    assert select.where == "`route` <> 'x'"
    assert select.columns == {"User_Name", "a", "day", "route"}
    assert select.has_route


def test_columns_are_neither_outputs_nor_variables_nor_made_by_a_lateral_view() -> None:
    select = parse_gold(
        "SELECT transform(xs, x -> x + y) AS z, item FROM silver"
        " LATERAL VIEW explode(items) AS item ORDER BY z, w"
    )
    assert select.columns == {"xs", "y", "items", "w"}
    assert not select.has_route


def test_select_over_one_table_is_the_declared_text() -> None:
    select = parse_gold("SELECT silver.x, -- why\n parse_json(y) AS y\nFROM silver;\n")
    assert select.over("my`view") == (
        "SELECT silver.x, -- why\n parse_json(y) AS y\nFROM `my``view` AS silver"
    )


def test_every_use_of_the_tables_is_replaced() -> None:
    select = parse_gold("WITH a AS (SELECT x FROM silver) SELECT a.x FROM a JOIN SILVER s ON true")
    assert select.over("v") == (
        "WITH a AS (SELECT x FROM `v` AS silver) SELECT a.x FROM a JOIN `v` s ON true"
    )


BY_TABLE = {
    "SELECT user, count(DISTINCT x) AS n FROM silver GROUP BY 1 HAVING n > 1 ORDER BY n": (
        "SELECT `_table`, `user`, COUNT(DISTINCT `x`) AS `n` FROM `v` AS `silver`"
        " GROUP BY `_table`, `user` HAVING `n` > 1"
    ),
    "SELECT stddev(x) AS n FROM silver AS s": (
        "SELECT `_table`, STDDEV(`x`) AS `n` FROM `v` AS `s` GROUP BY `_table`"
    ),
    "SELECT x, rank() OVER (PARTITION BY y ORDER BY z) AS r FROM silver": (
        "SELECT `_table`, `x`, RANK() OVER (PARTITION BY `_table`, `y` ORDER BY `z`) AS `r`"
        " FROM `v` AS `silver`"
    ),
    "SELECT x, rank() OVER w AS r FROM silver WINDOW w AS (ORDER BY z)": (
        "SELECT `_table`, `x`, RANK() OVER `w` AS `r` FROM `v` AS `silver`"
        " WINDOW `w` AS (PARTITION BY `_table` ORDER BY `z`)"
    ),
    "SELECT DISTINCT x FROM silver": "SELECT DISTINCT `_table`, `x` FROM `v` AS `silver`",
    "SELECT x FROM silver LIMIT 3": None,
    "SELECT x FROM silver WHERE x > (SELECT avg(x) FROM silver)": None,
    "SELECT x FROM silver GROUP BY CUBE (x)": None,
}


@pytest.mark.parametrize("sql", BY_TABLE)
def test_many_tables_are_computed_at_once_where_that_is_possible(sql: str) -> None:
    assert parse_gold(sql).by_table("v") == BY_TABLE[sql]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT x, upper(y) AS y FROM silver WHERE x > 1", True),
        ("SELECT explode(xs) AS x FROM silver", True),
        ("SELECT DISTINCT x FROM silver", False),
        ("SELECT x FROM silver LIMIT 1", False),
        ("SELECT max(x) AS x FROM silver", False),
        ("SELECT sum(x) OVER () AS x FROM silver", False),
    ],
)
def test_row_by_row_is_what_new_rows_only_add_to(sql: str, expected: bool) -> None:
    assert parse_gold(sql).row_by_row is expected


def test_comments_and_spaces_make_no_other_declaration() -> None:
    one, other = "SELECT x -- the x\nFROM silver", "select  x from silver"
    assert parse_gold(one).canonical == parse_gold(other).canonical
    assert parse_gold(one).canonical != parse_gold("SELECT y FROM silver").canonical


def test_what_is_no_select_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="cannot be read"):
        parse_gold("SELECT x FROM silver GROUP x y")


@pytest.mark.parametrize(
    "expression",
    [
        "array_size(a)",
        "to_char(a, '9')",
        "parse_json(a)",
        "truncate(a, 1)",
        "named_struct('a', a)",
        "struct(a AS b)",
        "from_utc_timestamp(a, 'x')",
        "date_add(a, 1)",
        "approx_percentile(a, 0.5)",
        "nvl(a, b)",
        "log(a)",
        "a[0]",
        "'it\\'s\\n'",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)",
        "CASE WHEN a THEN 1 ELSE 2 END",
    ],
)
def test_functions_are_given_to_spark_as_they_are_written(expression: str) -> None:
    written = sql_of(parse_expression(expression))
    assert _letters(written) == _letters(expression)


def _letters(sql: str) -> str:
    return sql.replace("`", "").replace(" ", "").lower()


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT s.user AS u, max(x) AS x FROM silver s GROUP BY s.user", {"user", "x"}),
        (
            "WITH best AS (SELECT user AS u, max(x) AS m FROM silver GROUP BY user)"
            " SELECT u, M, typo FROM best",
            {"user", "x", "typo"},
        ),
        (
            "SELECT inside.u AS u FROM (SELECT user AS u FROM silver) AS inside(u)",
            {"user"},
        ),
    ],
)
def test_what_a_query_names_itself_is_surely_no_column(sql: str, columns: set[str]) -> None:
    assert parse_gold(sql).surely_columns == columns


def test_columns_of_joins_and_of_queries_inside() -> None:
    select = parse_gold(
        "SELECT a.score AS s, best.top FROM silver a "
        "JOIN (SELECT b.user, max(b.score) AS top FROM silver b GROUP BY b.user) best "
        "ON a.user = best.user"
    )
    assert select.columns == {"score", "user", "top"}
    assert select.surely_columns == {"score", "user"}
