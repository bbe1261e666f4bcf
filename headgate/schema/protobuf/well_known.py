"""Messages of protobuf's own that are single values: moments, durations, wrapped scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.schema.protobuf.field import One
from headgate.schema.protobuf.scalar import SCALARS, Scalar
from headgate.schema.protobuf.wire import (
    MESSAGE,
    Read,
    Unstorable,
    Wire,
    delimited,
    numbers_of,
    present_in,
    with_numbers,
)

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_SECONDS_OF_ALL_YEARS = np.uint64(_LAST_SECOND - _FIRST_SECOND)
_BILLION = 1_000_000_000
_LONGEST_SECONDS = 9_223_372_036_000
"""Microseconds of so many seconds, and of any nanos besides, fit into a long."""

SECONDS = One(1, "seconds", SCALARS[3], has_presence=False)
NANOS = One(2, "nanos", SCALARS[5], has_presence=False)


@dataclass(frozen=True)
class SecondsAndNanos:
    """What moments and durations have in common; ptars would merge their parts wrongly."""

    width = 1
    zero = None
    absent = None

    def declare(self, declared: Any, wire: Wire) -> None:
        declared.type = MESSAGE
        declared.type_name = wire.message([SECONDS, NANOS])

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return delimited(SECONDS.sizes(raw.field(0)) + NANOS.sizes(raw.field(1)))

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)


@dataclass(frozen=True)
class Timestamp(SecondsAndNanos):
    """Microseconds; what is smaller is cut off. Only the years 1 to 9999, as protobuf says."""

    type = pa.timestamp("us", "UTC")

    def read(self, raw: pa.Array) -> Read:
        seconds, nanos = _parts(raw)
        # What is too small is too large as well, once it is seen as unsigned.
        usable = (seconds - _FIRST_SECOND).view(np.uint64) <= _SECONDS_OF_ALL_YEARS
        usable &= nanos.view(np.uint32) < _BILLION
        micros = seconds * 1_000_000
        micros += nanos // 1_000
        return Read(with_numbers(micros, raw, self.type), _unusable(usable, raw))

    def value(self, value: Any) -> int:
        seconds, nanos = value.seconds, value.nanos
        if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _BILLION):
            raise Unstorable(
                f"a moment of {seconds} s and {nanos} ns is not within the years 1 to 9999"
            )
        return int(seconds * 1_000_000 + nanos // 1_000)


@dataclass(frozen=True)
class Duration(SecondsAndNanos):
    """Microseconds; what is smaller is cut off."""

    type = pa.int64()

    def read(self, raw: pa.Array) -> Read:
        seconds, nanos = _parts(raw)
        nanos = nanos.astype(np.int64)
        usable = (seconds >= -_LONGEST_SECONDS) & (seconds <= _LONGEST_SECONDS)
        micros = seconds * 1_000_000 + np.abs(nanos) // 1_000 * np.sign(nanos)
        return Read(with_numbers(micros, raw, self.type), _unusable(usable, raw))

    def value(self, value: Any) -> int:
        micros = int(value.ToMicroseconds())
        if not -(2**63) <= micros < 2**63:
            raise Unstorable(f"a duration of {value.seconds} s is more than a long of microseconds")
        return micros


@dataclass(frozen=True)
class Wrapped:
    """A scalar that may be null: one in a message of its own."""

    scalar: Scalar
    width = 1
    zero = None
    absent = None

    @property
    def type(self) -> pa.DataType:
        return self.scalar.type

    def declare(self, declared: Any, wire: Wire) -> None:
        declared.type = MESSAGE
        declared.type_name = wire.message([self._inside])

    def read(self, raw: pa.Array) -> Read:
        array = self.scalar.read(raw.field(0)).array
        if raw.null_count:
            buffers = [raw.buffers()[0], *array.buffers()[1:]]
            array = pa.Array.from_buffers(array.type, len(array), buffers)
        return Read(array)

    def value(self, value: Any) -> Any:
        return self.scalar.value(value.value)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return delimited(self._inside.sizes(raw.field(0)))

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)

    @property
    def _inside(self) -> One:
        return One(1, "value", self.scalar, has_presence=False)


def _parts(raw: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    nanos = numbers_of(raw.field(1), np.int64).astype(np.int32)
    return numbers_of(raw.field(0), np.int64), nanos


def _unusable(usable: np.ndarray, raw: pa.Array) -> np.ndarray | None:
    if np.count_nonzero(usable) == len(usable):
        return None
    return np.flatnonzero(~usable & present_in(raw))
