"""From plain Avro values to what they mean: decimals, moments, durations, UUIDs, symbols."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from uuid import UUID

from headgate.schema.avro.columns import DURATION, WIDEST_DECIMAL
from headgate.schema.avro.logical import Logical
from headgate.schema.avro.read_bytes import Cursor, Read, WrongBytes, read_int

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
        raise WrongBytes("a moment beyond 64 bits of microseconds")
    return millis * 1_000


def _duration(raw: bytes) -> dict[str, int]:
    return dict(zip(DURATION.names, struct.unpack("<III", raw), strict=True))


def _uuid(said: str | bytes) -> str:
    return said if isinstance(said, str) else str(UUID(bytes=said))
