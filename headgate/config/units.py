"""Durations, sizes and timestamps, as the pipeline file writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Annotated, Self

from pydantic import BeforeValidator, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from headgate.errors import InvalidPipeline, shown

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_quantity(text: str, units: Mapping[str, int]) -> int | None:
    """Parse a number and a unit into a count of the smallest unit; None if it is not whole."""
    parts = _NUMBER_AND_UNIT.fullmatch(text)
    if parts is None or parts[2].lower() not in units:
        return None
    count = Fraction(parts[1]) * units[parts[2].lower()]
    return count.numerator if count.denominator == 1 else None


def value_schema(
    read: Callable[[object, ValidationInfo], object], *, also_number: bool = False
) -> CoreSchema:
    """Return the pydantic schema of a type whose values `read` parses."""
    written: CoreSchema = core_schema.str_schema()
    if also_number:
        written = core_schema.union_schema([written, core_schema.int_schema()])
    return core_schema.with_info_plain_validator_function(
        read,
        serialization=core_schema.to_string_ser_schema(when_used="json"),
        json_schema_input_schema=written,
    )


_MILLISECONDS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000}
_MILLISECONDS["day"] = 24 * _MILLISECONDS["hour"]
_SHORT = {"millisecond": "ms", "second": "s sec", "minute": "m min", "hour": "h", "day": "d"}
_DURATION_UNITS = {
    name: milliseconds
    for unit, milliseconds in _MILLISECONDS.items()
    for name in (unit, f"{unit}s", *_SHORT[unit].split())
}
_LONGEST = 36_500 * _MILLISECONDS["day"]
_DURATION_HINT = "write a number and a unit: `500ms`, `10s`, `2 minutes`, `1h`, `90d`"


class Duration(timedelta):
    """A duration from a millisecond to a century: `500ms`, `10s`, `90d`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        milliseconds = parse_quantity(text, _DURATION_UNITS)
        if milliseconds is None:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not a duration", _DURATION_HINT)
        if not 1 <= milliseconds <= _LONGEST:
            raise InvalidPipeline(
                "bad-value", f"{shown(text)} is not between a millisecond and a century"
            )
        return cls(milliseconds=milliseconds)

    @property
    def milliseconds(self) -> int:
        return self // timedelta(milliseconds=1)

    def __str__(self) -> str:
        """Format in the largest whole unit, which Spark can parse: `10 seconds`."""
        whole = [unit for unit, each in _MILLISECONDS.items() if self.milliseconds % each == 0]
        count = self.milliseconds // _MILLISECONDS[whole[-1]]
        return f"{count} {whole[-1]}" if count == 1 else f"{count} {whole[-1]}s"

    @classmethod
    def _read(cls, value: object, info: ValidationInfo) -> Self:
        match value:
            case timedelta():
                return cls.parse(f"{value // timedelta(milliseconds=1)}ms")
            case str():
                return cls.parse(value)
            case _:
                raise InvalidPipeline(
                    "wrong-type", f"needs a duration, not {shown(value)}", _DURATION_HINT
                )

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return value_schema(cls._read)


_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE_UNITS = {
    name: size for letter, size in _BYTES.items() for name in (letter, f"{letter}b", f"{letter}ib")
}
_SIZE_UNITS |= {"byte": 1, "bytes": 1}
del _SIZE_UNITS["ib"]
_LARGEST = (1 << 63) - 1
_SIZE_HINT = "write a number and a unit: `64 kB`, `16 MB`, `1g`"


class Size(int):
    """A number of bytes: `16 MB`, `1g`. As in Spark and Java, 1 kB is 1024 bytes."""

    @classmethod
    def parse(cls, text: str) -> Self:
        size = parse_quantity(text, _SIZE_UNITS)
        if size is None:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not a size", _SIZE_HINT)
        if not 1 <= size <= _LARGEST:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not between a byte and 8 EB")
        return cls(size)

    def __str__(self) -> str:
        """Format in the largest whole unit: `16 MB`."""
        letter = max((each for each in _BYTES if self % _BYTES[each] == 0), key=_BYTES.__getitem__)
        return f"{self // _BYTES[letter]} {letter.upper()}B"

    def __repr__(self) -> str:
        return f"Size({int(self)})"

    @classmethod
    def _read(cls, value: object, info: ValidationInfo) -> Self:
        match value:
            case bool():
                raise InvalidPipeline("wrong-type", f"needs a size, not {shown(value)}", _SIZE_HINT)
            case int():
                return cls.parse(str(int(value)))
            case str():
                return cls.parse(value)
            case _:
                raise InvalidPipeline("wrong-type", f"needs a size, not {shown(value)}", _SIZE_HINT)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return value_schema(cls._read, also_number=True)


_TIME_HINT = 'use a date such as 2026-11-01 or a time such as "2026-11-01 12:00:00"'


def parse_timestamp(value: date | str) -> datetime | None:
    """Return a date, time or text as a UTC timestamp; None if the text is not one."""
    match value:
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case date():
            return datetime.combine(value, time(), UTC)
    try:
        return parse_timestamp(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _read(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, date | str):
        raise InvalidPipeline("wrong-type", f"cannot be {shown(value)}", _TIME_HINT)
    timestamp = parse_timestamp(value)
    if timestamp is None:
        raise InvalidPipeline("bad-value", f"cannot be {shown(value)}", _TIME_HINT)
    return timestamp


Timestamp = Annotated[datetime | None, BeforeValidator(_read, json_schema_input_type=str | None)]
