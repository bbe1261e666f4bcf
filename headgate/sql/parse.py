"""Parses the SQL of a pipeline file, and locates what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headgate.errors import InvalidPipeline, did_you_mean, shown

_SPECIAL_SYNTAX = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")


class _VerbatimParser(SparkParser):
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
            raise bad_sql("is nested too deep") from None

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
    tokens = _one_statement(text)
    if tokens[0].token_type not in _QUERY_STARTS:
        hint = did_you_mean(tokens[0].text, _WORDS[:1]) or "it begins with `SELECT`"
        raise bad_sql(
            f"is not a SELECT, but {shown(tokens[0].text)} …", hint, _token_position(tokens[0])
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
    tree = _parse(text, _one_statement(text))
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


def _one_statement(text: str) -> list[Token]:
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
            raise bad_sql("has more than one statement", hint, _token_position(token))
    return tokens


def _parse(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        parsed = Verbatim().parser().parse(tokens, text)
    except ParseError as error:
        raise _syntax_error(error) from None
    tree = parsed[0] if len(parsed) == 1 else None
    if tree is None:
        raise bad_sql("needs a single statement")
    return tree


def _token_position(token: Token) -> Position:
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


_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch
    covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kurtosis last last_value listagg max max_by mean measure median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc product regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some
    std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg
    theta_union_agg try_avg try_sum var_pop var_samp variance
"""
AGGREGATES = frozenset(_AGGREGATES.split())

_CHANGING = """
    curdate current_date current_time current_timestamp input_file_name localtimestamp
    monotonically_increasing_id now rand randn random randstr shuffle spark_partition_id uniform
    uuid
"""
NONDETERMINISTIC = frozenset(_CHANGING.split())
"""Functions that return another value when they are called again for the same row."""

RUNS_CODE = frozenset(["java_method", "reflect", "try_reflect"])

_CALL_MODIFIERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


def call_name(node: exp.Expr) -> str | None:
    """Return the name of the called function, in lower case."""
    match node:
        case exp.Anonymous():
            return node.name.lower()
        case exp.Any() if not node.find(exp.Query):
            return "any"
        case exp.CurrentDate():
            return "current_date"
        case exp.CurrentTimestamp() | exp.CurrentDatetime():
            return "current_timestamp"
    return None


def is_known(name: str) -> bool:
    """Return whether Spark has the function; others are user-defined, perhaps aggregates."""
    return name in AGGREGATES or name.upper() in Spark.Parser.FUNCTIONS


def innermost_call(node: exp.Expr) -> exp.Expr:
    """Return the call without FILTER and similar clauses around it."""
    while isinstance(node, _CALL_MODIFIERS):
        node = node.this
    return node


def is_aggregate(node: exp.Expr) -> bool:
    return call_name(innermost_call(node)) in AGGREGATES


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost aggregates, without those of windows and subqueries."""
    if is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Window | exp.Query):
        for child in node.iter_expressions():
            yield from aggregates_in(child)


def calls_in(node: exp.Expr, names: frozenset[str]) -> Iterator[exp.Expr]:
    for each in node.walk():
        if call_name(each) in names:
            yield each


def refuse_unsafe(tree: exp.Expr) -> None:
    """Raise if the SQL has parameters, which have no values, or runs programs."""
    for parameter in tree.find_all(exp.Placeholder, exp.Parameter):
        hint = "write the value itself; names of tables and columns are the same for every route"
        raise bad_sql(f"has a parameter: {shown(as_written(parameter))}", hint, position(parameter))
    if program := next(tree.find_all(exp.QueryTransform), None):
        raise bad_sql("runs a program with TRANSFORM", inside=position(program))
    for call in calls_in(tree, RUNS_CODE):
        raise bad_sql(f"calls Java code: {shown(as_written(call))}", inside=position(call))


def refuse_beyond_row(trees: Iterable[exp.Expr], *, changing: bool = False) -> None:
    """Raise if an expression needs more than one row; `changing` allows nondeterministic ones."""
    for tree in trees:
        refuse_unsafe(tree)
        for node in tree.walk():
            if kind := _row_violation(node):
                raise bad_sql(f"has {kind}: {shown(as_written(node))}", _ROW_HINT, position(node))
        for call in calls_in(tree, NONDETERMINISTIC) if not changing else ():
            hint = "the same row has to give the same result every time"
            raise bad_sql(f"depends on {shown(as_written(call))}", hint, position(call))


_ROW_HINT = "it is evaluated for each row by itself"


def _row_violation(node: exp.Expr) -> str | None:
    match node:
        case exp.Window():
            return "a window function"
        case exp.Query():
            return "a subquery"
        case _ if is_aggregate(node):
            return "an aggregate"
    return None


_PARTS = ("this", "table", "db", "catalog")
_QUALIFIED = "qualified"


def root_name(column: exp.Column) -> str:
    """Return the name of the column that a field is in: `a` of `a.b`."""
    return column.parts[0].name


def columns_in(nodes: Iterable[exp.Expr]) -> Iterator[exp.Column]:
    for node in nodes:
        yield from node.find_all(exp.Column, bfs=False)


def distinct_names(names: Iterable[str]) -> frozenset[str]:
    """Return each name once, as it is first written: Spark ignores the case of names."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return frozenset(found.values())


def without_qualifier(column: exp.Column, qualifiers: frozenset[str]) -> exp.Column:
    """Return `user_name` for `silver.user_name`."""
    parts = column.parts
    if len(parts) == 1 or parts[0].name.lower() not in qualifiers:
        return column
    bare = column_of(parts[1:])
    bare.meta[_QUALIFIED] = True
    return bare


def column_of(parts: Sequence[exp.Expr]) -> exp.Column:
    return exp.Column(**dict(zip(_PARTS, reversed(parts), strict=False)))


def enclosing_columns(column: exp.Column) -> Iterator[tuple[exp.Column, list[exp.Expr]]]:
    """Yield the columns and fields around a field, each with the path from there to it."""
    parts = [each.copy() for each in column.parts]
    for length in range(1, len(parts)):
        yield column_of(parts[:length]), parts[length:]


def is_qualified(column: exp.Column) -> bool:
    """Return whether it was written with the name of its table, and so is not an output."""
    return bool(column.meta.get(_QUALIFIED))
