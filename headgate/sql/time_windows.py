"""`GROUP BY window(time, '10 minutes')`, as in Spark: tumbling windows of event time.

sqlglot takes the word for the start of a WINDOW clause, so it is replaced before a query is parsed,
by one of the same length: positions in the text stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headgate.errors import shown
from headgate.sql.macros import WINDOW_START
from headgate.sql.parse import bad_sql, position, sql_of

_WINDOW, _HIDDEN = "window", "_windo"
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(rf"\s*([0-9]{{1,12}})\s*({'|'.join(_MICROSECONDS)})s?\s*", re.IGNORECASE)


def hide_windows(text: str, tokens: Sequence[Token]) -> str:
    """Return the text of a query that sqlglot can parse."""
    for word, after in pairwise(tokens):
        if word.text.lower() == _WINDOW and after.token_type in (TokenType.L_PAREN, TokenType.DOT):
            text = text[: word.start] + _HIDDEN + text[word.end + 1 :]
    return text


def resolve_windows(tree: exp.Select) -> None:
    """Replace the window of a query, and its fields, by expressions."""
    calls = [one for one in tree.find_all(exp.Anonymous) if one.name.lower() == _HIDDEN]
    if not calls:  # a column of that name
        for name in tree.find_all(exp.Identifier):
            if name.name == _HIDDEN:
                name.set("this", _WINDOW)
        return
    group = tree.args.get("group")
    if group is None or not any(one in calls for one in group.expressions):
        hint = "GROUP BY window(time, '10 minutes'), then SELECT window.start"
        raise bad_sql("has window(…) outside of GROUP BY", hint, position(calls[0]))
    if len({sql_of(one) for one in calls}) > 1:
        raise bad_sql("has two different windows", "group by one of them", position(calls[1]))
    start, end = _bounds(calls[0])
    whole = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name), expression=value.copy())
            for name, value in (("start", start), ("end", end))
        ]
    )
    fields = {"": whole, "start": start, "end": end}
    for one in [*tree.find_all(exp.Dot), *tree.find_all(exp.Column)]:
        if (field := _field_of(one)) is not None:
            if field not in fields:
                hint = "a window has start and end"
                raise bad_sql(f"has {shown(f'window.{field}')}", hint, position(one))
            one.replace(_named_as_before(one, fields[field].copy(), field or _WINDOW))
    for one in calls:
        in_group = isinstance(one.parent, exp.Group)
        value = start if in_group else whole
        one.replace(value.copy() if in_group else _named_as_before(one, value.copy(), _WINDOW))


def _field_of(node: exp.Expr) -> str | None:
    """Return the field of a window that an expression means; empty for all of it."""
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Anonymous):
        return node.expression.name.lower() if node.this.name.lower() == _HIDDEN else None
    if isinstance(node, exp.Column):
        parts = [part.name.lower() for part in node.parts]
        if parts[0] == _HIDDEN and len(parts) == 2:
            return parts[1]
        if parts == [_WINDOW]:
            return ""
    return None


def _named_as_before(node: exp.Expr, value: exp.Expr, name: str) -> exp.Expr:
    """Give a column of the result the name that it would have in Spark."""
    return exp.alias_(value, name, quoted=True) if isinstance(node.parent, exp.Select) else value


def _bounds(call: exp.Anonymous) -> tuple[exp.Expr, exp.Expr]:
    time, *rest = call.expressions or [None]
    if time is None or not rest:
        hint = "write window(time, '10 minutes')"
        raise bad_sql("has a window without a length", hint, position(call))
    if len(rest) > 1:
        hint = "declare a gold table, for which Spark has such windows"
        raise bad_sql("has windows that overlap or are shifted", hint, position(call))
    length = _microseconds(rest[0])
    start = exp.Anonymous(this=WINDOW_START, expressions=[time, exp.Literal.number(length)])
    interval = exp.Interval(this=exp.Literal.string(str(length)), unit=exp.var("MICROSECONDS"))
    return start, exp.Add(this=start.copy(), expression=interval)


def _microseconds(node: exp.Expr) -> int:
    text = node.name if isinstance(node, exp.Literal) and node.is_string else ""
    parts = list(_PART.finditer(text))
    length = sum(int(one[1]) * _MICROSECONDS[one[2].lower()] for one in parts)
    if not length or "".join(one[0] for one in parts) != text:
        hint = "write it as '10 minutes' or '1 hour'"
        raise bad_sql(f"has a window of length {shown(text or sql_of(node))}", hint, position(node))
    return length
