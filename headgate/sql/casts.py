"""Casts between the types of a rule, in DataFusion's SQL: as Spark casts, but null on failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from headgate.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    NULL,
    TEXT,
    Type,
    TypeFamily,
    decimal,
)

JAVA_TEXT = "headgate_java_text"
"""A double as Java writes it, which DataFusion does not."""
DECODE = "headgate_decode"
"""Bytes as text, with U+FFFD for those that are not UTF-8."""
PLAIN_NUMBER = "headgate_plain_number"
"""A number written without an exponent, the only form that DataFusion casts to a decimal."""
ROUND = "headgate_round"
"""A double rounded half up by the digits it is written with."""

_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_WHITESPACE = "' \t\n\x0b\x0c\r'"
_DATE = r"(?s)^(?:([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?|.*)$"
_TIMESTAMP = (
    r"(?s)^(?:([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-5]?[0-9])(?:\.([0-9]{0,6})[0-9]*)?)?"
    r"\s*(?:Z|UTC|([+-][0-9]{1,2}:[0-9]{2}))?)?|.*)$"
)
_EXACT_DOUBLE_DIGITS = 15

Literal = int | float | Decimal | str


@dataclass(frozen=True)
class Value:
    """An expression in DataFusion's SQL."""

    sql: str
    type: Type
    literal: Literal | None = None
    is_column: bool = False

    @property
    def is_null(self) -> bool:
        """Whether it is null in every row."""
        return self.sql in ("NULL", f"CAST(NULL AS {self.type.sql})")

    @property
    def is_cheap(self) -> bool:
        """Whether it may be repeated in the SQL."""
        return self.is_column or self.literal is not None or self.is_null


def null(kind: Type) -> Value:
    return Value(f"CAST(NULL AS {kind.sql})" if kind.is_comparable else "NULL", kind)


def quoted(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


NOTHING = Value("NULL", NULL)
UNKNOWN = null(BOOLEAN)


def text_literal(text: str) -> Value:
    return Value(quoted(text), TEXT, text)


def number_literal(number: int | Decimal) -> Value:
    """Return an integer of 64 bits if it is one, or a decimal with the digits it has."""
    if isinstance(number, int):
        if -(1 << 63) < number < 1 << 63:
            return Value(f"{number}", BIGINT, number)
        number = Decimal(number)
    _, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    kind = decimal(max(len(digits) + max(0, int(exponent)), scale), scale)
    return Value(f"CAST('{number:f}' AS {kind.sql})", kind, number)


def double_literal(number: float) -> Value:
    plain = repr(number) if math.isfinite(number) else f"CAST('{number}' AS DOUBLE)"
    return Value(plain, DOUBLE, number)


def cast(value: Value, to: Type) -> Value:
    """Return the value in another type; null where it has no counterpart there."""
    if value.type == to:
        return value
    if value.type.kind is TypeFamily.NULL:
        return null(to)
    if value.literal is not None and (folded := _cast_literal(value.literal, to)):
        return folded
    function = _CASTS.get((value.type.kind, to.kind))
    return NOTHING if function is None else Value(function(value, to), to)


def _cast_literal(literal: Literal, to: Type) -> Value | None:
    if to == DOUBLE and not isinstance(literal, str):
        return double_literal(float(literal))
    return None


def trimmed(sql: str) -> str:
    """Return a text without the whitespace around it that Spark's casts ignore."""
    return f"btrim({sql}, {_WHITESPACE})"


def _try_cast(value: Value, to: Type) -> str:
    return f"TRY_CAST({value.sql} AS {to.sql})"


def _text_to_decimal(value: Value, to: Type) -> str:
    return f"TRY_CAST({PLAIN_NUMBER}({trimmed(value.sql)}) AS {to.sql})"


def _text_to_boolean(value: Value, _: Type) -> str:
    words = [f"WHEN '{word}' THEN TRUE" for word in _TRUE]
    words += [f"WHEN '{word}' THEN FALSE" for word in _FALSE]
    return f"CASE lower({trimmed(value.sql)}) {' '.join(words)} END"


def _text_to_date(value: Value, _: Type) -> str:
    """Pads month and day with a zero, and leaves out the time."""
    sql = f"regexp_replace({trimmed(value.sql)}, '{_DATE}', '${{1}}-0${{2}}-0${{3}}')"
    sql = f"regexp_replace({sql}, '-0([0-9]{{2}})', '-${{1}}', 'g')"
    return rf"TRY_CAST(regexp_replace({sql}, '-0\b', '-01', 'g') AS DATE)"


def _text_to_timestamp(value: Value, to: Type) -> str:
    """Pads every part with a zero and adds those that are left out."""
    parts = "${1}-0${2}-0${3} 0${4}:0${5}:0${6}.${7}000${8}"
    sql = f"regexp_replace({trimmed(value.sql)}, '{_TIMESTAMP}', '{parts}')"
    sql = rf"regexp_replace({sql}, '\b0([0-9]{{2}})\b', '${{1}}', 'g')"
    sql = rf"regexp_replace({sql}, '\b0\b', '00', 'g')"
    sql = f"regexp_replace({sql}, '([+-])([0-9]):([0-9]{{2}})$', '${{1}}0${{2}}:${{3}}')"
    return f"TRY_CAST({sql} AS {to.sql})"


def _float_to_text(value: Value, _: Type) -> str:
    single = "TRUE" if value.type.bits == 32 else "FALSE"
    return f"{JAVA_TEXT}(CAST({value.sql} AS DOUBLE), {single})"


def _timestamp_to_text(value: Value, _: Type) -> str:
    """Without the zeros at the end of the fraction."""
    plain = f"replace(CAST({value.sql} AS VARCHAR), 'T', ' ')"
    return rf"rtrim(regexp_replace({plain}, '(\.[0-9]*?)0+$', '${{1}}'), '.')"


def _decimal_to_float(value: Value, to: Type) -> str:
    """By way of a text where DataFusion may round twice."""
    exact = value.type.precision <= _EXACT_DOUBLE_DIGITS
    sql = value.sql if exact else f"CAST({value.sql} AS VARCHAR)"
    return f"CAST(CAST({sql} AS DOUBLE) AS {to.sql})"


def _float_to_decimal(value: Value, to: Type) -> str:
    """By the digits that the double is written with: 2.675 is 2.68, not 2.67."""
    text = f"CAST(CAST({value.sql} AS DOUBLE) AS VARCHAR)"
    return f"TRY_CAST({PLAIN_NUMBER}({text}) AS {to.sql})"


def _boolean_to_decimal(value: Value, to: Type) -> str:
    return f"TRY_CAST(CAST({value.sql} AS BIGINT) AS {to.sql})"


def _timestamp_to_integer(value: Value, to: Type) -> str:
    """Whole seconds, rounded down."""
    seconds = f"(CAST(date_trunc('second', {value.sql}) AS BIGINT) / 1000000)"
    return f"TRY_CAST({seconds} AS {to.sql})"


def _timestamp_to_float(value: Value, to: Type) -> str:
    return f"CAST(CAST(CAST({value.sql} AS BIGINT) AS DOUBLE) / 1e6 AS {to.sql})"


def _number_to_boolean(value: Value, _: Type) -> str:
    zero = "0" if value.type.kind is TypeFamily.INTEGER else f"CAST('0' AS {value.type.sql})"
    sql = f"{value.sql} + {zero}" if value.type.kind is TypeFamily.FLOAT else value.sql
    return f"({sql} <> {zero})"


K = TypeFamily
_CASTS: dict[tuple[TypeFamily, TypeFamily], Callable[[Value, Type], str]] = {
    (K.TEXT, K.INTEGER): _try_cast,
    (K.TEXT, K.FLOAT): _try_cast,
    (K.TEXT, K.DECIMAL): _text_to_decimal,
    (K.TEXT, K.BOOLEAN): _text_to_boolean,
    (K.TEXT, K.DATE): _text_to_date,
    (K.TEXT, K.TIMESTAMP): _text_to_timestamp,
    (K.TEXT, K.BINARY): _try_cast,
    (K.BINARY, K.TEXT): lambda value, _: f"{DECODE}({value.sql})",
    (K.FLOAT, K.TEXT): _float_to_text,
    (K.TIMESTAMP, K.TEXT): _timestamp_to_text,
    **{(kind, K.TEXT): _try_cast for kind in (K.INTEGER, K.DECIMAL, K.BOOLEAN, K.DATE)},
    **{(kind, K.INTEGER): _try_cast for kind in (K.INTEGER, K.FLOAT, K.DECIMAL, K.BOOLEAN)},
    (K.TIMESTAMP, K.INTEGER): _timestamp_to_integer,
    **{(kind, K.FLOAT): _try_cast for kind in (K.INTEGER, K.FLOAT)},
    (K.BOOLEAN, K.FLOAT): lambda value, to: f"CAST(CAST({value.sql} AS BIGINT) AS {to.sql})",
    (K.DECIMAL, K.FLOAT): _decimal_to_float,
    (K.TIMESTAMP, K.FLOAT): _timestamp_to_float,
    **{(kind, K.DECIMAL): _try_cast for kind in (K.INTEGER, K.DECIMAL)},
    (K.FLOAT, K.DECIMAL): _float_to_decimal,
    (K.BOOLEAN, K.DECIMAL): _boolean_to_decimal,
    **{(kind, K.BOOLEAN): _number_to_boolean for kind in (K.INTEGER, K.FLOAT, K.DECIMAL)},
    (K.TIMESTAMP, K.DATE): _try_cast,
    (K.DATE, K.TIMESTAMP): _try_cast,
    (K.TIMESTAMP, K.TIMESTAMP): _try_cast,
}
