"""Lets small value types stand as types of fields: written as text, read by their own parser."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationInfo
from pydantic_core import CoreSchema, core_schema


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
