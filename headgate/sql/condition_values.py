"""The value of each part of a rule, for all rows of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headgate.sql.condition_arithmetic import absolute, calculate, negative, round_to, whole
from headgate.sql.condition_cast import cast
from headgate.sql.condition_compare import alike, chosen, compare, is_among, truth
from headgate.sql.condition_nested import column, field, item, size
from headgate.sql.condition_text import concat, length, like, matches, of_text, substring, trim
from headgate.sql.condition_types import NOTHING, Value, is_date, is_null, is_text, is_timestamp
from headgate.sql.rules import decimal_digits, whole_number

Evaluate = Callable[[exp.Expr, pa.RecordBatch], Value]

D = exp.DType
_MOMENT = pa.timestamp("us", "UTC")
_CASTS = {
    D.TINYINT: pa.int8(),
    D.SMALLINT: pa.int16(),
    D.INT: pa.int32(),
    D.BIGINT: pa.int64(),
    D.FLOAT: pa.float32(),
    D.DOUBLE: pa.float64(),
    D.TEXT: pa.string(),
    D.DATE: pa.date32(),
    D.BOOLEAN: pa.bool_(),
    D.TIMESTAMP: _MOMENT,
    D.TIMESTAMPTZ: _MOMENT,
    D.TIMESTAMPLTZ: _MOMENT,
    D.TIMESTAMPNTZ: pa.timestamp("us"),
}


def value_of(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    """What has no meaning for the types at hand is unknown, and never an error."""
    try:
        return _VALUES[node.key](node, rows)
    except pa.ArrowException:
        return NOTHING


def _column(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    assert isinstance(node, exp.Column)
    name, *fields = (part.name for part in node.parts)
    found = column(rows, name)
    for each in fields:
        found = field(found, each)
    return found


def _dot(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    return field(value_of(node.this, rows), node.expression.name)


def _bracket(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    (place,) = node.expressions
    number = whole_number(place)
    return item(value_of(node.this, rows), str(place.name) if number is None else number)


def _literal(node: exp.Expr, _: pa.RecordBatch) -> Value:
    return pa.scalar(node.name, pa.string()) if node.is_string else _number(node.name)


@lru_cache(maxsize=1024)
def _number(text: str) -> pa.Scalar:
    if "e" in text.lower():
        return pa.scalar(float(text))
    number = Decimal(text)
    is_long = text.isdecimal() and number < 1 << 63
    return pa.scalar(int(number)) if is_long else pa.scalar(number)


def _is(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    value = value_of(node.this, rows)
    if isinstance(node.expression, exp.Null):
        return pc.is_null(value)
    return pc.fill_null(pc.equal(truth(value), bool(node.expression.this)), False)


def _in(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    literals = [value_of(each, rows) for each in node.expressions]
    return is_among(value_of(node.this, rows), literals)


def _between(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    value = value_of(node.this, rows)
    low, high = (value_of(node.args[each], rows) for each in ("low", "high"))
    return pc.and_kleene(compare("gte", value, low), compare("lte", value, high))


def _like(node: exp.Expr, rows: pa.RecordBatch, escape: str = "\\") -> Value:
    ignore_case = isinstance(node, exp.ILike)
    return like(value_of(node.this, rows), str(node.expression.name), escape, ignore_case)


def _escape(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    return _like(node.this, rows, str(node.expression.name))


def _regexp(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    return matches(value_of(node.this, rows), str(node.expression.name))


def _case(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    default = node.args.get("default")
    found = NOTHING if default is None else value_of(default, rows)
    operand = None if node.this is None else value_of(node.this, rows)
    for branch in reversed(node.args["ifs"]):
        condition = value_of(branch.this, rows)
        if operand is not None:
            condition = compare("eq", operand, condition)
        found = chosen(condition, value_of(branch.args["true"], rows), found)
    return found


def _if(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    otherwise = node.args.get("false")
    return chosen(
        value_of(node.this, rows),
        value_of(node.args["true"], rows),
        NOTHING if otherwise is None else value_of(otherwise, rows),
    )


def _coalesce(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    sides = alike([value_of(each, rows) for each in (node.this, *node.expressions)])
    return NOTHING if sides is None or is_null(sides[0].type) else pc.coalesce(*sides)


def _nullif(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    value = value_of(node.this, rows)
    same = compare("eq", value, value_of(node.expression, rows))
    return chosen(same, pa.scalar(None, value.type), value)


def _cast(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    kind = node.args["to"]
    known = _CASTS.get(kind.this)
    return cast(value_of(node.this, rows), known or pa.decimal128(*decimal_digits(kind)))


def _trim(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    characters = node.args.get("expression")
    side = str(node.args.get("position") or "")
    return trim(value_of(node.this, rows), side, " " if characters is None else characters.name)


def _substring(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    place, count = (whole_number(node.args.get(each)) for each in ("start", "length"))
    return substring(value_of(node.this, rows), place, count)


def _concat(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    parts = node.expressions or [node.this, node.expression]
    return concat([value_of(each, rows) for each in parts])


def _round(node: exp.Expr, rows: pa.RecordBatch) -> Value:
    return round_to(value_of(node.this, rows), whole_number(node.args.get("decimals")) or 0)


def _of_one(function: Callable[[Value], Value]) -> Evaluate:
    return lambda node, rows: function(value_of(node.this, rows))


def _of_two(function: Callable[[str, Value, Value], Value]) -> Evaluate:
    return lambda node, rows: function(
        node.key, value_of(node.this, rows), value_of(node.expression, rows)
    )


def _of_truths(function: Callable[[Value, Value], Value]) -> Evaluate:
    return lambda node, rows: function(
        truth(value_of(node.this, rows)), truth(value_of(node.expression, rows))
    )


def _of_moment(function: Callable[[Value], Value]) -> Evaluate:
    def evaluate(value: Value) -> Value:
        if is_text(value.type):
            value = cast(value, _MOMENT)
        known = is_date(value.type) or is_timestamp(value.type)
        return function(value.cast(pa.timestamp("us"))) if known else NOTHING

    return _of_one(evaluate)


_COMPARISONS = ("eq", "neq", "lt", "lte", "gt", "gte", "nullsafeeq", "nullsafeneq")
_VALUES: dict[str, Evaluate] = {
    **dict.fromkeys(_COMPARISONS, _of_two(compare)),
    **dict.fromkeys(("add", "sub", "mul", "div", "mod"), _of_two(calculate)),
    "abs": _of_one(absolute),
    "and": _of_truths(pc.and_kleene),
    "arraysize": _of_one(size),
    "between": _between,
    "boolean": lambda node, _: pa.scalar(bool(node.this)),
    "bracket": _bracket,
    "case": _case,
    "cast": _cast,
    "ceil": _of_one(lambda value: whole(value, upwards=True)),
    "coalesce": _coalesce,
    "column": _column,
    "concat": _concat,
    "day": _of_moment(pc.day),
    "dayofmonth": _of_moment(pc.day),
    "dayofweek": _of_moment(lambda moment: pc.add(pc.day_of_week(moment, week_start=7), 1)),
    "dayofyear": _of_moment(pc.day_of_year),
    "dot": _dot,
    "dpipe": _concat,
    "escape": _escape,
    "floor": _of_one(lambda value: whole(value, upwards=False)),
    "hour": _of_moment(pc.hour),
    "if": _if,
    "ilike": _like,
    "in": _in,
    "is": _is,
    "length": _of_one(length),
    "like": _like,
    "literal": _literal,
    "lower": _of_one(of_text(pc.utf8_lower)),
    "minute": _of_moment(pc.minute),
    "month": _of_moment(pc.month),
    "neg": _of_one(negative),
    "not": _of_one(lambda value: pc.invert(truth(value))),
    "null": lambda *_: NOTHING,
    "nullif": _nullif,
    "or": _of_truths(pc.or_kleene),
    "paren": _of_one(lambda value: value),
    "quarter": _of_moment(pc.quarter),
    "regexplike": _regexp,
    "round": _round,
    "second": _of_moment(pc.second),
    "substring": _substring,
    "trim": _trim,
    "trycast": _cast,
    "tsordstodate": _of_one(lambda value: cast(value, pa.date32())),
    "upper": _of_one(of_text(pc.utf8_upper)),
    "year": _of_moment(pc.year),
}
"""By the key of an expression."""
