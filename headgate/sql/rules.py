"""An expression that is true of good rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import sqlglot
from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from headgate.errors import shown
from headgate.sql.parse import (
    as_written,
    bad_sql,
    not_too_deep,
    parse_expression,
    place_of,
    refuse_more_than_rows,
)

_ARITHMETIC = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.Neg,
    exp.DPipe,
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.BitwiseNot,
)
_PERHAPS = (exp.DType.BOOLEAN, exp.DType.UNKNOWN, exp.DType.NULL)


@lru_cache(maxsize=256)
@not_too_deep
def read_rule(text: str) -> exp.Expr:
    """The expression, if a row alone decides it and it may be true or false."""
    tree = parse_expression(text)
    refuse_more_than_rows([tree])
    if tree.find(exp.Column) is None:
        raise bad_sql(
            f"uses no column: {shown(as_written(tree))}", "compare a column with something"
        )
    if not _may_be_true(tree, text):
        hint = "compare it with something: `score >= 0`, `user_name IS NOT NULL`"
        raise bad_sql(f"is not a condition: {shown(as_written(tree))}", hint)
    return tree


def _may_be_true(tree: exp.Expr, text: str) -> bool:
    """Whether what is known of the functions in it leaves that open."""
    known = annotate_types(parse_one(text, dialect=Spark), dialect=Spark)
    kind = known.type.this if known.type is not None else exp.DType.UNKNOWN
    return kind in _PERHAPS and not isinstance(tree.unnest(), _ARITHMETIC)


D = exp.DType
CASTS = {
    D.TINYINT,
    D.SMALLINT,
    D.INT,
    D.BIGINT,
    D.FLOAT,
    D.DOUBLE,
    D.TEXT,
    D.DATE,
    D.BOOLEAN,
    D.TIMESTAMP,
    D.TIMESTAMPTZ,
    D.TIMESTAMPLTZ,
    D.TIMESTAMPNTZ,
}
"""What a value can be cast to, beside decimals."""

_LARGEST_DECIMAL = 38
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


class UnusableRule(ValueError):
    """The text says why."""

    inside: tuple[int, int] | None = None
    """The line and the column in the rule, where they are known."""


def whole_number(node: exp.Expr | None) -> int | None:
    """The number that a literal has, with or without a sign."""
    if isinstance(node, exp.Neg):
        number = whole_number(node.this)
        return None if number is None else -number
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        return None
    return int(node.name)


def decimal_digits(kind: exp.Expr) -> tuple[int, int]:
    """Precision and scale of a decimal type."""
    digits = [int(each.name) for each in kind.expressions if each.name.isdecimal()]
    return (digits[0], digits[1] if len(digits) > 1 else 0) if digits else (10, 0)


def in_sql(node: exp.Expr) -> str:
    """A part as a message shows it."""
    text = str(node.sql(dialect="spark", comments=False))
    return text if len(text) <= 60 else f"{text[:57]}…"


def _column(node: exp.Expr) -> list[exp.Expr]:
    assert isinstance(node, exp.Column)
    if not all(isinstance(part, exp.Identifier) for part in node.parts):
        raise UnusableRule(f"`{in_sql(node)}` is not a column")
    return []


def _dot(node: exp.Expr) -> list[exp.Expr]:
    if not isinstance(node.expression, exp.Identifier):
        raise UnusableRule(f"`{in_sql(node)}` is not a field of a column")
    return [node.this]


def _bracket(node: exp.Expr) -> list[exp.Expr]:
    (place, *more) = node.expressions
    is_text = isinstance(place, exp.Literal) and place.is_string
    if more or node.args.get("offset") or not (is_text or whole_number(place) is not None):
        raise UnusableRule(f"`{in_sql(node)}`: write `a[0]` or `m['key']`")
    return [node.this]


def _cast(node: exp.Expr) -> list[exp.Expr]:
    kind = node.args["to"]
    if kind.this is D.DECIMAL:
        precision, scale = decimal_digits(kind)
        if not (0 < precision <= _LARGEST_DECIMAL and scale <= precision):
            raise UnusableRule(f"`{in_sql(kind)}` is not a valid type")
    elif kind.this not in CASTS:
        raise UnusableRule(f"nothing can be cast to `{in_sql(kind)}` in a rule")
    if any(node.args.get(each) for each in ("format", "action", "default")):
        raise UnusableRule(f"`{in_sql(node)}` has more than a type")
    return [node.this]


def _in(node: exp.Expr) -> list[exp.Expr]:
    if any(node.args.get(each) for each in ("query", "unnest", "field")):
        raise UnusableRule("it reads other rows; a rule sees a single row")
    for each in node.expressions:
        literal = each.this if isinstance(each, exp.Neg | exp.Cast) else each
        if not isinstance(literal, exp.Literal | exp.Null | exp.Boolean):
            raise UnusableRule(f"`{in_sql(each)}` in an IN list is not a literal")
    return [node.this, *node.expressions]


def _is(node: exp.Expr) -> list[exp.Expr]:
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        raise UnusableRule(f"`{in_sql(node)}`: IS takes NULL, TRUE or FALSE")
    return [node.this]


def _between(node: exp.Expr) -> list[exp.Expr]:
    if node.args.get("symmetric"):
        raise UnusableRule("BETWEEN SYMMETRIC is not known in a rule")
    return [node.this, node.args["low"], node.args["high"]]


def _pattern(node: exp.Expr) -> list[exp.Expr]:
    _require_text(node.expression)
    if node.args.get("flag"):
        raise UnusableRule("a pattern cannot have flags beside it: write `(?i)` in it")
    return [node.this]


def _escape(node: exp.Expr) -> list[exp.Expr]:
    _require_text(node.expression)
    if len(node.expression.name) != 1 or not isinstance(node.this, exp.Like | exp.ILike):
        raise UnusableRule("ESCAPE takes one character")
    return [node.this]


def _literal(node: exp.Expr) -> list[exp.Expr]:
    if not node.is_string and not _NUMBER.fullmatch(node.name):
        raise UnusableRule(f"`{node.name}` is not a number")
    return []


def _concat(node: exp.Expr) -> list[exp.Expr]:
    if not node.args.get("safe"):
        # Spark reads 'it''s' as one text with a quote in it, the parser as two texts.
        raise UnusableRule(r"write a quote inside a text as \'")
    return node.expressions


def _substring(node: exp.Expr) -> list[exp.Expr]:
    start, length = node.args.get("start"), node.args.get("length")
    if whole_number(start) is None or (length is not None and whole_number(length) is None):
        raise UnusableRule("`substring` takes integers")
    return [node.this]


def _trim(node: exp.Expr) -> list[exp.Expr]:
    if node.args.get("expression") is not None:
        _require_text(node.expression)
    return [node.this]


def _round(node: exp.Expr) -> list[exp.Expr]:
    decimals = node.args.get("decimals")
    if decimals is not None and (node.key != "round" or whole_number(decimals) is None):
        raise UnusableRule(f"`{in_sql(node)}`: only `round` takes digits, as an integer")
    if node.args.get("to") is not None or node.args.get("truncate") is not None:
        raise UnusableRule(f"`{in_sql(node)}` is not known in a rule")
    return [node.this]


def _to_date(node: exp.Expr) -> list[exp.Expr]:
    if node.args.get("format") is not None:
        raise UnusableRule("`to_date` takes no format in a rule")
    return [node.this]


def _require_text(node: exp.Expr) -> None:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise UnusableRule(f"`{in_sql(node)}` must be a text in quotes")


CHECKS: dict[str, Callable[[exp.Expr], Iterable[exp.Expr]]] = {
    "between": _between,
    "bracket": _bracket,
    "cast": _cast,
    "ceil": _round,
    "column": _column,
    "concat": _concat,
    "dot": _dot,
    "escape": _escape,
    "floor": _round,
    "ilike": _pattern,
    "in": _in,
    "is": _is,
    "like": _pattern,
    "literal": _literal,
    "regexplike": _pattern,
    "round": _round,
    "substring": _substring,
    "trim": _trim,
    "trycast": _cast,
    "tsordstodate": _to_date,
}
"""By the key of an expression: refuses it, or gives the expressions inside."""

_TRUTHS = {
    "and",
    "or",
    "not",
    "eq",
    "neq",
    "lt",
    "lte",
    "gt",
    "gte",
    "nullsafeeq",
    "nullsafeneq",
    "between",
    "boolean",
    "escape",
    "ilike",
    "in",
    "is",
    "like",
    "regexplike",
}
_EITHER = {
    "bracket",
    "case",
    "cast",
    "coalesce",
    "column",
    "dot",
    "if",
    "null",
    "nullif",
    "paren",
    "trycast",
}
"""What may be true or false, by the columns it is about."""
_VALUES = {
    "abs",
    "add",
    "arraysize",
    "ceil",
    "concat",
    "day",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "div",
    "dpipe",
    "floor",
    "hour",
    "length",
    "literal",
    "lower",
    "minute",
    "mod",
    "month",
    "mul",
    "neg",
    "quarter",
    "round",
    "second",
    "sub",
    "substring",
    "trim",
    "tsordstodate",
    "upper",
    "year",
}
_OF_THE_MOMENT = {
    "currentdate",
    "currentdatetime",
    "currenttime",
    "currenttimestamp",
    "currentuser",
    "rand",
    "randn",
    "uuid",
    "input_file_name",
    "monotonically_increasing_id",
    "now",
}


@lru_cache(maxsize=1024)
def expression_of(rule: str) -> exp.Expr:
    """The expression of a rule, once it is known that it can be evaluated."""
    try:
        statements = sqlglot.parse(rule, dialect="spark")
        found = statements[0] if len(statements) == 1 else None
        if found is None:
            raise UnusableRule("it must be one expression")
        _check(found, as_truth=True)
    except SqlglotError as error:
        raise UnusableRule(f"it is not SQL: {_first_of(error)}") from error
    except RecursionError as error:
        raise UnusableRule("it is nested too deep") from error
    return found


def _check(node: exp.Expr, as_truth: bool = False) -> None:
    try:
        _check_parts(node, as_truth)
    except UnusableRule as error:
        error.inside = error.inside or place_of(node)
        raise


def _check_parts(node: exp.Expr, as_truth: bool) -> None:
    key = node.key
    if key not in _TRUTHS | _EITHER | _VALUES:
        raise UnusableRule(_why_not(node))
    if as_truth and key in _VALUES:
        raise UnusableRule(f"`{in_sql(node)}` is neither true nor false")
    asked: list[exp.Expr] = []
    others: list[exp.Expr] = []
    match node:
        case exp.And() | exp.Or() | exp.Not():
            asked = list(node.iter_expressions())
        case exp.Paren():
            (asked if as_truth else others).append(node.this)
        case exp.Case(this=None):
            asked = [each.this for each in node.args["ifs"]]
            others = [each.args["true"] for each in node.args["ifs"]]
            others += [node.args["default"]] if node.args.get("default") else []
        case exp.If() if not isinstance(node.parent, exp.Case):
            asked.append(node.this)
            others.extend(each for each in node.iter_expressions() if each is not node.this)
        case _:
            own = CHECKS.get(key)
            others = list(own(node) if own else node.iter_expressions())
    for each in asked:
        _check(each, as_truth=True)
    for each in others:
        _check(each)


def _why_not(node: exp.Expr) -> str:
    if isinstance(node, exp.AggFunc | exp.Window | exp.Query | exp.Subquery | exp.Exists):
        return f"`{in_sql(node)}` reads other rows; a rule sees a single row"
    name = node.name if isinstance(node, exp.Anonymous) else node.key
    if name.lower() in _OF_THE_MOMENT:
        return f"`{in_sql(node)}` is not the same each time: a rule depends on the row alone"
    if isinstance(node, exp.Func):
        return f"the function of `{in_sql(node)}` is not known in a rule"
    return f"`{in_sql(node)}` is not known in a rule"


def _first_of(error: SqlglotError) -> str:
    errors = getattr(error, "errors", None)
    if not errors:
        return str(error).splitlines()[0]
    first = errors[0]
    said = str(first.get("description", "")).split(" for <")[0].rstrip(".")
    return f"{said} at line {first.get('line')}, column {first.get('col')}"
