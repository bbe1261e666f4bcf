"""Conversion of physical arrays without children to columns, a whole array at a time."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.avro.columns import DURATION, MAX_DECIMAL_PRECISION, column_type
from headgate.formats.avro.encoding import MalformedAvro
from headgate.formats.avro.reference_decoder import decimal_text
from headgate.formats.avro.types import Enum, Fixed, LogicalType, Primitive

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_DECIMAL_SIZE = 16
_DECIMAL_CONTEXT = Context(prec=MAX_DECIMAL_PRECISION)
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_UUID_LENGTH = 36
_UUID_DIGITS = [index for index in range(_UUID_LENGTH) if index not in (8, 13, 18, 23)]


class UnsafeBatch(Exception):
    """A batch has a value that may be malformed: decode its records one by one."""


def primitive_column(avro_type: Primitive | Fixed | Enum, physical: pa.Array) -> pa.Array:
    """Convert a physical array; raise UnsafeBatch if a value may not be of the type."""
    if isinstance(avro_type, Enum):
        return _symbols(avro_type.symbols, physical)
    if avro_type.logical is not None:
        return _logical_column(avro_type, avro_type.logical, physical)
    if isinstance(avro_type, Fixed):
        return physical.cast(pa.binary())
    return _booleans(physical) if avro_type.name == "boolean" else physical


def _logical_column(
    avro_type: Primitive | Fixed, logical: LogicalType, physical: pa.Array
) -> pa.Array:
    target = column_type(avro_type)
    match logical.name:
        case "decimal" if logical.precision > MAX_DECIMAL_PRECISION:
            return _decimal_texts(logical, physical)
        case "decimal":
            return _decimals(logical, physical)
        case "uuid" if isinstance(avro_type, Fixed):
            return _uuids(physical)
        case "duration":
            return _durations(physical)
        case "time-millis" | "timestamp-millis" | "local-timestamp-millis":
            micros = pc.multiply_checked(physical.cast(pa.int64()), pa.scalar(1_000, pa.int64()))
            return micros.view(target)
        case _:
            return physical.view(target)


def _symbols(symbols: tuple[str, ...], physical: pa.Array) -> pa.Array:
    indexes = physical.to_numpy()
    if len(indexes) and not 0 <= indexes.min() <= indexes.max() < len(symbols):
        raise UnsafeBatch("an enum has no such symbol")
    return pa.array(symbols, pa.string()).take(physical)


def _booleans(physical: pa.Array) -> pa.Array:
    values = _byte_rows(physical)[:, 0]
    if (values > 1).any():
        raise UnsafeBatch("a boolean is neither 0 nor 1")
    return pa.array(values.astype(bool))


def _uuids(physical: pa.Array) -> pa.Array:
    text = np.full((len(physical), _UUID_LENGTH), ord("-"), np.uint8)
    text[:, _UUID_DIGITS] = _HEX[_byte_rows(physical)].reshape(len(physical), 32)
    offsets = np.arange(len(physical) + 1, dtype=np.int32) * _UUID_LENGTH
    return pa.StringArray.from_buffers(len(physical), pa.py_buffer(offsets), pa.py_buffer(text))


def _durations(physical: pa.Array) -> pa.Array:
    parts = _byte_rows(physical).copy().view("<u4").astype(np.int64)
    columns = [pa.array(parts[:, index]) for index in range(DURATION.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=list(DURATION))


def _decimal_texts(logical: LogicalType, physical: pa.Array) -> pa.Array:
    try:
        texts = [decimal_text(value, logical) for value in physical.to_pylist()]
    except MalformedAvro as error:
        raise UnsafeBatch(str(error)) from None
    return pa.array(texts, pa.string())


def _decimals(logical: LogicalType, physical: pa.Array) -> pa.Array:
    """Convert big-endian integers of any length to little-endian ones of 16 bytes."""
    is_fixed = pa.types.is_fixed_size_binary(physical.type)
    integers = pa.py_buffer(
        _from_fixed_length(physical) if is_fixed else _from_variable_length(physical)
    )
    widest = pa.decimal128(MAX_DECIMAL_PRECISION, logical.scale)
    unchecked = pa.Array.from_buffers(widest, len(physical), [None, integers])
    largest = 10**logical.precision - 1
    for is_outside, limit in ((pc.greater, largest), (pc.less, -largest)):
        bound = pa.scalar(Decimal(limit).scaleb(-logical.scale, _DECIMAL_CONTEXT), widest)
        if pc.any(is_outside(unchecked, bound)).as_py():
            raise UnsafeBatch("a decimal has too many digits")
    target = pa.decimal128(logical.precision, logical.scale)
    return pa.Array.from_buffers(target, len(physical), [None, integers])


def _from_fixed_length(physical: pa.Array) -> Bytes:
    reversed_rows = _byte_rows(physical)[:, ::-1]
    low = reversed_rows[:, :_DECIMAL_SIZE]
    sign = np.where(low[:, -1] > 0x7F, 0xFF, 0).astype(np.uint8)
    if (reversed_rows[:, _DECIMAL_SIZE:] != sign[:, None]).any():
        raise UnsafeBatch("a decimal has too many bytes")
    integers = np.repeat(sign, _DECIMAL_SIZE).reshape(-1, _DECIMAL_SIZE)
    integers[:, : low.shape[1]] = low
    return integers


def _from_variable_length(physical: pa.Array) -> Bytes:
    offsets = np.frombuffer(physical.buffers()[1], np.int32)[physical.offset :]
    offsets = offsets[: len(physical) + 1]
    lengths = np.diff(offsets)
    if len(lengths) and not 0 < lengths.min() <= lengths.max() <= _DECIMAL_SIZE:
        raise UnsafeBatch("a decimal has no bytes or too many")
    data = np.frombuffer(physical.buffers()[2], np.uint8)
    sign = np.where(data[offsets[:-1]] > 0x7F, 0xFF, 0).astype(np.uint8)
    integers = np.repeat(sign, _DECIMAL_SIZE).reshape(-1, _DECIMAL_SIZE)
    for index in range(lengths.max(initial=0)):
        longer = lengths > index
        integers[longer, index] = data[offsets[1:][longer] - 1 - index]
    return integers


def _byte_rows(physical: pa.Array) -> Bytes:
    """View a fixed-size binary array as a matrix with a row of bytes per value."""
    size = physical.type.byte_width
    data = np.frombuffer(physical.buffers()[1], np.uint8)
    start, end = physical.offset * size, (physical.offset + len(physical)) * size
    return data[start:end].reshape(-1, size)
