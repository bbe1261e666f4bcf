"""Avro's types as small values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.schema.avro.logical import Logical

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
