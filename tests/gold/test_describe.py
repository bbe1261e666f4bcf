from __future__ import annotations

import pytest

from headgate.config import GoldQuery, GoldUnion
from headgate.gold.declared import describe, update_method

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
def test_description_of_a_query_has_its_update_method(sql: str) -> None:
    assert describe("gold_{route}", GoldQuery(sql=sql)) == f"gold_{{route}}: {LINES[sql]}"


def test_description_of_a_union_has_its_source_and_mode() -> None:
    union = GoldUnion(from_="gold_*", select="route, n", mode="append")
    assert describe("unified", union) == "unified: union of gold_* by append"


def test_queries_over_merged_tables_are_recomputed() -> None:
    query = GoldQuery(sql="SELECT user, count(*) AS n FROM merged GROUP BY user")
    assert update_method(query) == "incremental (1 state)"
    assert update_method(query, rows_change=True).startswith("recomputed for touched tables: ")
    union = GoldUnion.model_validate({"from": "merged", "select": "user"})
    assert update_method(union, rows_change=True) == "union of merged by upsert"
