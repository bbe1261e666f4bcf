from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.config import (
    Expectation,
    Finding,
    GoldQuery,
    GoldUnion,
    InvalidPipeline,
    check_pipeline,
    load_pipeline,
)
from headgate.config.gold import names_may_collide
from tests.config.test_broken_change_files import GOOD as CHANGES
from tests.config.test_broken_files import GOOD as RECORDS

Write = Callable[[str], Path]

GOLD = """\
gold:
  gold_{route}_player_agg: |
    SELECT user_name, count(*) AS session_count, min(event_timestamp) AS first_seen
    FROM silver GROUP BY user_name
  totals:
    sql: SELECT route, count(*) AS number FROM silver GROUP BY route
  unified_gold:
    from: gold_*
    select: route, user_name, session_count
    where: session_count > 1
    mode: append
expect:
  silver_*:
    valid_user: {rule: "user_name IS NOT NULL", on_fail: quarantine}
    positive: score >= 0
"""
LINE = RECORDS.count("\n") + 1
"""The line on which the added text starts."""


def finding_in(write: Write, added: str, to: str = RECORDS) -> Finding:
    [finding] = check_pipeline(write(to + added))
    return finding


def test_file_declares_queries_unions_and_expectations(write: Write) -> None:
    pipeline = load_pipeline(write(RECORDS + GOLD))
    assert pipeline.gold == {
        "gold_{route}_player_agg": GoldQuery(
            sql="SELECT user_name, count(*) AS session_count, min(event_timestamp) AS first_seen\n"
            "FROM silver GROUP BY user_name\n"
        ),
        "totals": GoldQuery(sql="SELECT route, count(*) AS number FROM silver GROUP BY route"),
        "unified_gold": GoldUnion(
            from_="gold_*",
            select="route, user_name, session_count",
            where="session_count > 1",
            mode="append",
        ),
    }
    assert pipeline.expect == {
        "silver_*": {
            "valid_user": Expectation(rule="user_name IS NOT NULL", on_fail="quarantine"),
            "positive": Expectation(rule="score >= 0", on_fail="warn"),
        }
    }


def test_change_files_are_derived_from_merged_tables(write: Write) -> None:
    sql = "SELECT count(*) AS n FROM merged"
    pipeline = load_pipeline(
        write(f"{CHANGES}gold:\n  gold_{{route}}: {sql}\n  all: {{from: merged, select: id}}\n")
    )
    assert pipeline.lands_changes
    assert pipeline.gold["gold_{route}"] == GoldQuery(sql=sql)


def test_expectations_are_about_any_landed_table_of_change_files(write: Write) -> None:
    expect = "expect:\n  log_shop_*: {a: x > 0}\n  shop_orders: {a: x > 0}\n"
    assert check_pipeline(write(CHANGES + expect)) == []


def test_union_takes_tables_by_pattern() -> None:
    union = GoldUnion(from_="gold_*_agg", select="x")
    assert union.takes("gold_chess_agg")
    assert not union.takes("gold_chess_daily")


def test_sql_parser_is_imported_only_when_needed() -> None:
    program = "import sys, headgate.config; sys.exit('sqlglot' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


# The SQL, the expected line and column inside of it, and a part of the message or hint.
BROKEN_SQL = {
    "typing error": ("SELECT x\nFORM silver\n", 2, 6, "did you mean `FROM`?"),
    "something missing": ("SELECT x FROM silver WHERE\nGROUP BY x", 2, 1, "`GROUP BY`"),
    "group by nothing": ("SELECT x FROM silver GROUP BY", None, None, "by nothing"),
    "open bracket": ("SELECT max(x AS y\nFROM silver", 2, 1, "`)`"),
    "open quote": ("SELECT x,\n  'y FROM silver", 2, 3, "never closed"),
    "two statements": ("SELECT x FROM silver;\n  SELECT y FROM silver", 1, 21, "more than one"),
    "no query": ("DELETE FROM silver", 1, 1, "start with `SELECT`"),
    "mistyped SELECT": ("SELEC x FROM silver", 1, 1, "did you mean `SELECT`?"),
    "several queries": ("SELECT x FROM silver UNION SELECT y FROM silver", None, None, "single"),
    "another table": ("SELECT x\nFROM other", 2, 6, "`FROM silver` means"),
    "mistyped table": ("SELECT x FROM sliver", 1, 15, "did you mean `silver`?"),
    "table of a catalog": ("SELECT x FROM lake.silver", 1, 15, "`lake.silver`"),
    "table by path": ("SELECT x FROM delta.`/x`", 1, 15, "not `silver`"),
    "table in a query inside": (
        "SELECT x FROM silver\nWHERE x IN (SELECT y FROM other)", 2, 27, "`other`",
    ),
    "function as a table": ("SELECT id FROM range(10)", 1, 16, "not `silver`"),
    "no table": ("SELECT 1 AS x", None, None, "does not read `silver`"),
    "old version": ("SELECT x FROM silver VERSION AS OF 1", 1, 15, "only some"),
    "a sample": ("SELECT x FROM silver TABLESAMPLE (10 ROWS)", 1, 15, "only some"),
    "endless sum": (f"SELECT {'x + ' * 3000}x AS y FROM silver", None, None, "too deep"),
    "all columns": ("SELECT * FROM silver", 1, 8, "list the columns"),
    "column without a name": ("SELECT user,\n  count(*) FROM silver GROUP BY user", 2, 3, "AS …"),
    "column twice": ("SELECT x, y AS X FROM silver", 1, 11, "two columns"),
    "name that Delta does not allow": ("SELECT x AS `a b` FROM silver", 1, 8, "not allow spaces"),
    "name of our own": ("SELECT x AS _table FROM silver", 1, 8, "Headgate uses"),
    "neither grouped nor aggregated": (
        "SELECT user,\n upper(x) AS x, max(y) AS y FROM silver GROUP BY user", 2, 8, "max(x)",
    ),
    "ambiguous group": (
        "SELECT upper(user) AS user, count(*) AS n\nFROM silver GROUP BY user", 2, 22,
        "silver.user",
    ),
    "output as a column": ("SELECT x + 1 AS y, y * 2 AS z FROM silver", 1, 20, "repeat"),
    "group of no column": ("SELECT x FROM silver GROUP BY 2", 1, 31, "there are 1 columns"),
    "group by an aggregate": ("SELECT max(x) AS m FROM silver GROUP BY m", 1, 8, "aggregate"),
    "aggregate in WHERE": (
        "SELECT user FROM silver WHERE max(x) > 1 GROUP BY user", 1, 31, "`HAVING`",
    ),
    "aggregate of an aggregate": ("SELECT sum(max(x)) AS s FROM silver", 1, 8, "of an aggregate"),
    "parameter": ("SELECT x FROM silver WHERE y = :day", None, None, "parameter"),
    "placeholder": ("SELECT {route} AS x FROM silver", 1, 9, "parameter"),
    "code of Java": ("SELECT reflect('a', 'b') AS x FROM silver", 1, 8, "Java"),
    "program": ("SELECT TRANSFORM (x) USING 'cat' FROM silver", 1, 19, "program"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN_SQL.values(), ids=BROKEN_SQL)
def test_broken_sql_is_found_at_its_line(
    case: tuple[str, int | None, int | None, str], write: Write
) -> None:
    sql, line, column, word = case
    block = "".join(f"    {each}\n" for each in sql.splitlines())
    finding = finding_in(write, f"gold:\n  gold_{{route}}: |\n{block}")
    assert finding.code == "bad-sql"
    assert word in f"{finding.message} {finding.hint}"
    key_line = LINE + 1
    expected = (key_line + line, column and column + 4) if line else (key_line, 17)
    assert (finding.line, finding.column) == expected


def test_broken_sql_on_the_line_of_its_key_is_found_at_its_column(write: Write) -> None:
    for quote in ("", "'", '"'):
        text = f"gold:\n  gold: {quote}SELECT x FROM other{quote}\n"
        finding = finding_in(write, text)
        assert (finding.line, finding.column) == (LINE + 1, 9 + len(quote) + 14)


def test_broken_sql_of_folded_lines_is_found_at_its_key(write: Write) -> None:
    finding = finding_in(write, "gold:\n  gold: >\n    SELECT x\n    FROM other\n")
    assert finding.line == LINE + 1


BROKEN = {
    "name with a capital letter": (
        "gold: {Gold: SELECT x FROM silver}", "bad-value", 0, "lowercase letters",
    ),
    "unknown placeholder": (
        "gold:\n  gold_{day}: SELECT x FROM silver", "bad-template", 1, "`{route}`",
    ),
    "name of the ledger": ("gold:\n  ledger: SELECT x FROM silver", "bad-template", 1, "`ledger`"),
    "names of silver tables": (
        "gold:\n  silver_{route}_agg: SELECT x FROM silver", "bad-template", 1, "`silver`",
    ),
    "names of another declaration": (
        "gold:\n  gold_{route}: SELECT x FROM silver\n  gold_{route}_b: SELECT x FROM silver",
        "bad-template", 2, "`gold_{route}`",
    ),
    "name that another may give": (
        "gold:\n  gold_{route}: SELECT x FROM silver\n  gold_all: SELECT x FROM silver",
        "bad-template", 2, "prefix or suffix",
    ),
    "number as a name": ("gold: {1: SELECT x FROM silver}", "wrong-type", 0, "in quotes"),
    "number as SQL": ("gold: {gold: 1}", "wrong-type", 0, "needs SQL, not `1`"),
    "list": ("gold: [a]", "wrong-type", 0, "keys and values"),
    "mistyped key": ("gold:\n  gold: {form: silver, select: x}", "unknown-key", 1, "`from`?"),
    "Python's name of a key": (
        "gold:\n  gold: {from_: silver, select: x}", "unknown-key", 1, "`from`?",
    ),
    "union without columns": ("gold: {gold: {from: silver}}", "missing-key", 0, "`select`"),
    "union of nothing": (
        "gold:\n  gold:\n    from: silvr\n    select: x", "bad-value", 2, "`silver`?",
    ),
    "union of itself": (
        "gold:\n  gold:\n    from: gold\n    select: x", "bad-value", 2, "matches no tables",
    ),
    "union of change files": (
        "gold:\n  gold:\n    from: merged\n    select: x", "bad-value", 2, "use one of `silver`",
    ),
    "mistyped mode": (
        "gold:\n  gold:\n    from: silver\n    select: x\n    mode: upset", "bad-choice", 4,
        "`upsert`?",
    ),
    "union's columns that are no SQL": (
        "gold:\n  gold:\n    from: silver\n    select: route, max(", "bad-sql", 3, "SQL",
    ),
    "union's columns with a table": (
        "gold:\n  gold:\n    from: silver\n    select: x FROM y", "bad-sql", 3, "has FROM",
    ),
    "union with an aggregate": (
        "gold:\n  gold:\n    from: silver\n    select: max(x) AS x", "bad-sql", 3, "aggregate",
    ),
    "union's rows that are no condition": (
        "gold:\n  gold:\n    from: silver\n    select: x\n    where: x + 1", "bad-sql", 4,
        "not a condition",
    ),
    "expectation that is no SQL": (
        "expect:\n  silver_*:\n    a: {rule: x >}", "bad-sql", 2, "cannot be read",
    ),
    "expectation with an aggregate": (
        "expect:\n  silver_*:\n    a: count(*) > 1", "bad-sql", 2, "aggregate",
    ),
    "expectation with a query": (
        "expect:\n  silver_*:\n    a: x > (SELECT 1)", "bad-sql", 2, "a subquery",
    ),
    "expectation that is a query": (
        "expect:\n  silver_*:\n    a: SELECT x FROM silver", "bad-sql", 2, "is a query",
    ),
    "expectation with a window": (
        "expect:\n  silver_*:\n    a: sum(x) OVER () > 1", "bad-sql", 2, "window",
    ),
    "expectation of a number": ("expect:\n  silver_*:\n    a: x + 1", "bad-sql", 2, "compare it"),
    "expectation of a text": (
        "expect:\n  silver_*:\n    a: upper(x)", "bad-sql", 2, "not a condition",
    ),
    "expectation about no column": ("expect:\n  silver_*:\n    a: 1 > 0", "bad-sql", 2, "column"),
    "expectation that depends on the time": (
        "expect:\n  silver_*:\n    a: x < current_timestamp()", "bad-sql", 2, "same result",
    ),
    "expectation with a function that is unknown": (
        "expect:\n  silver_*:\n    a: soundex(x) = 'X'", "bad-sql", 2, "`SOUNDEX(x)` is not sup",
    ),
    "expectation with a function that is unknown in a later line": (
        "expect:\n  silver_*:\n    a: |\n      x > 0 AND\n      own(x) = 1",
        "bad-sql", 4, "`OWN(x)`",
    ),
    "expectation with a pattern from a column": (
        "expect:\n  silver_*:\n    a: x RLIKE y", "bad-sql", 2, "`y` must be a text",
    ),
    "expectation with a name": ("expect:\n  silver_*:\n    a: x > 0 y", "bad-sql", 2, "`y`"),
    "expectation's name": ("expect:\n  silver_*:\n    no-dash: x > 0", "bad-value", 2, "letters"),
    "expectation's key": (
        "expect:\n  silver_*:\n    a:\n      rul: x > 0", "unknown-key", 3, "`rule`?",
    ),
    "expectation's outcome": (
        "expect:\n  silver_*:\n    a:\n      rule: x > 0\n      on_fail: quarantaine",
        "bad-choice", 4, "`quarantine`?",
    ),
    "expectation of no table": (
        "expect:\n  silvr_*: {a: x > 0}", "bad-value", 1, "did you mean `silver_*`?",
    ),
    "expectations as a list": ("expect: [a]", "wrong-type", 0, "keys and values"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_broken_declaration_is_found_at_its_line(
    case: tuple[str, str, int, str], write: Write
) -> None:
    added, code, line, word = case
    finding = finding_in(write, f"{added}\n")
    assert (finding.code, finding.line) == (code, LINE + line)
    assert word in f"{finding.message} {finding.hint}"


def test_all_broken_declarations_are_found_at_once(write: Write) -> None:
    added = (
        "gold:\n  a: SELECT FROM\n  b: {from: silver, select: '*'}\n"
        "expect:\n  silver_*: {a: 1, b: x +}\n"
    )
    findings = check_pipeline(write(RECORDS + added))
    assert [each.line for each in findings] == [LINE + 1, LINE + 2, LINE + 4, LINE + 4]


@pytest.mark.parametrize(
    ("added", "code", "word"),
    [
        ("gold: {gold: SELECT x FROM silver}\n", "bad-sql", "`FROM merged` means"),
        ("gold: {'log_{route}_x': SELECT x FROM merged}\n", "bad-template", "`change_log`"),
        ("merged: null\ngold: {gold: SELECT x FROM merged}\n", "bad-value", "without `merged`"),
    ],
)
def test_broken_gold_of_change_files(added: str, code: str, word: str, write: Write) -> None:
    finding = finding_in(write, added, to=CHANGES)
    assert finding.code == code
    assert word in f"{finding.message} {finding.hint}"


def test_declaration_built_in_python_has_no_position() -> None:
    with pytest.raises(InvalidPipeline) as raised:
        GoldQuery(sql="SELECT x\nFORM silver")
    assert raised.value.where is None
    assert [each.line for each in raised.value.findings] == [None]


def test_unsupported_function_in_a_rule_is_found_at_its_position(write: Write) -> None:
    rule = "x > 0\n        AND levenshtein(y, 'z') < 3"
    finding = finding_in(write, f"expect:\n  silver_*:\n    a: |\n        {rule}\n")
    assert finding.message.endswith(
        "cannot be checked: the function of `LEVENSHTEIN(y, 'z')` is not supported in a rule"
    )
    assert finding.hint is not None
    assert (finding.line, finding.column) == (LINE + 4, 13)


def test_position_inside_a_text_is_pickled_with_the_error() -> None:
    error = InvalidPipeline("bad-sql", "is wrong", inside=(2, 3))
    assert pickle.loads(pickle.dumps(error)).inside == (2, 3)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("gold", "gold", True),
        ("gold", "gold_", False),
        ("gold_{route}", "gold_all", True),
        ("gold_{route}_a", "gold_{route}_b", False),
        ("gold_{route}", "gold_{route}_b", True),
        ("{route}_a", "gold_*", True),
        ("gold_chess_*", "gold_{route}_agg", True),
        ("silver_*", "gold_{route}", False),
        ("{database}_{table}", "gold_{route}", True),
    ],
)
def test_names_templates_and_patterns_may_collide(one: str, other: str, expected: bool) -> None:
    assert names_may_collide(one, other) is expected
    assert names_may_collide(other, one) is expected
