from __future__ import annotations

import duckdb

from headgate.query.rule import rule
from tests.query.in_duckdb import for_duckdb


def test_rule_knows_the_columns_it_is_about() -> None:
    found = rule("User.name IS NOT NULL AND exists(items, i -> i > low) AND user.id > 0")
    assert found.columns == {"User", "items", "low"}


def test_row_passes_only_if_the_rule_is_true() -> None:
    asked = for_duckdb(f"SELECT x, {rule('x > 0 OR x = -9').passes} FROM `rows` ORDER BY x")
    connection = duckdb.connect()
    connection.execute('CREATE TABLE "rows" AS FROM (VALUES (1), (-1), (-9), (NULL)) AS t(x)')
    assert dict(connection.execute(asked).fetchall()) == {1: True, -1: False, -9: True, None: False}
