"""Avro's types as small values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LARGEST_PRECISION = 1_000
"""Of more digits no text is made: to turn bytes into digits takes the square of their number."""

_PLACES = {
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
_SIZES = {"uuid": 16, "duration": 12}


@dataclass(frozen=True)
class Logical:
    """A logical type that counts; the numbers are those of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0


def logical_type(kind: str, said: Mapping[str, Any], size: int | None = None) -> Logical | None:
    """What the schema says on top of the plain type, if it means something there."""
    name = said.get("logicalType")
    if not isinstance(name, str) or (kind, name) not in _PLACES:
        return None
    if name == "decimal":
        return _decimal(said.get("precision"), said.get("scale", 0), size)
    return Logical(name) if size in (None, _SIZES.get(name)) else None


def _decimal(precision: Any, scale: Any, size: int | None) -> Logical | None:
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 1 <= precision <= LARGEST_PRECISION or not 0 <= scale <= precision:
        return None
    if size is not None and not _fits(precision, size):
        return None
    return Logical("decimal", precision, scale)


def _fits(precision: int, size: int) -> bool:
    """Whether a fixed of that many bytes has room for every number of that many digits."""
    enough = LARGEST_PRECISION // 2
    return size > 0 and (size > enough or 10**precision <= 1 << (8 * size - 1))


PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


@dataclass(frozen=True)
class Primitive:
    """One of Avro's eight plain types, perhaps with a meaning on top."""

    kind: str
    logical: Logical | None = None


@dataclass(frozen=True)
class Fixed:
    """So many bytes."""

    name: str
    size: int
    logical: Logical | None = None


@dataclass(frozen=True)
class Enum:
    """One of some words."""

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
class Field:
    name: str
    type: Type


@dataclass(frozen=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    fewest_bytes: int = field(compare=False)
    """Known when the record is read, because to count it later can take for ever."""


@dataclass(frozen=True)
class Reference:
    """A named type that was met before, or that is being read."""

    name: str


@dataclass(frozen=True)
class JsonText:
    """A field that leads back into the record it is in: a column has no end for it, a text has."""

    type: Type


Named = Fixed | Enum | Record
Type = Primitive | Array | Map | Union | Reference | JsonText | Named


def fewest_bytes(kind: Type, named: Mapping[str, Named]) -> int:
    """No value of the type is shorter than this."""
    match kind:
        case Primitive("null"):
            return 0
        case Primitive("float"):
            return 4
        case Primitive("double"):
            return 8
        case Fixed(size=size):
            return size
        case Record(fewest_bytes=fewest):
            return fewest
        case Reference(name) if name in named:
            return fewest_bytes(named[name], named)
        case _:
            # A record that is still being read has at least what leads back to it.
            return 1
