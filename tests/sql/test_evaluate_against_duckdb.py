"""Random rules over random rows, with DuckDB as the judge: nulls and mixed types included."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.sql.evaluate import Condition, evaluate

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64()),
        pa.field("b", pa.int32()),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("f", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("u", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
    ]
)

_COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

small = st.integers(-4, 7)
texts = st.text("ab1 %_", max_size=3)
row = st.fixed_dictionaries(
    {
        "a": st.none() | small,
        "b": st.none() | small,
        "d": st.none() | st.decimals(-5, 5, places=2, allow_nan=False),
        "f": st.none() | st.sampled_from([0.0, -0.0, 0.1, 1.0, -2.5, float("nan")]),
        "s": st.none() | texts,
        "u": st.none() | texts,
        "day": st.none() | st.dates(date(2024, 1, 1), date(2026, 12, 31)),
        "flag": st.none() | st.booleans(),
    }
)
batches = st.lists(row, min_size=1, max_size=8).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))

whole = st.sampled_from(["a", "b", "length(s)", "year(day)", "CAST(u AS int)"]) | small.map(str)
exact = whole | st.sampled_from(
    ["d", "round(d)", "round(d, 1)", "floor(d)", "ceil(d)", "0.5", "-1.25"]
)
numbers = st.recursive(
    exact | st.sampled_from(["f", "1e0", "-2.5D"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda one: f"({' '.join(one)})"),
        st.tuples(inner, inner, st.sampled_from(["coalesce", "nullif"])).map(
            lambda one: f"{one[2]}({one[0]}, {one[1]})"
        ),
        inner.map(lambda one: f"abs({one})"),
        inner.map(lambda one: f"(- {one})"),
        st.tuples(inner, inner).map(lambda one: f"CASE WHEN flag THEN {one[0]} ELSE {one[1]} END"),
        st.tuples(whole, st.sampled_from("/%"), whole).map(lambda one: f"({' '.join(one)})"),
    ),
    max_leaves=4,
)
strings = st.recursive(
    st.sampled_from(["s", "u"]) | st.text("ab1", max_size=2).map(lambda text: f"'{text}'"),
    lambda inner: st.one_of(
        st.sampled_from(["lower", "upper", "trim"]).flatmap(
            lambda name: inner.map(lambda one: f"{name}({one})")
        ),
        st.tuples(inner, inner).map(lambda one: f"concat({one[0]}, {one[1]})"),
        st.tuples(inner, st.integers(1, 3), st.integers(0, 3)).map(
            lambda one: f"substring({one[0]}, {one[1]}, {one[2]})"
        ),
        st.tuples(inner, inner).map(lambda one: f"coalesce({one[0]}, {one[1]})"),
    ),
    max_leaves=3,
)
days = st.sampled_from(["day", "DATE '2025-06-01'", "NULL"])
comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
pairs = st.sampled_from([numbers, strings, days]).flatmap(lambda kind: st.tuples(kind, kind))
simple = st.one_of(
    st.just("flag"),
    st.tuples(pairs, comparisons).map(lambda one: f"({one[0][0]} {one[1]} {one[0][1]})"),
    st.tuples(numbers | strings, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(
        lambda one: f"({' '.join(one)})"
    ),
    st.tuples(numbers, exact, exact).map(lambda one: f"({one[0]} BETWEEN {one[1]} AND {one[2]})"),
    st.tuples(exact, st.lists(small.map(str) | st.just("NULL") | st.just("0.5"), min_size=1)).map(
        lambda one: f"({one[0]} IN ({', '.join(one[1])}))"
    ),
    st.tuples(strings, st.text("ab1%_", max_size=3)).map(lambda one: f"({one[0]} LIKE '{one[1]}')"),
    st.tuples(strings, st.sampled_from(["^a", "b$", "[0-9]+", "a.b"])).map(
        lambda one: f"({one[0]} RLIKE '{one[1]}')"
    ),
)
rules = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda one: f"({' '.join(one)})"
        ),
        inner.map(lambda one: f"(NOT {one})"),
        inner.map(lambda one: f"({one} IS TRUE)"),
        st.tuples(inner, inner, inner).map(
            lambda one: f"CASE WHEN {one[0]} THEN {one[1]} ELSE {one[2]} END"
        ),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def judge() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    # Spark has no result where the divisor is zero.
    connection.execute("SET ieee_floating_point_ops = false")
    return connection


def judged(judge: duckdb.DuckDBPyConnection, rule: str, rows: pa.Table) -> list[bool | None]:
    return [answer for (answer,) in judged_together(judge, [rule], rows)]


def judged_together(
    judge: duckdb.DuckDBPyConnection, several: list[str], rows: pa.Table
) -> list[tuple[bool | None, ...]]:
    """For each row what each rule says of it."""
    outputs = [sqlglot.transpile(rule, read="spark", write="duckdb")[0] for rule in several]
    judge.register("rows", rows)
    columns = ", ".join(f"CAST({sql} AS BOOLEAN)" for sql in outputs)
    return judge.execute(f"SELECT {columns} FROM rows").fetchall()


def compared(one: st.SearchStrategy[str], other: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(one, comparisons, other).map(" ".join)


doubles = st.sampled_from(
    ["f", "f", "d", "a", "0.1", "1e0", "(f + f)", "(f * a)", "abs(f)", "(- f)"]
)
calls = st.sampled_from(
    ["nullif(a, b)", "nullif(f, d)", "coalesce(a, d)", "a % b", "a / b", "b % 3"]
)
FAMILIES = {
    "doubles": compared(doubles, doubles),
    "calls": compared(calls, exact),
    "numbers": compared(numbers, numbers),
    "texts": compared(strings, strings),
    "tests": simple,
    "logic": rules,
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=60)
@given(choose=st.data(), rows=batches)
def test_rules_say_what_duckdb_says(
    judge: duckdb.DuckDBPyConnection, family: str, choose: st.DataObject, rows: pa.Table
) -> None:
    rule = choose.draw(FAMILIES[family], label="rule")
    (batch,) = rows.to_batches()
    assert evaluate((Condition.parse(rule),), batch)[0].to_pylist() == judged(judge, rule, rows)


@settings(deadline=None, max_examples=8)
@given(several=st.lists(st.one_of(*FAMILIES.values()), min_size=30, max_size=50), rows=batches)
def test_many_rules_in_one_pass_say_what_duckdb_says(
    judge: duckdb.DuckDBPyConnection, several: list[str], rows: pa.Table
) -> None:
    (batch,) = rows.to_batches()
    found = evaluate(tuple(map(Condition.parse, several)), batch)
    expected = zip(*judged_together(judge, several, rows), strict=True)
    for rule, answers, right in zip(several, found, expected, strict=True):
        assert answers.to_pylist() == list(right), rule


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(st.none() | st.text("0123456789.eE+-\t ", max_size=8), min_size=1))
def test_texts_are_cast_to_numbers_as_documented(texts: list[str | None]) -> None:
    rows = pa.record_batch(
        {
            "s": pa.array(texts, pa.string()),
            "whole": pa.array([_cast(r"[+-]?\d+", int, one) for one in texts], pa.int64()),
            "double": pa.array([_cast(_NUMBER, float, one) for one in texts], pa.float64()),
            "exact": pa.array(
                [_cast(_NUMBER, _hundredths, one) for one in texts], pa.decimal128(20, 2)
            ),
        }
    )
    for rule in (
        "CAST(s AS bigint) <=> whole",
        "CAST(s AS double) <=> double",
        "CAST(s AS decimal(20, 2)) <=> exact",
    ):
        (found,) = evaluate((Condition.parse(rule),), rows)
        assert found.to_pylist() == [True] * len(texts), rule


_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"


def _cast(pattern: str, read: Callable[[str], Any], text: str | None) -> Any:
    trimmed = None if text is None else text.strip()
    return read(trimmed) if trimmed and re.fullmatch(pattern, trimmed) else None


def _hundredths(text: str) -> Decimal | None:
    number = Decimal(text)
    if number.adjusted() > 17:
        return None
    return number.quantize(Decimal("0.01"), ROUND_HALF_UP)


@settings(deadline=None, max_examples=100)
@given(
    numbers=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.decimals(-(10**27), 10**27, places=10, allow_nan=False),
        ),
        min_size=1,
    ),
    sign=comparisons,
)
def test_whole_numbers_and_decimals_are_compared_exactly(
    numbers: list[tuple[int | None, Decimal | None]], sign: str
) -> None:
    rows = pa.record_batch(
        {
            "x": pa.array([one for one, _ in numbers], pa.int64()),
            "y": pa.array([other for _, other in numbers], pa.decimal128(38, 10)),
        }
    )

    def expected(one: int | None, other: Decimal | None) -> bool | None:
        if sign == "<=>":
            return one == other
        return None if one is None or other is None else bool(_COMPARE[sign](one, other))

    answers = [expected(one, other) for one, other in numbers]
    assert evaluate((Condition.parse(f"x {sign} y"),), rows)[0].to_pylist() == answers
