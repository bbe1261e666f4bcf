"""Which SQL a rule may have: what is computed from the values of one row without Spark."""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headgate.pipeline.sql.parse import place_of
from headgate.pipeline.sql.rule_parts import CHECKS, UnusableRule, in_sql

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
        raise UnusableRule(f"it is no SQL: {_first_of(error)}") from error
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
        return f"`{in_sql(node)}` asks other rows: a rule is about one row alone"
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
