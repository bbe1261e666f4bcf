"""Time to parse is proportional to the length of SQL, however it is nested."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from sqlglot.errors import SqlglotError

from headgate.config import InvalidPipeline, load_pipeline
from headgate.sql.gold_select import parse_gold
from headgate.sql.parse import parse_expression, parse_spark
from headgate.sql.query import parse_query, text_to_duckdb
from headgate.sql.rules import UnusableRule, parse_condition, parse_rule
from tests.rounds import rounds

DOUBLING = {
    "date": ("DATE(", "1", ")"),
    "timestamp": ("TIMESTAMP(", "1", ")"),
    "decimal": ("DECIMAL(", "1", ")"),
    "struct": ("STRUCT(", "1", ")"),
    "char": ("CHAR(", "1", ")"),
    "mixed": ("DATE(TIMESTAMP(", "1", "))"),
    "array": ("CAST(x AS " + "ARRAY<" * 5, "INT", ">" * 5 + ")"),
}
"""Shapes for which sqlglot alone takes time that doubles, or is cubic, with their depth."""


@pytest.mark.parametrize("shape", DOUBLING)
@pytest.mark.parametrize("is_closed", [True, False])
def test_shape_that_doubles_the_time_is_refused_at_its_place(shape: str, is_closed: bool) -> None:
    start, inner, end = DOUBLING[shape]
    depth = 40
    if shape == "array":
        start, end, depth = start.replace("ARRAY<" * 5, "ARRAY<" * 120), ">" * 120 + ")", 1
    value = start * depth + inner + (end * depth if is_closed else "")
    for parse, text in (
        (parse_query, f"SELECT a,\n {value} AS b FROM t"),
        (parse_gold, f"SELECT a,\n {value} AS b FROM t"),
        (parse_expression, f"a =\n {value}"),
        (parse_condition, f"a =\n {value}"),
    ):
        with pytest.raises(InvalidPipeline) as raised:
            parse(text)
        assert raised.value.inside is None or raised.value.inside[0] == 2
        if is_closed:
            assert (raised.value.code, raised.value.message) == (
                "bad-sql",
                "is too complex to be parsed",
            )
            assert raised.value.inside is not None
    if is_closed:
        with pytest.raises(UnusableRule, match="too complex"):
            parse_rule(f"a = {value}")


def test_ordinary_calls_of_types_are_parsed() -> None:
    values = ["DATE(TIMESTAMP(a))", "CAST(a AS ARRAY<STRUCT<b: DECIMAL(10, 2), c: MAP<INT, INT>>>)"]
    for value in (*values, ", ".join(values * 100)):
        parse_query(f"SELECT {value} FROM t")
        text_to_duckdb(f"SELECT {value} FROM t")


def test_long_sql_is_refused_at_the_first_word_too_many() -> None:
    with pytest.raises(InvalidPipeline, match=r"6,006 words and marks") as raised:
        parse_query(f"SELECT a\nFROM t\nWHERE a IN ({'1,' * 2_998}1)")
    assert raised.value.inside == (3, 5_005)
    parse_query(f"SELECT a FROM t WHERE a IN ({'1,' * 2_000}1)")


WORDS = """SELECT FROM t WHERE AS JOIN ( ( ( ) ) , . a b 1 'x' + - / = < > >> AND NOT IS NULL OVER(
    CASE WHEN THEN ELSE END CAST( TRY_CAST( AS INT ARRAY< STRUCT< MAP< a: ARRAY( DATE( TIMESTAMP(
    DECIMAL( VARCHAR( INTERVAL EXTRACT( SUBSTRING( TRIM( POSITION( EXISTS( IN( LIKE BETWEEN -> :: [
    ] { } any( first( window( `array<int>` LATERAL VIEW PIVOT( UNNEST( VALUES WITH UNION |> ? @ #
    """.split()  # noqa: SIM905


@rounds(small=150, whole=20_000)
def test_whatever_is_repeated_is_parsed_or_refused(cases: int) -> None:
    """A shape that takes exponential time would not return."""
    for case in range(cases):
        random = Random(case)
        unit = " ".join(random.choices(WORDS, k=random.randint(1, 4)))
        end = " ".join(random.choices(WORDS, k=random.randint(0, 2)))
        depth = random.choice([8, 40, 150])
        text = f"{unit} " * depth + "1 " + f"{end} " * depth
        for parse in (parse_query, parse_gold, parse_condition):
            whole = text if parse is parse_condition else f"SELECT {text} FROM t"
            with suppress(InvalidPipeline):
                parse(whole)
        with suppress(SqlglotError, InvalidPipeline, RecursionError):
            parse_spark(text)


PIPELINE = """\
name: games
source: {delta: {path: inbox}}
registry: schemas
envelope: confluent
lake: lake
"""


@pytest.mark.parametrize(
    "section",
    [
        "gold:\n  gold:\n    sql: |\n      SELECT max(x) AS m,\n      {} AS d FROM silver\n",
        "expect:\n  silver_*:\n    a: |\n      x > 0 AND\n      {} = x\n",
    ],
)
def test_check_names_the_line_in_the_pipeline_file(tmp_path: Path, section: str) -> None:
    file = tmp_path / "games.yaml"
    file.write_text(PIPELINE + section.format("DATE(" * 30 + "1" + ")" * 30))
    with pytest.raises(InvalidPipeline) as raised:
        load_pipeline(str(file))
    (finding,) = raised.value.findings
    assert (finding.code, finding.line) == ("bad-sql", 10)
    assert "too complex" in finding.message
