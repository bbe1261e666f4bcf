"""Parses conditions on rows, and checks which of them can be evaluated as a rule of `expect`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from headgate.errors import InvalidPipeline, shown
from headgate.sql.expressions import refuse_beyond_row
from headgate.sql.parse import (
    as_written,
    bad_sql,
    parse_expression,
    parse_spark,
    position,
    refuse_deep_nesting,
)
from headgate.sql.patterns import UnsupportedPattern, rust_pattern
from headgate.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    MAX_PRECISION,
    TEXT,
    TIMESTAMP,
    integer,
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
_BOOLEAN_OR_UNKNOWN = (exp.DType.BOOLEAN, exp.DType.UNKNOWN, exp.DType.NULL)


@lru_cache(maxsize=256)
@refuse_deep_nesting
def parse_condition(text: str) -> exp.Expr:
    """Parse a condition that Spark evaluates for each row by itself."""
    tree = parse_expression(text)
    refuse_beyond_row([tree])
    if tree.find(exp.Column) is None:
        raise bad_sql(
            f"does not depend on the row: {shown(as_written(tree))}", "use a column in it"
        )
    if not _may_be_boolean(tree, text):
        hint = "compare it with a value: `score >= 0`, `user_name IS NOT NULL`"
        raise bad_sql(f"is not a condition: {shown(as_written(tree))}", hint)
    return tree


def _may_be_boolean(tree: exp.Expr, text: str) -> bool:
    """Return whether the expression can be a boolean, as far as its functions are known."""
    (parsed,) = parse_spark(text)
    assert parsed is not None
    known = annotate_types(parsed, dialect=Spark)
    kind = known.type.this if known.type is not None else exp.DType.UNKNOWN
    return kind in _BOOLEAN_OR_UNKNOWN and not isinstance(tree.unnest(), _ARITHMETIC)


D = exp.DType
CASTS = {
    D.TINYINT: integer(8),
    D.SMALLINT: integer(16),
    D.INT: integer(32),
    D.BIGINT: BIGINT,
    D.FLOAT: FLOAT,
    D.DOUBLE: DOUBLE,
    D.TEXT: TEXT,
    D.DATE: DATE,
    D.BOOLEAN: BOOLEAN,
    D.TIMESTAMP: TIMESTAMP,
    D.TIMESTAMPTZ: TIMESTAMP,
    D.TIMESTAMPLTZ: TIMESTAMP,
    D.TIMESTAMPNTZ: TIMESTAMP,
}
"""Types that a value can be cast to, besides decimals."""

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_MAX_DEPTH = 100


class UnusableRule(ValueError):
    """A rule that cannot be evaluated; the message says why."""

    inside: tuple[int, int] | None = None
    """Line and column in the rule, if known."""


def whole_number(node: exp.Expr | None) -> int | None:
    """Return the integer of a literal, with or without a sign."""
    if isinstance(node, exp.Neg):
        number = whole_number(node.this)
        return None if number is None else -number
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        return None
    return int(node.name)


def decimal_digits(kind: exp.Expr) -> tuple[int, int]:
    """Return precision and scale of a decimal type."""
    digits = [int(each.name) for each in kind.expressions if each.name.isdecimal()]
    return (digits[0], digits[1] if len(digits) > 1 else 0) if digits else (10, 0)


def shown_sql(node: exp.Expr) -> str:
    """Return an expression as messages show it, cut if it is long."""
    text = str(node.sql(dialect="spark", comments=False))
    return text if len(text) <= 60 else f"{text[:57]}…"


def _column(node: exp.Expr) -> list[exp.Expr]:
    assert isinstance(node, exp.Column)
    if not all(isinstance(part, exp.Identifier) for part in node.parts):
        raise UnusableRule(f"`{shown_sql(node)}` is not a column")
    return []


def _dot(node: exp.Expr) -> list[exp.Expr]:
    if not isinstance(node.expression, exp.Identifier):
        raise UnusableRule(f"`{shown_sql(node)}` is not a field of a column")
    return [node.this]


def _bracket(node: exp.Expr) -> list[exp.Expr]:
    (place, *more) = node.expressions
    is_text = isinstance(place, exp.Literal) and place.is_string
    if more or node.args.get("offset") or not (is_text or whole_number(place) is not None):
        raise UnusableRule(f"`{shown_sql(node)}`: write `a[0]` or `m['key']`")
    return [node.this]


def _cast(node: exp.Expr) -> list[exp.Expr]:
    kind = node.args["to"]
    if kind.this is D.DECIMAL:
        precision, scale = decimal_digits(kind)
        if not (0 < precision <= MAX_PRECISION and scale <= precision):
            raise UnusableRule(
                f"`{shown_sql(kind)}` is not a type: it has up to {MAX_PRECISION} digits"
            )
    elif kind.this not in CASTS:
        raise UnusableRule(f"a rule cannot cast to `{shown_sql(kind)}`")
    if any(node.args.get(each) for each in ("format", "action", "default")):
        raise UnusableRule(f"`{shown_sql(node)}` has more than a type")
    return [node.this]


def _in(node: exp.Expr) -> list[exp.Expr]:
    if any(node.args.get(each) for each in ("query", "unnest", "field")):
        raise UnusableRule("it reads other rows; a rule sees a single row")
    for each in node.expressions:
        literal = each.this if isinstance(each, exp.Neg | exp.Cast) else each
        if not isinstance(literal, exp.Literal | exp.Null | exp.Boolean):
            raise UnusableRule(f"`{shown_sql(each)}` in the list of IN is not a literal")
    return [node.this, *node.expressions]


def _is(node: exp.Expr) -> list[exp.Expr]:
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        raise UnusableRule(f"`{shown_sql(node)}`: IS takes NULL, TRUE or FALSE")
    return [node.this]


def _between(node: exp.Expr) -> list[exp.Expr]:
    if node.args.get("symmetric"):
        raise UnusableRule("BETWEEN SYMMETRIC is not supported in a rule")
    return [node.this, node.args["low"], node.args["high"]]


def _pattern(node: exp.Expr) -> list[exp.Expr]:
    _require_text(node.expression)
    if node.args.get("flag"):
        raise UnusableRule("a pattern cannot have flags beside it: write `(?i)` in it")
    if isinstance(node, exp.RegexpLike):
        try:
            rust_pattern(node.expression.name)
        except UnsupportedPattern as error:
            raise UnusableRule(f"the pattern {shown(node.expression.name)}: {error}") from None
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
        # Spark reads 'it''s' as a text with a quote in it, sqlglot as two texts.
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
        raise UnusableRule(f"`{shown_sql(node)}`: only `round` takes digits, as a whole number")
    if node.args.get("to") is not None or node.args.get("truncate") is not None:
        raise UnusableRule(f"`{shown_sql(node)}` is not supported in a rule")
    return [node.this]


def _to_date(node: exp.Expr) -> list[exp.Expr]:
    if node.args.get("format") is not None:
        raise UnusableRule("`to_date` cannot have a format in a rule")
    return [node.this]


def _require_text(node: exp.Expr) -> None:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise UnusableRule(f"`{shown_sql(node)}` must be a text in quotes")


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
"""By the key of an expression: raises, or returns the expressions inside."""

_BOOLEAN = """
    and or not eq neq lt lte gt gte nullsafeeq nullsafeneq between boolean escape ilike in is
    like regexplike
"""
_PERHAPS_BOOLEAN = "bracket case cast coalesce column dot if null nullif paren trycast"
_NOT_BOOLEAN = """
    abs add arraysize ceil concat day dayofmonth dayofweek dayofyear div dpipe floor hour length
    literal lower minute mod month mul neg quarter round second sub substring trim tsordstodate
    upper year
"""
_CHANGING = """
    currentdate currentdatetime currenttime currenttimestamp currentuser rand randn uuid
    input_file_name monotonically_increasing_id now
"""
_VALUES = frozenset(_NOT_BOOLEAN.split())
_SUPPORTED = _VALUES | frozenset(f"{_BOOLEAN} {_PERHAPS_BOOLEAN}".split())
"""Keys of expressions that a rule may have."""
_NONDETERMINISTIC = frozenset(_CHANGING.split())


@lru_cache(maxsize=1024)
def parse_rule(rule: str) -> exp.Expr:
    """Parse a rule of `expect`; raise `UnusableRule` if it cannot be evaluated without Spark."""
    try:
        statements = parse_spark(rule)
        found = statements[0] if len(statements) == 1 else None
        if found is None:
            raise UnusableRule("it must be a single expression")
        _check_depth(found)
        _check(found, as_truth=True)
    except SqlglotError as error:
        raise UnusableRule(f"it is not valid SQL: {_first_error(error)}") from error
    except InvalidPipeline as error:
        raise UnusableRule(f"it {error.message}") from error
    except RecursionError as error:
        raise UnusableRule("it is nested too deep") from error
    return found


def _check_depth(tree: exp.Expr) -> None:
    """Keep expressions from overflowing DataFusion's stack; a chain of ANDs or ORs is one level."""
    levels = [(tree, 1)]
    while levels:
        node, depth = levels.pop()
        if depth > _MAX_DEPTH:
            raise UnusableRule("it is nested too deep")
        for child in node.iter_expressions():
            is_chain = isinstance(node, exp.Connector) and type(child) is type(node)
            levels.append((child, depth if is_chain else depth + 1))


def _check(node: exp.Expr, as_truth: bool = False) -> None:
    try:
        _check_parts(node, as_truth)
    except UnusableRule as error:
        error.inside = error.inside or position(node)
        raise


def _check_parts(node: exp.Expr, as_truth: bool) -> None:
    key = node.key
    if key not in _SUPPORTED:
        raise UnusableRule(_refusal(node))
    if as_truth and key in _VALUES:
        raise UnusableRule(f"`{shown_sql(node)}` is neither true nor false")
    asked: list[exp.Expr] = []
    others: list[exp.Expr] = []
    match node:
        case exp.And() | exp.Or():
            asked = list(node.flatten(unnest=False))
        case exp.Not():
            asked = [node.this]
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


def _refusal(node: exp.Expr) -> str:
    if isinstance(node, exp.AggFunc | exp.Window | exp.Query | exp.Subquery | exp.Exists):
        return f"`{shown_sql(node)}` reads other rows; a rule sees a single row"
    name = node.name if isinstance(node, exp.Anonymous) else node.key
    if name.lower() in _NONDETERMINISTIC:
        return f"`{shown_sql(node)}` changes between calls: a rule depends on the row alone"
    if isinstance(node, exp.Func):
        return f"the function of `{shown_sql(node)}` is not supported in a rule"
    return f"`{shown_sql(node)}` is not supported in a rule"


def _first_error(error: SqlglotError) -> str:
    errors = getattr(error, "errors", None)
    if not errors:
        return str(error).splitlines()[0]
    first = errors[0]
    said = str(first.get("description", "")).split(" for <")[0].rstrip(".")
    return f"{said} at line {first.get('line')}, column {first.get('col')}"
