"""Avro's logical types: a meaning on top of a plain type.

The specification asks readers to pass over one that is unknown, in a wrong place or impossible,
and to take the plain type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
