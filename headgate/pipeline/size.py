"""How many bytes something takes."""

from __future__ import annotations

from typing import Self

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.quantity import count_units
from headgate.pipeline.value_schema import schema_of_value
from headgate.pipeline.wording import shown

_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNITS = {
    name: size for letter, size in _BYTES.items() for name in (letter, f"{letter}b", f"{letter}ib")
}
_UNITS |= {"byte": 1, "bytes": 1}
del _UNITS["ib"]
_LARGEST = (1 << 63) - 1
_HINT = "write a number and a unit: `64 kB`, `16 MB`, `1g`"


class Size(int):
    """A number of bytes: `16 MB`, `1g`. As in Spark and Java, 1 kB is 1024 bytes."""

    @classmethod
    def parse(cls, text: str) -> Self:
        size = count_units(text, _UNITS)
        if size is None:
            raise InvalidPipeline("bad-value", f"{shown(text)} is not a size", _HINT)
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
                raise InvalidPipeline("wrong-type", f"needs a size, not {shown(value)}", _HINT)
            case int():
                return cls.parse(str(int(value)))
            case str():
                return cls.parse(value)
            case _:
                raise InvalidPipeline("wrong-type", f"needs a size, not {shown(value)}", _HINT)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return schema_of_value(cls._read, also_number=True)
