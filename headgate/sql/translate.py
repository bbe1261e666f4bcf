"""Translates a rule from Spark's SQL to DataFusion's, for the types of a table's columns.

DataFusion differs from Spark in how it compares NaN and mixed types, in overflow, in casts and in
what fails. The translation writes every conversion out, so that no row makes a rule an error: what
cannot be computed is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from headgate.sql.arithmetic import (
    OPERATORS,
    absolute,
    calculate,
    negate,
    round_half_up,
    round_to_integer,
)
from headgate.sql.builder import COMPARISONS, Builder
from headgate.sql.casts import (
    NOTHING,
    UNKNOWN,
    Value,
    cast,
    double_literal,
    number_literal,
    quoted,
    text_literal,
)
from headgate.sql.patterns import rust_pattern
from headgate.sql.rules import CASTS, decimal_digits, whole_number
from headgate.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    MAX_WIDE_PRECISION,
    TEXT,
    TIMESTAMP,
    Type,
    TypeFamily,
    common_type,
    decimal,
)

_DATE_PARTS = {
    **{name: name for name in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "dayofmonth": "day",
    "dayofweek": "dow",
    "dayofyear": "doy",
}


@dataclass
class Translation(Builder):
    """Translates rules over the same columns."""

    columns: Mapping[str, Value] = field(default_factory=dict)
    """By name as the table has it."""

    def condition(self, node: exp.Expr) -> str:
        """Return SQL that is true, false or null as the rule is."""
        return self.truth(node).sql

    def truth(self, node: exp.Expr) -> Value:
        value = self.value(node)
        return value if value.type == BOOLEAN else UNKNOWN

    def value(self, node: exp.Expr) -> Value:
        return _TRANSLATIONS[node.key](self, node)


# Columns, and values inside of them


def _column(to: Translation, node: exp.Expr) -> Value:
    assert isinstance(node, exp.Column)
    name, *fields = (part.name for part in node.parts)
    found = _lookup(name, list(to.columns))
    value = NOTHING if found is None else _read(to.columns[found])
    for each in fields:
        value = _field(to, value, each)
    return value


def _dot(to: Translation, node: exp.Expr) -> Value:
    return _field(to, to.value(node.this), node.expression.name)


def _bracket(to: Translation, node: exp.Expr) -> Value:
    (place,) = node.expressions
    number = whole_number(place)
    value = to.value(node.this)
    key = text_literal(place.name) if number is None else number_literal(number)
    return _item(to, value, key)


def _field(to: Translation, value: Value, name: str) -> Value:
    """DataFusion gives the field of a struct that is null a value."""
    if value.type.kind is TypeFamily.MAP:
        return _item(to, value, text_literal(name))
    names = [each for each, _ in value.type.children]
    found = _lookup(name, names) if value.type.kind is TypeFamily.STRUCT else None
    if not found:
        return NOTHING
    struct = to.once(value).sql
    sql = f"CASE WHEN {struct} IS NOT NULL THEN get_field({struct}, {quoted(found)}) END"
    return _read(Value(sql, value.type.children[names.index(found)][1]))


def _item(to: Translation, value: Value, place: Value) -> Value:
    match value.type.kind:
        case TypeFamily.MAP:
            (_, key_type), (_, item_type) = value.type.children
            key = to.fold(cast(place, key_type)) if key_type.is_comparable else NOTHING
            if key.is_null:
                return NOTHING
            sql = f"array_element(map_extract({value.sql}, {key.sql}), 1)"
            return _read(Value(sql, item_type))
        case TypeFamily.LIST if isinstance(place.literal, int) and place.literal >= 0:
            (_, item_type) = value.type.children[0]
            return _read(Value(f"array_element({value.sql}, {place.literal + 1})", item_type))
    return NOTHING


def _size(to: Translation, node: exp.Expr) -> Value:
    value = to.value(node.this)
    functions = {TypeFamily.LIST: "array_length", TypeFamily.MAP: "cardinality"}
    if value.type.kind not in functions:
        return NOTHING
    return Value(f"CAST({functions[value.type.kind]}({value.sql}) AS BIGINT)", BIGINT)


def _lookup(name: str, names: list[str]) -> str | None:
    """Return the name in its own case, or else in any case, as Spark finds it."""
    if name in names:
        return name
    return next((each for each in names if each.lower() == name.lower()), None)


def _read(value: Value) -> Value:
    if not value.type.converted:
        return value
    kind = Type(value.type.kind, value.type.bits, value.type.precision, value.type.scale)
    return Value(f"TRY_CAST({value.sql} AS {kind.sql})", kind)


# Literals, comparisons and logic


def _literal(_: Translation, node: exp.Expr) -> Value:
    if node.is_string:
        return text_literal(node.name)
    return _number(node.name)


def _number(text: str) -> Value:
    if "e" in text.lower():
        return double_literal(float(text))
    value = number_literal(int(text) if text.isdecimal() else Decimal(text))
    too_long = value.type.kind is TypeFamily.DECIMAL and value.type.precision > MAX_WIDE_PRECISION
    return NOTHING if too_long else value


def _comparison(to: Translation, node: exp.Expr) -> Value:
    return to.compared(node.key, to.value(node.this), to.value(node.expression))


def _null_safe(to: Translation, node: exp.Expr) -> Value:
    same = to.same(to.value(node.this), to.value(node.expression))
    return Value(f"(NOT {same.sql})", BOOLEAN) if node.key == "nullsafeneq" else same


def _logic(to: Translation, node: exp.Expr) -> Value:
    """As a balanced tree: planning takes longer the deeper an expression is."""
    assert isinstance(node, exp.Connector)
    terms = [to.truth(each).sql for each in node.flatten(unnest=False)]
    return Value(_balanced(terms, node.key.upper()), BOOLEAN)


def _balanced(terms: list[str], operator: str) -> str:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return f"({_balanced(terms[:half], operator)} {operator} {_balanced(terms[half:], operator)})"


def _not(to: Translation, node: exp.Expr) -> Value:
    return Value(f"(NOT {to.truth(node.this).sql})", BOOLEAN)


def _is(to: Translation, node: exp.Expr) -> Value:
    if isinstance(node.expression, exp.Null):
        return Value(f"({to.value(node.this).sql} IS NULL)", BOOLEAN)
    word = "TRUE" if node.expression.this else "FALSE"
    return Value(f"({to.truth(node.this).sql} IS {word})", BOOLEAN)


def _in(to: Translation, node: exp.Expr) -> Value:
    sides = to.alike([to.value(each) for each in (node.this, *node.expressions)])
    if sides is None:
        return UNKNOWN
    value, *listed = sides
    return Value(f"({value.sql} IN ({', '.join(each.sql for each in listed)}))", BOOLEAN)


def _between(to: Translation, node: exp.Expr) -> Value:
    value = to.once(to.value(node.this))
    low, high = (to.value(node.args[each]) for each in ("low", "high"))
    sides = to.compared("gte", value, low), to.compared("lte", value, high)
    return Value(f"({sides[0].sql} AND {sides[1].sql})", BOOLEAN)


def _case(to: Translation, node: exp.Expr) -> Value:
    operand = None if node.this is None else to.once(to.value(node.this))
    branches: list[tuple[Value | None, Value]] = []
    for branch in node.args["ifs"]:
        if operand is None:
            condition = to.truth(branch.this)
        else:
            condition = to.compared("eq", operand, to.value(branch.this))
        branches.append((condition, to.value(branch.args["true"])))
    if node.args.get("default") is not None:
        branches.append((None, to.value(node.args["default"])))
    return to.chosen(branches)


def _if(to: Translation, node: exp.Expr) -> Value:
    branches: list[tuple[Value | None, Value]]
    branches = [(to.truth(node.this), to.value(node.args["true"]))]
    if node.args.get("false") is not None:
        branches.append((None, to.value(node.args["false"])))
    return to.chosen(branches)


def _coalesce(to: Translation, node: exp.Expr) -> Value:
    values = [to.value(each) for each in (node.this, *node.expressions)]
    kind = common_type(value.type for value in values)
    if kind is None:
        return NOTHING
    # A text that has no counterpart in the common type is null there, and the next value counts.
    values = [to.once(to.cast(value, kind)) for value in values]
    return to.chosen([(Value(f"({value.sql} IS NOT NULL)", BOOLEAN), value) for value in values])


def _nullif(to: Translation, node: exp.Expr) -> Value:
    value = to.once(to.value(node.this))
    same = to.compared("eq", value, to.value(node.expression))
    return to.chosen([(Value(f"({same.sql} IS NOT TRUE)", BOOLEAN), value)])


# Numbers


def _arithmetic(to: Translation, node: exp.Expr) -> Value:
    return calculate(to, node.key, to.value(node.this), to.value(node.expression))


def _whole(to: Translation, node: exp.Expr) -> Value:
    return round_to_integer(to, node.key, to.value(node.this))


def _round(to: Translation, node: exp.Expr) -> Value:
    digits = whole_number(node.args.get("decimals")) or 0
    return round_half_up(to, to.value(node.this), digits)


# Texts


def _of_text(write: Callable[[str], str]) -> Callable[..., Value]:
    """Translate a function of one text; other values are taken as they are written."""

    def translate(to: Translation, node: exp.Expr) -> Value:
        text = to.text(to.value(node.this))
        return NOTHING if text is None else Value(write(text.sql), TEXT)

    return translate


def _length(to: Translation, node: exp.Expr) -> Value:
    """Characters of a text, bytes of binary values."""
    value = to.value(node.this)
    if value.type.kind is TypeFamily.BINARY:
        return Value(f"CAST(character_length(encode({value.sql}, 'hex')) / 2 AS BIGINT)", BIGINT)
    text = to.text(value)
    return (
        NOTHING if text is None else Value(f"CAST(character_length({text.sql}) AS BIGINT)", BIGINT)
    )


def _like(to: Translation, node: exp.Expr, escape: str = "\\") -> Value:
    text = to.text(to.value(node.this))
    if text is None:
        return UNKNOWN
    pattern = str(node.expression.name)
    if escape != "\\":
        found = re.compile(re.escape(escape) + r"(.)|(\\)", re.DOTALL)
        pattern = found.sub(lambda each: f"\\{each[1] or each[2]}", pattern)
    left, right = text.sql, quoted(pattern)
    if isinstance(node, exp.ILike):
        left, right = f"lower({left})", f"lower({right})"
    return Value(f"({left} LIKE {right})", BOOLEAN)


def _escape(to: Translation, node: exp.Expr) -> Value:
    return _like(to, node.this, str(node.expression.name))


def _regexp(to: Translation, node: exp.Expr) -> Value:
    text = to.text(to.value(node.this))
    pattern = quoted(rust_pattern(str(node.expression.name)))
    return UNKNOWN if text is None else Value(f"regexp_like({text.sql}, {pattern})", BOOLEAN)


def _trim(to: Translation, node: exp.Expr) -> Value:
    characters = node.args.get("expression")
    side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""))
    removed = quoted(" " if characters is None else str(characters.name))
    return _of_text(lambda text: f"{side or 'btrim'}({text}, {removed})")(to, node)


def _substring(to: Translation, node: exp.Expr) -> Value:
    """From a position that is counted from one, or from the end if it is negative."""
    start, length = (whole_number(node.args.get(each)) for each in ("start", "length"))
    text = to.text(to.value(node.this))
    if text is None or start is None:
        return NOTHING
    begin = f"{max(start, 1)}"
    if start < 0:
        text = to.once(text)
        begin = f"character_length({text.sql}) + {start + 1}"
    limit = "" if length is None else f", {max(length, 0)}"
    return Value(f"substr({text.sql}, {begin}{limit})", TEXT)


def _concat(to: Translation, node: exp.Expr) -> Value:
    texts = [to.text(to.value(each)) for each in node.expressions or (node.this, node.expression)]
    parts = [text.sql for text in texts if text is not None]
    return NOTHING if len(parts) < len(texts) else Value(f"({' || '.join(parts)})", TEXT)


# Times and casts


def _date_part(to: Translation, node: exp.Expr) -> Value:
    value = to.value(node.this)
    if value.type.kind not in (TypeFamily.TEXT, TypeFamily.DATE, TypeFamily.TIMESTAMP):
        return NOTHING
    part = f"date_part('{_DATE_PARTS[node.key]}', {to.cast(value, TIMESTAMP).sql})"
    first = " + 1" if node.key == "dayofweek" else ""
    return Value(f"CAST({part}{first} AS BIGINT)", BIGINT)


def _cast(to: Translation, node: exp.Expr) -> Value:
    kind = node.args["to"]
    target = CASTS.get(kind.this)
    return to.cast(to.value(node.this), target or decimal(*decimal_digits(kind)))


_TRANSLATIONS: dict[str, Callable[[Translation, exp.Expr], Value]] = {
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(OPERATORS, _arithmetic),
    **dict.fromkeys(_DATE_PARTS, _date_part),
    "abs": lambda to, node: absolute(to, to.value(node.this)),
    "and": _logic,
    "arraysize": _size,
    "between": _between,
    "boolean": lambda _, node: Value("TRUE" if node.this else "FALSE", BOOLEAN),
    "bracket": _bracket,
    "case": _case,
    "cast": _cast,
    "ceil": _whole,
    "coalesce": _coalesce,
    "column": _column,
    "concat": _concat,
    "dot": _dot,
    "dpipe": _concat,
    "escape": _escape,
    "floor": _whole,
    "if": _if,
    "ilike": _like,
    "in": _in,
    "is": _is,
    "length": _length,
    "like": _like,
    "literal": _literal,
    "lower": _of_text(lambda text: f"lower({text})"),
    "neg": lambda to, node: negate(to, to.value(node.this)),
    "not": _not,
    "null": lambda *_: NOTHING,
    "nullif": _nullif,
    "nullsafeeq": _null_safe,
    "nullsafeneq": _null_safe,
    "or": _logic,
    "paren": lambda to, node: to.value(node.this),
    "regexplike": _regexp,
    "round": _round,
    "substring": _substring,
    "trim": _trim,
    "trycast": _cast,
    "tsordstodate": lambda to, node: to.cast(to.value(node.this), DATE),
    "upper": _of_text(lambda text: f"upper({text})"),
}
"""By the key of an expression."""
