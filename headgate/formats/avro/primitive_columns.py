"""From a plain array that has no parts to the column of its type, a whole array at once."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.avro.columns import DURATION, WIDEST_DECIMAL, column_type
from headgate.formats.avro.read_bytes import Cursor, Read, WrongBytes, read_int
from headgate.formats.avro.types import Enum, Fixed, Logical, Primitive

_DIGITS = Context(prec=WIDEST_DECIMAL)


def meaning_reader(logical: Logical, read: Read) -> Read:
    """Reads what the column of a logical type holds, `read` giving the plain value."""
    match logical.name:
        case "decimal":
            return _decimal_reader(logical, read)
        case "time-millis":
            return lambda cursor: read(cursor) * 1_000
        case "timestamp-millis" | "local-timestamp-millis":
            return lambda cursor: _micros(read(cursor))
        case "duration":
            return lambda cursor: _duration(read(cursor))
        case "uuid":
            return lambda cursor: _uuid(read(cursor))
        case _:
            return read


def symbol_reader(symbols: tuple[str, ...]) -> Read:
    def symbol(cursor: Cursor) -> str:
        index = read_int(cursor)
        if not 0 <= index < len(symbols):
            raise WrongBytes(f"symbol {index} of an enum that has {len(symbols)}")
        return symbols[index]

    return symbol


def decimal_text(raw: bytes, logical: Logical) -> str:
    """The number with all its digits and no exponent."""
    unscaled, scale = _unscaled(raw, logical), logical.scale
    digits = f"{abs(unscaled):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if scale else ''}{fraction}"


def _decimal_reader(logical: Logical, read: Read) -> Read:
    if logical.precision > WIDEST_DECIMAL:
        return lambda cursor: decimal_text(read(cursor), logical)
    scale = -logical.scale
    return lambda cursor: Decimal(_unscaled(read(cursor), logical)).scaleb(scale, _DIGITS)


def _unscaled(raw: bytes, logical: Logical) -> int:
    if not raw:
        raise WrongBytes("a decimal without a byte")
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**logical.precision:
        raise WrongBytes(f"a decimal of more than {logical.precision} digits")
    return unscaled


def _micros(millis: int) -> int:
    if not -(1 << 63) <= millis * 1_000 < 1 << 63:
        raise WrongBytes("a timestamp outside 64 bits of microseconds")
    return millis * 1_000


def _duration(raw: bytes) -> dict[str, int]:
    return dict(zip(DURATION.names, struct.unpack("<III", raw), strict=True))


def _uuid(said: str | bytes) -> str:
    return said if isinstance(said, str) else str(UUID(bytes=said))


_DECIMAL_SIZE = 16
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_DASHES = (8, 13, 18, 23)
_BETWEEN = [at for at in range(36) if at not in _DASHES]
_DECIMAL_DIGITS = Context(prec=WIDEST_DECIMAL)


class Doubtful(Exception):
    """Some value cannot be taken as it is: its record is to be read by the letter."""


def leaf_column(kind: Primitive | Fixed | Enum, plain: pa.Array) -> pa.Array:
    """The column of the values; Doubtful if any one of them is none of the type."""
    if isinstance(kind, Enum):
        return _symbols(kind.symbols, plain)
    if kind.logical is not None:
        return _meaning(kind, kind.logical, plain)
    if isinstance(kind, Fixed):
        return plain.cast(pa.binary())
    return _booleans(plain) if kind.kind == "boolean" else plain


def _meaning(kind: Primitive | Fixed, logical: Logical, plain: pa.Array) -> pa.Array:
    target = column_type(kind)
    match logical.name:
        case "decimal" if logical.precision > WIDEST_DECIMAL:
            return _decimal_texts(logical, plain)
        case "decimal":
            return _decimals(logical, plain)
        case "uuid" if isinstance(kind, Fixed):
            return _uuids(plain)
        case "duration":
            return _durations(plain)
        case "time-millis" | "timestamp-millis" | "local-timestamp-millis":
            micros = pc.multiply_checked(plain.cast(pa.int64()), pa.scalar(1_000, pa.int64()))
            return micros.view(target)
        case _:
            return plain.view(target)


def _symbols(symbols: tuple[str, ...], plain: pa.Array) -> pa.Array:
    indexes = plain.to_numpy()
    if len(indexes) and not 0 <= indexes.min() <= indexes.max() < len(symbols):
        raise Doubtful("an enum without that symbol")
    return pa.array(symbols, pa.string()).take(plain)


def _booleans(plain: pa.Array) -> pa.Array:
    values = _rows_of_bytes(plain)[:, 0]
    if (values > 1).any():
        raise Doubtful("a boolean of more than a bit")
    return pa.array(values.astype(bool))


def _uuids(plain: pa.Array) -> pa.Array:
    text = np.full((len(plain), 36), ord("-"), np.uint8)
    text[:, _BETWEEN] = _HEX[_rows_of_bytes(plain)].reshape(len(plain), 32)
    ends = np.arange(len(plain) + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(len(plain), pa.py_buffer(ends), pa.py_buffer(text))


def _durations(plain: pa.Array) -> pa.Array:
    parts = _rows_of_bytes(plain).copy().view("<u4").astype(np.int64)
    columns = [pa.array(parts[:, at]) for at in range(DURATION.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=list(DURATION))


def _decimal_texts(logical: Logical, plain: pa.Array) -> pa.Array:
    try:
        return pa.array([decimal_text(one, logical) for one in plain.to_pylist()], pa.string())
    except WrongBytes as error:
        raise Doubtful(str(error)) from None


def _decimals(logical: Logical, plain: pa.Array) -> pa.Array:
    """Big-endian numbers of any length to little-endian ones of sixteen bytes."""
    fixed = pa.types.is_fixed_size_binary(plain.type)
    numbers = pa.py_buffer(_reversed_rows(plain) if fixed else _reversed_bytes(plain))
    widest = pa.decimal128(WIDEST_DECIMAL, logical.scale)
    unbounded = pa.Array.from_buffers(widest, len(plain), [None, numbers])
    most = 10**logical.precision - 1
    for outside, limit in ((pc.greater, most), (pc.less, -most)):
        bound = pa.scalar(Decimal(limit).scaleb(-logical.scale, _DECIMAL_DIGITS), widest)
        if pc.any(outside(unbounded, bound)).as_py():
            raise Doubtful("a decimal with too many digits")
    kind = pa.decimal128(logical.precision, logical.scale)
    return pa.Array.from_buffers(kind, len(plain), [None, numbers])


def _reversed_rows(plain: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    rows = _rows_of_bytes(plain)[:, ::-1]
    kept = rows[:, :_DECIMAL_SIZE]
    sign = np.where(kept[:, -1] > 0x7F, 0xFF, 0).astype(np.uint8)
    if (rows[:, _DECIMAL_SIZE:] != sign[:, None]).any():
        raise Doubtful("a decimal with too many bytes")
    numbers = np.repeat(sign, _DECIMAL_SIZE).reshape(-1, _DECIMAL_SIZE)
    numbers[:, : kept.shape[1]] = kept
    return numbers


def _reversed_bytes(plain: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    ends = np.frombuffer(plain.buffers()[1], np.int32)[plain.offset :][: len(plain) + 1]
    lengths = np.diff(ends)
    if len(lengths) and not 0 < lengths.min() <= lengths.max() <= _DECIMAL_SIZE:
        raise Doubtful("a decimal with no or too many bytes")
    data = np.frombuffer(plain.buffers()[2], np.uint8)
    sign = np.where(data[ends[:-1]] > 0x7F, 0xFF, 0).astype(np.uint8)
    numbers = np.repeat(sign, _DECIMAL_SIZE).reshape(-1, _DECIMAL_SIZE)
    for at in range(lengths.max(initial=0)):
        longer = lengths > at
        numbers[longer, at] = data[ends[1:][longer] - 1 - at]
    return numbers


def _rows_of_bytes(plain: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    size = plain.type.byte_width
    data = np.frombuffer(plain.buffers()[1], np.uint8)
    return data[plain.offset * size : (plain.offset + len(plain)) * size].reshape(-1, size)
