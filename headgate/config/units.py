"""How long something lasts."""

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


def count_units(text: str, units: Mapping[str, int]) -> int | None:
    """How many of the smallest unit the text means; None when it does not mean a whole number."""
    parts = _NUMBER_AND_UNIT.fullmatch(text)
    if parts is None or parts[2].lower() not in units:
        return None
    count = Fraction(parts[1]) * units[parts[2].lower()]
    return count.numerator if count.denominator == 1 else None


def schema_of_value(
    read: Callable[[object, ValidationInfo], object], *, also_number: bool = False
) -> CoreSchema:
    """The schema of a type whose values `read` makes from what stands in the file."""
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
    """How long something lasts: `500ms`, `10s`, `90d`; from a millisecond to a century."""

    @classmethod
    def parse(cls, text: str) -> Self:
        milliseconds = count_units(text, _DURATION_UNITS)
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
        """The duration in its largest whole unit, as Spark reads it too: `10 seconds`."""
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
        return schema_of_value(cls._read)


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
        size = count_units(text, _SIZE_UNITS)
        if size is None:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not a size", _SIZE_HINT)
        if not 1 <= size <= _LARGEST:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not between a byte and 8 EB")
        return cls(size)

    def __str__(self) -> str:
        """The size in its largest whole unit: `16 MB`."""
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
        return schema_of_value(cls._read, also_number=True)


_TIME_HINT = 'use a date such as 2026-11-01 or a time such as "2026-11-01 12:00:00"'


def moment_of(value: date | str) -> datetime | None:
    """The moment that a date, a time or a text means; None for a text that means none."""
    match value:
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case date():
            return datetime.combine(value, time(), UTC)
    try:
        return moment_of(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _read(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, date | str):
        raise InvalidPipeline("wrong-type", f"cannot be {shown(value)}", _TIME_HINT)
    moment = moment_of(value)
    if moment is None:
        raise InvalidPipeline("bad-value", f"cannot be {shown(value)}", _TIME_HINT)
    return moment


Moment = Annotated[datetime | None, BeforeValidator(_read, json_schema_input_type=str | None)]
