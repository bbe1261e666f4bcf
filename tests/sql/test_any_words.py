from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import InvalidPipeline
from headgate.sql.gold_select import parse_gold
from headgate.sql.incremental import incremental
from headgate.sql.rules import parse_condition
from headgate.sql.select import analyze_columns, analyze_select

WORDS = """SELECT FROM silver GROUP BY WHERE HAVING ORDER LIMIT AS WITH JOIN ON LATERAL VIEW explode
    max( count( DISTINCT * ( ) , ; . x y a.b `z` 'text' 1 2.5 + - / = > AND OR NOT IS NULL OVER (
    PARTITION FILTER (WHERE ) ALL ROLLUP( IN ( CASE WHEN THEN END x -> : ? { } [ ] @ -- /* UNION
    any( first( my( current_date rand() INTERVAL CAST( VALUES TABLE INTO EXISTS(""".split()  # noqa: SIM905


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(WORDS), max_size=12), st.booleans())
def test_any_words_are_refused_and_never_a_crash(words: list[str], as_select: bool) -> None:
    text = " ".join(["SELECT", *words, "FROM silver"] if as_select else words)
    for read in (analyze_select, parse_condition, analyze_columns):
        with suppress(InvalidPipeline):
            read(text)
    with suppress(InvalidPipeline):
        select = parse_gold(text)
        select.over("v")
        select.by_table("v")
        incremental(select)
