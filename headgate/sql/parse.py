"""Parses the SQL of a pipeline file, and locates what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headgate.errors import InvalidPipeline, did_you_mean, shown

_SPECIAL_SYNTAX = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")


_STEPS, _STEPS_PER_TOKEN = 1_000, 16
"""Ordinary SQL takes one or two steps per token."""
_STEPS_PER_TYPE = 10
"""For each type, with all types inside of it, sqlglot parses two names of types."""


@dataclass
class _Budget:
    """The number of steps that a parser may still take."""

    steps: int


_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)


class _BoundedParser(SparkParser):
    """Gives up on SQL that it could read only by trying very many ways.

    sqlglot goes back if what it took for a type is a call: each level of `DATE(DATE(…` doubles
    its time.
    """

    def _advance(self, times: int = 1) -> None:
        self._spend(1)
        super()._advance(times)

    def _parse_types(self, *args: Any, **options: Any) -> exp.Expr | None:
        found = super()._parse_types(*args, **options)
        if found is not None:
            self._spend(_STEPS_PER_TYPE * sum(1 for _ in found.find_all(exp.DataType)))
        return found

    def _spend(self, steps: int) -> None:
        budget = _budget.get()
        if budget is None:
            return
        budget.steps -= steps
        if budget.steps < 0:
            hint = "write calls of types, such as DATE(…), and types inside each other separately"
            raise bad_sql("is too complex to be parsed", hint, token_position(self._curr))


class _Bounded(Spark):
    """Spark's dialect, whose parser is bounded."""

    Parser = _BoundedParser


def parse_spark(text: str) -> list[exp.Expr | None]:
    """Parse statements as sqlglot does for Spark, with the functions that it knows."""
    return _parse_bounded(_Bounded(), _Bounded().tokenize(text), text)


def _parse_bounded(dialect: Spark, tokens: list[Token], text: str) -> list[exp.Expr | None]:
    """Parse tokens in time that is proportional to their number."""
    outer = _budget.set(_Budget(_STEPS + _STEPS_PER_TOKEN * len(tokens)))
    try:
        return dialect.parser().parse(tokens, text)
    finally:
        _budget.reset(outer)


class _VerbatimParser(_BoundedParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _SPECIAL_SYNTAX
    }


class Verbatim(Spark):
    """Spark's dialect, with function calls kept as they are written."""

    Parser = _VerbatimParser


def sql_of(node: exp.Expr) -> str:
    """Return an expression in Spark's SQL, with every name in backticks."""
    return node.sql(dialect=Verbatim, identify=True, comments=False)


def as_written(node: exp.Expr) -> str:
    """Return an expression as messages show it."""
    return node.sql(dialect=Verbatim, comments=False, normalize_functions=False)


def normalized(node: exp.Expr) -> str:
    """Return SQL that is the same for expressions that Spark takes as equal: it ignores case."""
    copy = node.copy()
    for name in copy.find_all(exp.Identifier):
        name.set("this", name.name.lower())
    return sql_of(copy)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


Position = tuple[int, int]
"""Line and column inside of a text, counted from 1."""

Read = TypeVar("Read")

BEFORE_OUTPUTS = "SELECT "

_WORDS = ("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "AS", "AND", "OR")
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN)
_UNCLOSED = re.compile(r"Missing (?P<mark>\S+) from \d+:(?P<start>\d+)")


def bad_sql(
    message: str, hint: str | None = None, inside: Position | None = None
) -> InvalidPipeline:
    return InvalidPipeline("bad-sql", message, hint, inside=inside)


def refuse_deep_nesting(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """Report SQL that is nested too deep for Python's stack like any other error."""

    @wraps(read)
    def guarded(text: str) -> Read:
        try:
            return read(text)
        except RecursionError:
            raise bad_sql("is nested too deeply") from None

    return guarded


def position(node: exp.Expr) -> Position | None:
    """Return where an expression begins; sqlglot records the end of names and calls only."""
    placed = [each.meta for each in node.walk() if "line" in each.meta]
    if not placed:
        return None
    first = min(placed, key=lambda meta: int(meta["start"]))
    return int(first["line"]), int(first["col"]) - int(first["end"]) + int(first["start"])


def parse_select(text: str) -> exp.Select:
    """Parse a text that is a single SELECT."""
    tokens = statement_tokens(text)
    if tokens[0].token_type not in _QUERY_STARTS:
        hint = did_you_mean(tokens[0].text, _WORDS[:1]) or "it must start with `SELECT`"
        raise bad_sql(
            f"is not a SELECT; it starts with {shown(tokens[0].text)}",
            hint,
            token_position(tokens[0]),
        )
    tree = _parse(text, tokens)
    if not isinstance(tree, exp.Select) or tree.args.get("into"):
        kind = (
            "a query of several SELECTs" if isinstance(tree, exp.SetOperation) else "something else"
        )
        raise bad_sql(f"needs a single SELECT, but is {kind}")
    return tree


def parse_expression(text: str) -> exp.Expr:
    """Parse a text that is a single expression."""
    tree = _parse(text, statement_tokens(text))
    if isinstance(tree, exp.Query):
        raise bad_sql("needs an expression over columns, but is a query")
    if isinstance(tree, exp.Alias):
        hint = f"remove {shown(tree.alias)}, or quote it if it is a text"
        raise bad_sql("needs an expression without a name", hint, position(tree))
    return tree


def parse_outputs(text: str) -> list[exp.Expr]:
    """Parse the part between SELECT and FROM; positions include the word SELECT."""
    tree = parse_select(BEFORE_OUTPUTS + text)
    if extra := [key for key, value in tree.args.items() if value and key != "expressions"]:
        word = extra[0].rstrip("_").upper()
        raise bad_sql(f"needs columns alone, but has {word}", "`where:` is a key of its own")
    return tree.expressions


def shifted(inside: Position | None, by: int) -> Position | None:
    """Return a position without the text that was put in front."""
    if inside is None:
        return None
    line, column = inside
    return (line, max(column - by, 1)) if line == 1 else inside


def statement_tokens(text: str) -> list[Token]:
    """Return the tokens of a text that is one statement, without its semicolon."""
    try:
        tokens = Verbatim().tokenize(text)
    except TokenError as error:
        raise _unclosed_error(error, text) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise bad_sql("needs SQL, not empty text")
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            hint = "a declaration is one statement: remove the `;` and everything after it"
            raise bad_sql("has more than one statement", hint, token_position(token))
    return tokens


def _parse(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        parsed = _parse_bounded(Verbatim(), tokens, text)
    except ParseError as error:
        raise _syntax_error(error) from None
    except TokenError:
        # sqlglot reads some names as types, which can be half of one in a wrong place.
        raise bad_sql("cannot be read as SQL") from None
    tree = parsed[0] if len(parsed) == 1 else None
    if tree is None:
        raise bad_sql("needs a single statement")
    return tree


def token_position(token: Token) -> Position:
    """Return where a token begins."""
    return token.line, token.col - token.end + token.start


def _unclosed_error(error: TokenError, text: str) -> InvalidPipeline:
    found = _UNCLOSED.search(f"{error.__cause__} {error}")
    if found is None:
        return bad_sql("cannot be read as SQL", "a quote or a comment may not be closed")
    *lines, last = text[: int(found["start"])].split("\n")
    inside = len(lines) + 1, len(last) + 1
    return bad_sql(f"has a {shown(found['mark'])} that is never closed", inside=inside)


def _syntax_error(error: ParseError) -> InvalidPipeline:
    details = error.errors[0]
    word = str(details.get("highlight") or "")
    line, column = details.get("line"), details.get("col")
    inside = (line, max(column - len(word) + 1, 1)) if line and column else None
    near = (*str(details.get("start_context") or "").split()[-1:], *word.split()[:1])
    mistyped = [did_you_mean(each, _WORDS) for each in near if each.upper() not in _WORDS]
    described = str(details.get("description") or "")
    hint = next((each for each in mistyped if each), None)
    if hint is None and described.startswith("Expecting "):
        hint = f"expected there: `{described.removeprefix('Expecting ')}`"
    elif hint is None and described.startswith("Required"):
        hint = "something is missing there"
    return bad_sql(f"cannot be read as SQL at {shown(word)}", hint, inside)
