"""How long something lasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.quantity import count_units
from headgate.pipeline.value_schema import schema_of_value
from headgate.pipeline.wording import shown

_MILLISECONDS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000}
_MILLISECONDS["day"] = 24 * _MILLISECONDS["hour"]
_SHORT = {"millisecond": "ms", "second": "s sec", "minute": "m min", "hour": "h", "day": "d"}
_UNITS = {
    name: milliseconds
    for unit, milliseconds in _MILLISECONDS.items()
    for name in (unit, f"{unit}s", *_SHORT[unit].split())
}
_LONGEST = 36_500 * _MILLISECONDS["day"]
_HINT = "write a number and a unit: `500ms`, `10s`, `2 minutes`, `1h`, `90d`"


class Duration(timedelta):
    """How long something lasts: `500ms`, `10s`, `90d`; from a millisecond to a century."""

    @classmethod
    def parse(cls, text: str) -> Self:
        milliseconds = count_units(text, _UNITS)
        if milliseconds is None:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not a duration", _HINT)
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
                raise InvalidPipeline("wrong-type", f"needs a duration, not {shown(value)}", _HINT)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return schema_of_value(cls._read)
