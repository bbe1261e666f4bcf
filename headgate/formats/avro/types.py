"""Avro's types and logical types as immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])

MAX_PRECISION = 1_000
"""Wider decimals stay binary: converting bytes to digits takes quadratic time."""

_LOGICAL_TYPES = {
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("long", "local-timestamp-nanos"),
    ("string", "uuid"),
    ("bytes", "decimal"),
    ("fixed", "decimal"),
    ("fixed", "uuid"),
    ("fixed", "duration"),
}
"""Supported pairs of type and logical type."""
_FIXED_SIZES = {"uuid": 16, "duration": 12}


@dataclass(frozen=True)
class LogicalType:
    """A supported logical type; only a decimal has precision and scale."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Primitive:
    """One of the eight primitive types, with its logical type if it has one."""

    name: str
    logical: LogicalType | None = None


@dataclass(frozen=True)
class Fixed:
    name: str
    size: int
    logical: LogicalType | None = None


@dataclass(frozen=True)
class Enum:
    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Array:
    items: Type


@dataclass(frozen=True)
class Map:
    values: Type


@dataclass(frozen=True)
class Union:
    branches: tuple[Type, ...]


@dataclass(frozen=True)
class RecordField:
    name: str
    type: Type


@dataclass(frozen=True)
class Record:
    name: str
    fields: tuple[RecordField, ...]
    min_size: int = field(compare=False)
    """Stored when the record is parsed: computing it later could take exponential time."""


@dataclass(frozen=True)
class Reference:
    """A named type that is defined elsewhere, or that encloses the reference."""

    name: str


@dataclass(frozen=True)
class JsonTextType:
    """A recursive field, stored as JSON text because a column type cannot be recursive."""

    type: Type


Named = Fixed | Enum | Record
Type = Primitive | Array | Map | Union | Reference | JsonTextType | Named


def logical_type(
    type_name: str, definition: Mapping[str, Any], size: int | None = None
) -> LogicalType | None:
    """Return the logical type of a definition; None if it is missing, unknown or misplaced.

    Avro's specification asks readers to fall back to the underlying type then.
    """
    name = definition.get("logicalType")
    if not isinstance(name, str) or (type_name, name) not in _LOGICAL_TYPES:
        return None
    if name == "decimal":
        return _decimal(definition.get("precision"), definition.get("scale", 0), size)
    return LogicalType(name) if size in (None, _FIXED_SIZES.get(name)) else None


def _decimal(precision: Any, scale: Any, size: int | None) -> LogicalType | None:
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        return None
    if size is not None and not _fits(precision, size):
        return None
    return LogicalType("decimal", precision, scale)


def _fits(precision: int, size: int) -> bool:
    """Whether `size` bytes can hold every number of `precision` digits."""
    always_enough = MAX_PRECISION // 2
    return size > 0 and (size > always_enough or 10**precision <= 1 << (8 * size - 1))


def min_size(avro_type: Type, named: Mapping[str, Named]) -> int:
    """Return a lower bound for the encoded size of a value, in bytes."""
    match avro_type:
        case Primitive("null"):
            return 0
        case Primitive("float"):
            return 4
        case Primitive("double"):
            return 8
        case Fixed(size=size):
            return size
        case Record(min_size=size):
            return size
        case Reference(name) if name in named:
            return min_size(named[name], named)
        case _:
            # An enclosing record has at least the byte that ends the recursion.
            return 1
