"""Numbers, strings, enums, timestamps, durations and wrapper values as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.protobuf.field import Singular
from headgate.formats.protobuf.wire import (
    MESSAGE,
    PtarsSchema,
    Read,
    Unstorable,
    bits_of,
    delimited,
    lengths_of,
    numbers_of,
    present_in,
    varint_sizes,
    with_numbers,
    zigzag,
)

_SAME_BITS: dict[type[np.generic], type[np.generic]] = {
    np.float32: np.uint32,
    np.float64: np.uint64,
}


@dataclass(frozen=True)
class Scalar:
    """A number, a boolean, a string or bytes."""

    name: str
    """The name in .proto files."""
    number: int
    """Protobuf's own number for the type."""
    type: pa.DataType
    zero: Any
    dtype: type[np.generic] | None = None
    """The type of the numbers that ptars returns; None if it returns none."""
    read_as: int | None = None
    """A wider type to let ptars read, so that no bits are cut off."""
    is_varint: bool = True
    is_zigzag: bool = False
    width = 1
    absent = None

    @cached_property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.type) or pa.types.is_binary(self.type))

    @cached_property
    def fixed_width(self) -> int | None:
        """The bytes that every value takes; None if that depends on the value."""
        if self.dtype is None:
            return None if self.is_text else 1
        return None if self.is_varint else np.dtype(self.dtype).itemsize

    @cached_property
    def is_stored_as_read(self) -> bool:
        """Whether the array of ptars is the column; unsigned and widened numbers are converted."""
        return self.read_as is None and self.dtype not in (np.uint32, np.uint64)

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        declared.type = self.read_as or self.number

    def read(self, raw: pa.Array) -> Read:
        if self.is_stored_as_read:
            return Read(raw)
        assert self.dtype is not None
        numbers = numbers_of(raw, self.dtype)
        if self.dtype is np.uint64:
            # A decimal is an integer of 16 bytes, little-endian.
            halves = np.zeros((len(numbers), 2), np.uint64)
            halves[:, 0] = numbers
            return Read(with_numbers(halves, raw, self.type))
        # Protobuf truncates a number that is too large in the same way.
        stored = np.int64 if self.read_as is None else np.int32
        return Read(with_numbers(numbers.astype(stored), raw, self.type))

    def value(self, value: Any) -> Any:
        if isinstance(value, bytes) and pa.types.is_string(self.type):
            raise Unstorable("a string that is not UTF-8")
        return value

    def is_written(self, raw: pa.Array) -> np.ndarray:
        """Return which values are not zero; -0.0 is not zero."""
        return np.asarray((lengths_of(raw) if self.is_text else self.bits(raw)) != 0)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        if self.is_text:
            return delimited(lengths_of(raw))
        if self.fixed_width is not None:
            return np.full(len(raw), self.fixed_width, np.int32)
        bits = self.bits(raw)
        return varint_sizes(zigzag(bits.astype(np.int64)) if self.is_zigzag else bits)

    def bits(self, raw: pa.Array) -> np.ndarray:
        """Return numbers and booleans as integers, floating-point numbers as their bits."""
        if self.dtype is None:
            return bits_of(raw.buffers()[1], len(raw))
        return numbers_of(raw, _SAME_BITS.get(self.dtype, self.dtype))


_LONG, _DECIMAL = pa.int64(), pa.decimal128(20, 0)

SCALARS = {
    one.number: one
    for one in (
        Scalar("double", 1, pa.float64(), 0.0, np.float64, is_varint=False),
        Scalar("float", 2, pa.float32(), 0.0, np.float32, is_varint=False),
        Scalar("int64", 3, _LONG, 0, np.int64),
        Scalar("uint64", 4, _DECIMAL, 0, np.uint64),
        Scalar("int32", 5, pa.int32(), 0, np.int64, read_as=3),
        Scalar("fixed64", 6, _DECIMAL, 0, np.uint64, is_varint=False),
        Scalar("fixed32", 7, _LONG, 0, np.uint32, is_varint=False),
        Scalar("bool", 8, pa.bool_(), False),
        Scalar("string", 9, pa.string(), ""),
        Scalar("bytes", 12, pa.binary(), b""),
        Scalar("uint32", 13, _LONG, 0, np.uint32),
        Scalar("sfixed32", 15, pa.int32(), 0, np.int32, is_varint=False),
        Scalar("sfixed64", 16, _LONG, 0, np.int64, is_varint=False),
        Scalar("sint32", 17, pa.int32(), 0, np.int32, is_zigzag=True),
        Scalar("sint64", 18, _LONG, 0, np.int64, is_zigzag=True),
    )
}
"""By protobuf's number for the type."""

_INT32 = SCALARS[5]


@dataclass(frozen=True)
class EnumValue:
    """The name of the value; an unknown number of an open enum is that number as text."""

    names: dict[int, str]
    is_closed: bool
    width = 1
    absent = None
    type = pa.string()

    @property
    def zero(self) -> str:
        return self.value(0)

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        _INT32.declare(declared, schema)

    def read(self, raw: pa.Array) -> Read:
        numbers, names = self._known
        values = numbers_of(raw, np.int64).astype(np.int32)
        if self._is_dense and len(values) and values.min() >= 0 and values.max() < len(numbers):
            return Read(names.take(with_numbers(values, raw, pa.int32())))
        places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        text = names.take(with_numbers(places, raw, pa.int64()))
        is_known = numbers[places] == values
        if is_known.all():
            return Read(text)
        if self.is_closed:
            return Read(text, np.flatnonzero(~is_known & present_in(raw)))
        in_text = with_numbers(values, raw, pa.int32()).cast(pa.string())
        return Read(pc.if_else(pa.array(is_known), text, in_text))

    def value(self, value: Any) -> str:
        return self.names.get(value, str(value))

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return _INT32.sizes(raw)

    def is_written(self, raw: pa.Array) -> np.ndarray:
        return _INT32.is_written(raw)

    @cached_property
    def _is_dense(self) -> bool:
        """Whether the numbers are 0, 1, 2, … as usual: then each is its own index."""
        return sorted(self.names) == list(range(len(self.names)))

    @cached_property
    def _known(self) -> tuple[np.ndarray, pa.Array]:
        numbers = sorted(self.names)
        return np.array(numbers, np.int32), pa.array([self.names[one] for one in numbers])


_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_SECONDS_OF_ALL_YEARS = np.uint64(_LAST_SECOND - _FIRST_SECOND)
_BILLION = 1_000_000_000
_MAX_SECONDS = 9_223_372_036_000
"""Durations up to this, with any nanos, fit into a long of microseconds."""

SECONDS = Singular(1, "seconds", SCALARS[3], has_presence=False)
NANOS = Singular(2, "nanos", SCALARS[5], has_presence=False)


@dataclass(frozen=True)
class SecondsAndNanos:
    """The encoding of timestamps and durations; ptars itself would merge their parts wrongly."""

    width = 1
    zero = None
    absent = None

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        declared.type = MESSAGE
        declared.type_name = schema.message([SECONDS, NANOS])

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return delimited(SECONDS.sizes(raw.field(0)) + NANOS.sizes(raw.field(1)))

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)


@dataclass(frozen=True)
class TimestampValue(SecondsAndNanos):
    """Microseconds, truncated, of the years 1 to 9999, which are the valid ones in protobuf."""

    type = pa.timestamp("us", "UTC")

    def read(self, raw: pa.Array) -> Read:
        seconds, nanos = _parts(raw)
        # As unsigned numbers, those below the range are above it as well.
        usable = (seconds - _FIRST_SECOND).view(np.uint64) <= _SECONDS_OF_ALL_YEARS
        usable &= nanos.view(np.uint32) < _BILLION
        micros = seconds * 1_000_000
        micros += nanos // 1_000
        return Read(with_numbers(micros, raw, self.type), _unusable(usable, raw))

    def value(self, value: Any) -> int:
        seconds, nanos = value.seconds, value.nanos
        if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _BILLION):
            raise Unstorable(
                f"a timestamp of {seconds} s and {nanos} ns is not within the years 1 to 9999"
            )
        return int(seconds * 1_000_000 + nanos // 1_000)


@dataclass(frozen=True)
class DurationValue(SecondsAndNanos):
    """Microseconds, truncated."""

    type = pa.int64()

    def read(self, raw: pa.Array) -> Read:
        seconds, nanos = _parts(raw)
        nanos = nanos.astype(np.int64)
        usable = (seconds >= -_MAX_SECONDS) & (seconds <= _MAX_SECONDS)
        micros = seconds * 1_000_000 + np.abs(nanos) // 1_000 * np.sign(nanos)
        return Read(with_numbers(micros, raw, self.type), _unusable(usable, raw))

    def value(self, value: Any) -> int:
        micros = int(value.ToMicroseconds())
        if not -(2**63) <= micros < 2**63:
            raise Unstorable(f"a duration of {value.seconds} s is more than a long of microseconds")
        return micros


@dataclass(frozen=True)
class WrapperValue:
    """A scalar in a message of its own, which may be null: `google.protobuf.Int32Value` etc."""

    scalar: Scalar
    width = 1
    zero = None
    absent = None

    @property
    def type(self) -> pa.DataType:
        return self.scalar.type

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        declared.type = MESSAGE
        declared.type_name = schema.message([self._inside])

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
    def _inside(self) -> Singular:
        return Singular(1, "value", self.scalar, has_presence=False)


def _parts(raw: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    nanos = numbers_of(raw.field(1), np.int64).astype(np.int32)
    return numbers_of(raw.field(0), np.int64), nanos


def _unusable(usable: np.ndarray, raw: pa.Array) -> np.ndarray | None:
    if np.count_nonzero(usable) == len(usable):
        return None
    return np.flatnonzero(~usable & present_in(raw))
