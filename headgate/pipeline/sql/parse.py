"""From the text of a declaration to its parts, or to the place where it cannot be understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.sql.dialect import Verbatim
from headgate.pipeline.wording import did_you_mean, shown

Inside = tuple[int, int]
"""A line and a column inside of a text, counted from 1."""

Read = TypeVar("Read")

BEFORE_OUTPUTS = "SELECT "

_WORDS = ("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "AS", "AND", "OR")
_BEGIN_A_QUERY = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN)
_UNCLOSED = re.compile(r"Missing (?P<mark>\S+) from \d+:(?P<start>\d+)")


def bad_sql(message: str, hint: str | None = None, inside: Inside | None = None) -> InvalidPipeline:
    return InvalidPipeline("bad-sql", message, hint, inside=inside)


def not_too_deep(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """Lets a text that is too deep for Python be an error like any other."""

    @wraps(read)
    def guarded(text: str) -> Read:
        try:
            return read(text)
        except RecursionError:
            raise bad_sql("is nested too deep") from None

    return guarded


def place_of(node: exp.Expr) -> Inside | None:
    """Where a part stands: sqlglot knows it of names and calls, and of a name's last letter."""
    placed = [each.meta for each in node.walk() if "line" in each.meta]
    if not placed:
        return None
    first = min(placed, key=lambda meta: int(meta["start"]))
    return int(first["line"]), int(first["col"]) - int(first["end"]) + int(first["start"])


def parse_select(text: str) -> exp.Select:
    """The one SELECT that a text is."""
    tokens = _one_statement(text)
    if tokens[0].token_type not in _BEGIN_A_QUERY:
        hint = did_you_mean(tokens[0].text, _WORDS[:1]) or "it begins with `SELECT`"
        raise bad_sql(f"is not a SELECT, but {shown(tokens[0].text)} …", hint, _place(tokens[0]))
    tree = _parse(text, tokens)
    if not isinstance(tree, exp.Select) or tree.args.get("into"):
        kind = (
            "a query of several SELECTs" if isinstance(tree, exp.SetOperation) else "something else"
        )
        raise bad_sql(f"needs a single SELECT, but is {kind}")
    return tree


def parse_expression(text: str) -> exp.Expr:
    """The one expression that a text is."""
    tree = _parse(text, _one_statement(text))
    if isinstance(tree, exp.Query):
        raise bad_sql("needs an expression over columns, but is a query")
    if isinstance(tree, exp.Alias):
        hint = f"leave out {shown(tree.alias)}, or quote it if it is a text"
        raise bad_sql("needs an expression, not one with a name", hint, place_of(tree))
    return tree


def parse_outputs(text: str) -> list[exp.Expr]:
    """What stands between SELECT and FROM; places count SELECT in."""
    tree = parse_select(BEFORE_OUTPUTS + text)
    if extra := [key for key, value in tree.args.items() if value and key != "expressions"]:
        word = extra[0].rstrip("_").upper()
        raise bad_sql(f"needs columns alone, but has {word}", "`where:` is a key of its own")
    return tree.expressions


def shifted(inside: Inside | None, by: int) -> Inside | None:
    """The place without what was put before the text."""
    if inside is None:
        return None
    line, column = inside
    return (line, max(column - by, 1)) if line == 1 else inside


def _one_statement(text: str) -> list[Token]:
    try:
        tokens = Verbatim().tokenize(text)
    except TokenError as error:
        raise _unclosed(error, text) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise bad_sql("needs SQL, not empty text")
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            hint = "each declaration is one; leave out the `;` and what follows"
            raise bad_sql("has more than one statement", hint, _place(token))
    return tokens


def _parse(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        parsed = Verbatim().parser().parse(tokens, text)
    except ParseError as error:
        raise _misunderstood(error) from None
    tree = parsed[0] if len(parsed) == 1 else None
    if tree is None:
        raise bad_sql("needs a single statement")
    return tree


def _place(token: Token) -> Inside:
    return token.line, token.col - token.end + token.start


def _unclosed(error: TokenError, text: str) -> InvalidPipeline:
    found = _UNCLOSED.search(f"{error.__cause__} {error}")
    if found is None:
        return bad_sql("cannot be read as SQL", "is there a quote or a comment that does not end?")
    *lines, last = text[: int(found["start"])].split("\n")
    inside = len(lines) + 1, len(last) + 1
    return bad_sql(f"has a {shown(found['mark'])} that is never closed", inside=inside)


def _misunderstood(error: ParseError) -> InvalidPipeline:
    told = error.errors[0]
    word = str(told.get("highlight") or "")
    line, column = told.get("line"), told.get("col")
    inside = (line, max(column - len(word) + 1, 1)) if line and column else None
    near = (*str(told.get("start_context") or "").split()[-1:], *word.split()[:1])
    mistyped = [did_you_mean(each, _WORDS) for each in near if each.upper() not in _WORDS]
    described = str(told.get("description") or "")
    hint = next((each for each in mistyped if each), None)
    if hint is None and described.startswith("Expecting "):
        hint = f"expected there: `{described.removeprefix('Expecting ')}`"
    elif hint is None and described.startswith("Required"):
        hint = "something is missing there"
    return bad_sql(f"cannot be read as SQL at {shown(word)}", hint, inside)
