"""Translates a rule from Spark's SQL to DataFusion's, for the types of a table's columns.

DataFusion differs from Spark in how it compares NaN and mixed types, in overflow, in casts and in
what fails. The translation writes every conversion out, so that no row makes a rule an error: what
cannot be computed is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from headgate.sql.casts import (
    NOTHING,
    ROUND,
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
    DOUBLE,
    MAX_PRECISION,
    MAX_WIDE_PRECISION,
    NULL,
    TEXT,
    TIMESTAMP,
    Kind,
    Type,
    arithmetic_type,
    bounded,
    common_type,
    decimal,
)

_COMPARISONS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
_DATE_PARTS = {
    **{name: name for name in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "dayofmonth": "day",
    "dayofweek": "dow",
    "dayofyear": "doy",
}
_DIVISION_DIGITS = 4
"""Digits that a division in DataFusion adds to the scale of the dividend."""


@dataclass
class Translation:
    """Rules over the same columns; `steps` are computed first, each over those before it."""

    columns: Mapping[str, Value]
    """By name as the table has it."""
    fold: Callable[[Value], Value] = lambda value: value
    """Computes a value that is the same in every row."""
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Names and SQL of values that are used more than once."""

    def condition(self, node: exp.Expr) -> str:
        """Return SQL that is true, false or null as the rule is."""
        return self.truth(node).sql

    def truth(self, node: exp.Expr) -> Value:
        value = self.value(node)
        return value if value.type == BOOLEAN else UNKNOWN

    def value(self, node: exp.Expr) -> Value:
        return _TRANSLATIONS[node.key](self, node)

    def cast(self, value: Value, to: Type) -> Value:
        found = cast(value, to)
        return self.fold(found) if isinstance(value.literal, str) and found.type == to else found

    def once(self, value: Value) -> Value:
        """Return a value that can be used several times at the cost of one."""
        if value.is_cheap:
            return value
        for name, sql in self.steps:
            if sql == value.sql:
                return Value(name, value.type, is_column=True)
        name = f"v{len(self.steps)}"
        self.steps.append((name, value.sql))
        return Value(name, value.type, is_column=True)

    def number(self, value: Value, beside: Value) -> Value:
        """Return a text as the number that it stands for."""
        if value.type.kind is Kind.TEXT:
            return self.cast(value, BIGINT if beside.type.kind is Kind.INTEGER else DOUBLE)
        return value

    def text(self, value: Value) -> Value | None:
        """Return a value as it is written; None if it cannot be."""
        found = self.cast(value, TEXT)
        return found if found.type == TEXT else None

    def compared(self, operator: str, one: Value, other: Value) -> Value:
        """Compare by `eq`, `lt`, …; null where a side is, or where the types have no order."""
        sides = self.alike([one, other])
        if sides is None:
            return UNKNOWN
        one, other = sides
        return Value(f"({one.sql} {_COMPARISONS[operator]} {other.sql})", BOOLEAN)

    def same(self, one: Value, other: Value) -> Value:
        """Compare with null as a value like others."""
        one, other = self.once(one), self.once(other)
        both_null = f"({one.sql} IS NULL AND {other.sql} IS NULL)"
        # A text that has no counterpart in the type of the other side is null only there.
        return Value(f"({both_null} OR {self.compared('eq', one, other).sql} IS TRUE)", BOOLEAN)

    def alike(self, values: Sequence[Value]) -> list[Value] | None:
        """Return values in the type in which they are compared, if there is one."""
        kind = common_type(value.type for value in values)
        if kind is None or not kind.is_comparable:
            return None
        return [_ordered(value, self.cast(value, kind)) for value in values]

    def chosen(self, branches: Sequence[tuple[Value | None, Value]]) -> Value:
        """Return CASE: the value of the first condition that is true, or of the one without."""
        kind = common_type(value.type for _, value in branches)
        if kind is None or kind is NULL:
            return NOTHING
        parts = [
            f"ELSE {self.cast(value, kind).sql}"
            if condition is None
            else f"WHEN {condition.sql} THEN {self.cast(value, kind).sql}"
            for condition, value in branches
        ]
        return Value(f"CASE {' '.join(parts)} END", kind)


def _ordered(value: Value, converted: Value) -> Value:
    """NaN equals NaN and sorts above all numbers, and there is one zero, once these are unified."""
    is_float = converted.type.kind is Kind.FLOAT and value.type.kind in (Kind.FLOAT, Kind.TEXT)
    if not is_float or converted.literal is not None:
        return converted
    kind = converted.type.sql
    zero, nan = (f"CAST('{each}' AS {kind})" for each in ("0", "NaN"))
    return Value(f"nanvl({converted.sql} + {zero}, {nan})", converted.type)


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
    if value.type.kind is Kind.MAP:
        return _item(to, value, text_literal(name))
    names = [each for each, _ in value.type.children]
    found = _lookup(name, names) if value.type.kind is Kind.STRUCT else None
    if not found:
        return NOTHING
    struct = to.once(value).sql
    sql = f"CASE WHEN {struct} IS NOT NULL THEN get_field({struct}, {quoted(found)}) END"
    return _read(Value(sql, value.type.children[names.index(found)][1]))


def _item(to: Translation, value: Value, place: Value) -> Value:
    match value.type.kind:
        case Kind.MAP:
            (_, key_type), (_, item_type) = value.type.children
            key = to.fold(cast(place, key_type)) if key_type.is_comparable else NOTHING
            if key.is_null:
                return NOTHING
            sql = f"array_element(map_extract({value.sql}, {key.sql}), 1)"
            return _read(Value(sql, item_type))
        case Kind.LIST if isinstance(place.literal, int) and place.literal >= 0:
            (_, item_type) = value.type.children[0]
            return _read(Value(f"array_element({value.sql}, {place.literal + 1})", item_type))
    return NOTHING


def _size(to: Translation, node: exp.Expr) -> Value:
    value = to.value(node.this)
    functions = {Kind.LIST: "array_length", Kind.MAP: "cardinality"}
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
    too_long = value.type.kind is Kind.DECIMAL and value.type.precision > MAX_WIDE_PRECISION
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
    return _calculated(to, node.key, to.value(node.this), to.value(node.expression))


def _calculated(to: Translation, operator: str, one: Value, other: Value) -> Value:
    one, other = to.number(one, other), to.number(other, one)
    if not (one.type.is_numeric and other.type.is_numeric):
        return NOTHING
    kind = common_type([one.type, other.type])
    if kind is None or kind.kind is Kind.DECIMAL:
        return _of_decimals(to, operator, one, other)
    if kind.kind is Kind.INTEGER and operator == "div":
        kind = DOUBLE
    if kind.kind is Kind.INTEGER:
        return _of_integers(to, operator, one, other)
    left, right = (to.cast(each, kind).sql for each in (one, other))
    if operator in ("div", "mod"):
        zero = f"CAST('0' AS {kind.sql})"
        right = f"nullif({right} + {zero}, {zero})"
    return Value(f"({left} {_OPERATORS[operator]} {right})", kind)


def _of_integers(to: Translation, operator: str, one: Value, other: Value) -> Value:
    """DataFusion wraps around on overflow, but not in decimals."""
    left, right = (to.cast(each, BIGINT).sql for each in (one, other))
    if operator == "mod":
        return Value(f"({left} % nullif({right}, 0))", BIGINT)
    sign = _OPERATORS[operator]
    if _is_short(one) and _is_short(other):
        return Value(f"({left} {sign} {right})", BIGINT)
    wide = f"CAST({left} AS DECIMAL(20, 0)) {sign} CAST({right} AS DECIMAL(20, 0))"
    return Value(f"TRY_CAST({wide} AS BIGINT)", BIGINT)


def _is_short(value: Value) -> bool:
    """Whether it has 32 bits at most, so that sums and products of two have 64."""
    is_small = isinstance(value.literal, int) and abs(value.literal) < 1 << 31
    return is_small or value.type.bits <= 32


def _of_decimals(to: Translation, operator: str, one: Value, other: Value) -> Value:
    one, other = _as_decimal(to, one), _as_decimal(to, other)
    kind = arithmetic_type(operator, one.type.digits, other.type.digits)
    if operator == "div":
        return _quotient(to, one, other, kind)
    aligned = common_type([one.type, other.type])
    if kind.precision == MAX_PRECISION or (aligned and aligned.precision > MAX_PRECISION):
        one, other = _wide(one), _wide(other)
    divisor = _nonzero(other) if operator == "mod" else other.sql
    return Value(f"TRY_CAST({one.sql} {_OPERATORS[operator]} {divisor} AS {kind.sql})", kind)


def _quotient(to: Translation, one: Value, other: Value, kind: Type) -> Value:
    """Divide to a digit more than the result has, and round that half up."""
    needed = kind.scale + 1 - _DIVISION_DIGITS
    if (surplus := one.type.scale - needed) > 0:
        # Digits that the result does not need could be too many for the division.
        one = _shifted(one, surplus)
        other = _shifted(other, surplus)
    precision, scale = one.type.digits
    room = MAX_WIDE_PRECISION - needed - _DIVISION_DIGITS - other.type.scale
    if precision - scale > room:
        one = to.once(one)
        fits = f"abs({_wide(one).sql}) < {_power_of_ten(room)}"
        one = Value(f"CASE WHEN {fits} THEN {one.sql} END", one.type)
    dividend = f"CAST({one.sql} AS DECIMAL({MAX_WIDE_PRECISION}, {needed}))"
    return Value(f"TRY_CAST({dividend} / {_nonzero(_wide(other))} AS {kind.sql})", kind)


def _shifted(value: Value, digits: int) -> Value:
    """Return the value times a power of ten, with as many digits less in its fraction."""
    precision, scale = value.type.digits
    kind = decimal(max(precision, precision - scale + digits), max(scale - digits, 0))
    return Value(f"CAST({_wide(value).sql} * {_power_of_ten(digits)} AS {kind.sql})", kind)


def _power_of_ten(exponent: int) -> str:
    return f"CAST('1{'0' * exponent}' AS DECIMAL({MAX_WIDE_PRECISION}, 0))"


def _wide(value: Value) -> Value:
    kind = decimal(MAX_WIDE_PRECISION, value.type.scale)
    return Value(f"CAST({value.sql} AS {kind.sql})", kind)


def _nonzero(value: Value) -> str:
    return f"nullif({value.sql}, CAST('0' AS {value.type.sql}))"


def _as_decimal(to: Translation, value: Value) -> Value:
    """An integer in as many digits as its type may need, a literal in those it has."""
    precision, scale = value.type.digits
    if isinstance(value.literal, int):
        precision = len(str(abs(value.literal)))
    return to.cast(value, bounded(precision, scale))


def _negative(to: Translation, node: exp.Expr) -> Value:
    value = to.value(node.this)
    match value.literal:
        case int() | Decimal():
            return number_literal(-value.literal)
        case float():
            return double_literal(-value.literal)
    value = to.number(value, value)
    if value.type.kind is Kind.INTEGER:
        return _of_integers(to, "sub", number_literal(0), value)
    return Value(f"(- {value.sql})", value.type) if value.type.is_numeric else NOTHING


def _absolute(to: Translation, node: exp.Expr) -> Value:
    value = to.value(node.this)
    value = to.number(value, value)
    if value.type.kind is Kind.INTEGER:
        wide = f"abs(CAST({value.sql} AS DECIMAL(20, 0)))"
        return Value(f"TRY_CAST({wide} AS BIGINT)", BIGINT)
    return Value(f"abs({value.sql})", value.type) if value.type.is_numeric else NOTHING


def _whole(to: Translation, node: exp.Expr) -> Value:
    """FLOOR and CEIL; nine and a half becomes ten, which has a digit more."""
    value = to.value(node.this)
    value = to.number(value, value)
    if not value.type.is_numeric or value.type.kind is Kind.INTEGER:
        return value if value.type.is_numeric else NOTHING
    if value.type.kind is Kind.DECIMAL:
        value = to.cast(value, _with_a_digit_more(value.type, value.type.scale))
    return Value(f"{node.key}({value.sql})", value.type)


def _round(to: Translation, node: exp.Expr) -> Value:
    digits = whole_number(node.args.get("decimals")) or 0
    value = to.value(node.this)
    value = to.number(value, value)
    if value.type.kind is Kind.FLOAT:
        double = to.cast(value, DOUBLE).sql
        return Value(f"{ROUND}({double}, {digits})" if digits else f"round({double})", DOUBLE)
    if not value.type.is_numeric or (value.type.kind is Kind.INTEGER and digits >= 0):
        return value if value.type.is_numeric else NOTHING
    _, scale = value.type.digits
    kind = _with_a_digit_more(value.type, max(0, min(scale, digits)))
    if digits >= 0:
        return to.cast(value, kind)
    digits = min(-digits, MAX_PRECISION + 1)
    unit = _power_of_ten(digits)
    units = f"CAST({value.sql} AS DECIMAL({MAX_WIDE_PRECISION}, {scale})) / {unit}"
    return Value(f"TRY_CAST(CAST({units} AS DECIMAL(40, 0)) * {unit} AS {kind.sql})", kind)


def _with_a_digit_more(kind: Type, scale: int) -> Type:
    return decimal(min(kind.digits[0] + 1, MAX_WIDE_PRECISION), scale)


# Texts


def _of_text(write: Callable[[str], str], kind: Type = TEXT) -> Callable[..., Value]:
    """Translate a function of one text; other values are taken as they are written."""

    def translate(to: Translation, node: exp.Expr) -> Value:
        text = to.text(to.value(node.this))
        return NOTHING if text is None else Value(write(text.sql), kind)

    return translate


def _length(to: Translation, node: exp.Expr) -> Value:
    """Characters of a text, bytes of binary values."""
    value = to.value(node.this)
    if value.type.kind is Kind.BINARY:
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
    if value.type.kind not in (Kind.TEXT, Kind.DATE, Kind.TIMESTAMP):
        return NOTHING
    part = f"date_part('{_DATE_PARTS[node.key]}', {to.cast(value, TIMESTAMP).sql})"
    first = " + 1" if node.key == "dayofweek" else ""
    return Value(f"CAST({part}{first} AS BIGINT)", BIGINT)


def _cast(to: Translation, node: exp.Expr) -> Value:
    kind = node.args["to"]
    target = CASTS.get(kind.this)
    return to.cast(to.value(node.this), target or decimal(*decimal_digits(kind)))


_TRANSLATIONS: dict[str, Callable[[Translation, exp.Expr], Value]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(_OPERATORS, _arithmetic),
    **dict.fromkeys(_DATE_PARTS, _date_part),
    "abs": _absolute,
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
    "neg": _negative,
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
