"""Types of the values in a rule, and the type in which Spark compares two of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import reduce

MAX_PRECISION = 38
"""Digits of Spark's longest decimal."""
MAX_WIDE_PRECISION = 76
"""Digits of the longest decimal that is compared or computed with on the way to a result."""
_MIN_FRACTION = 6
_INTEGERS = {8: ("TINYINT", 3), 16: ("SMALLINT", 5), 32: ("INT", 10), 64: ("BIGINT", 20)}


class TypeFamily(Enum):
    """Families of types that share their operations."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    FLOAT = auto()
    DECIMAL = auto()
    TEXT = auto()
    BINARY = auto()
    DATE = auto()
    TIMESTAMP = auto()
    STRUCT = auto()
    LIST = auto()
    MAP = auto()
    OTHER = auto()
    """Only IS NULL has a meaning."""


@dataclass(frozen=True)
class Type:
    """A type of values; timestamps are in UTC."""

    kind: TypeFamily
    bits: int = 0
    precision: int = 0
    scale: int = 0
    children: tuple[tuple[str, Type], ...] = ()
    """The fields of a struct, the item of a list, the key and the value of a map."""
    converted: bool = False
    """Whether the column holds another representation, to be cast where it is read."""

    @property
    def sql(self) -> str:
        """The name of the type in DataFusion."""
        match self.kind:
            case TypeFamily.INTEGER:
                return _INTEGERS[self.bits][0]
            case TypeFamily.FLOAT:
                return "REAL" if self.bits == 32 else "DOUBLE"
            case TypeFamily.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
        return _NAMES.get(self.kind, "NULL")

    @property
    def is_numeric(self) -> bool:
        return self.kind in (TypeFamily.INTEGER, TypeFamily.FLOAT, TypeFamily.DECIMAL)

    @property
    def is_comparable(self) -> bool:
        return self.kind in _NAMES or self.is_numeric

    @property
    def digits(self) -> tuple[int, int]:
        """Precision and scale of an integer or a decimal."""
        if self.kind is TypeFamily.DECIMAL:
            return self.precision, self.scale
        return _INTEGERS[self.bits][1], 0


_NAMES = {
    TypeFamily.BOOLEAN: "BOOLEAN",
    TypeFamily.TEXT: "VARCHAR",
    TypeFamily.BINARY: "BYTEA",
    TypeFamily.DATE: "DATE",
    TypeFamily.TIMESTAMP: "TIMESTAMP(6)",
}

NULL = Type(TypeFamily.NULL)
BOOLEAN = Type(TypeFamily.BOOLEAN)
TEXT = Type(TypeFamily.TEXT)
BINARY = Type(TypeFamily.BINARY)
DATE = Type(TypeFamily.DATE)
TIMESTAMP = Type(TypeFamily.TIMESTAMP)
BIGINT = Type(TypeFamily.INTEGER, bits=64)
FLOAT = Type(TypeFamily.FLOAT, bits=32)
DOUBLE = Type(TypeFamily.FLOAT, bits=64)
OTHER = Type(TypeFamily.OTHER)


def integer(bits: int) -> Type:
    return Type(TypeFamily.INTEGER, bits=bits)


def decimal(precision: int, scale: int) -> Type:
    return Type(TypeFamily.DECIMAL, precision=precision, scale=scale)


def common_type(types: Iterable[Type]) -> Type | None:
    """Return the type in which values are compared; None if they cannot be."""
    found: Type | None = NULL
    return reduce(_common, types, found)


def _common(one: Type | None, other: Type | None) -> Type | None:
    if one is None or other is None:
        return None
    if one == other or other.kind is TypeFamily.NULL:
        return one
    if one.kind is TypeFamily.NULL:
        return other
    if one.is_numeric and other.is_numeric:
        return _common_number(one, other)
    for each, against in ((one, other), (other, one)):
        if each.kind is TypeFamily.TEXT:
            return _beside_text(against)
        if each.kind is TypeFamily.TIMESTAMP and against.kind is TypeFamily.DATE:
            return TIMESTAMP
    return None


def _common_number(one: Type, other: Type) -> Type:
    if TypeFamily.FLOAT in (one.kind, other.kind):
        return DOUBLE
    if one.kind is other.kind is TypeFamily.INTEGER:
        return BIGINT
    (precision, scale), (other_precision, other_scale) = one.digits, other.digits
    fraction = max(scale, other_scale)
    whole = max(precision - scale, other_precision - other_scale)
    return decimal(min(whole + fraction, MAX_WIDE_PRECISION), fraction)


def _beside_text(against: Type) -> Type | None:
    """The type that a text is read as when the other value is not a text."""
    if against.kind is TypeFamily.INTEGER:
        return BIGINT
    if against.is_numeric:
        return DOUBLE
    return against if against.is_comparable else None


def arithmetic_type(operator: str, one: tuple[int, int], other: tuple[int, int]) -> Type:
    """Return Spark's decimal type for `add`, `sub`, `mul`, `div` or `mod` of two decimals."""
    (precision, scale), (other_precision, other_scale) = one, other
    whole, other_whole = precision - scale, other_precision - other_scale
    fraction = max(scale, other_scale)
    match operator:
        case "mul":
            return bounded(precision + other_precision + 1, scale + other_scale)
        case "div":
            digits = max(_MIN_FRACTION, scale + other_precision + 1)
            return bounded(whole + other_scale + digits, digits)
        case "mod":
            return bounded(min(whole, other_whole) + fraction, fraction)
    return bounded(max(whole, other_whole) + fraction + 1, fraction)


def bounded(precision: int, scale: int) -> Type:
    """Return a decimal type of at most 38 digits, which gives up fraction digits beyond six."""
    if precision <= MAX_PRECISION:
        return decimal(max(precision, 1), scale)
    least = min(scale, _MIN_FRACTION)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), least))
