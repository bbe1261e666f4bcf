from __future__ import annotations

import pytest

from headgate.config import GoldQuery, GoldUnion
from headgate.gold.declared import describe, how_it_follows

LINES = {
    "SELECT user, count(*) AS n, avg(x) AS a FROM silver GROUP BY user": "incremental (3 states)",
    "SELECT count(*) AS n FROM silver": "incremental (1 state)",
    "SELECT count(DISTINCT x) AS n FROM silver": (
        "recomputed for touched tables: count(DISTINCT x) cannot be merged;"
        " approx_count_distinct can"
    ),
    "SELECT user, x FROM silver": "row by row",
}


@pytest.mark.parametrize("sql", LINES)
def test_line_says_how_a_table_is_kept_up_to_date(sql: str) -> None:
    assert describe("gold_{route}", GoldQuery(sql=sql)) == f"gold_{{route}}: {LINES[sql]}"


def test_line_of_a_union() -> None:
    union = GoldUnion(from_="gold_*", select="route, n", mode="append")
    assert describe("unified", union) == "unified: union of gold_* by append"


def test_what_follows_from_merged_tables_is_recomputed() -> None:
    query = GoldQuery(sql="SELECT user, count(*) AS n FROM merged GROUP BY user")
    assert how_it_follows(query) == "incremental (1 state)"
    assert how_it_follows(query, rows_change=True).startswith("recomputed for touched tables: ")
    union = GoldUnion.model_validate({"from": "merged", "select": "user"})
    assert how_it_follows(union, rows_change=True) == "union of merged by upsert"
