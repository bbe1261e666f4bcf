"""Texts in a rule: other values are taken as they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.sql.condition_cast import cast
from headgate.sql.condition_types import NOTHING, Value, is_text


def of_text(function: Callable[..., Value]) -> Callable[..., Value]:
    """The same for every value that can be written."""

    def evaluate(value: Value, *more: object) -> Value:
        text = cast(value, pa.string())
        return function(text, *more) if is_text(text.type) else NOTHING

    return evaluate


@of_text
def like(text: Value, pattern: str, escape: str, ignore_case: bool) -> Value:
    if escape != "\\":
        found = re.compile(re.escape(escape) + r"(.)|(\\)", re.DOTALL)
        pattern = found.sub(lambda each: f"\\{each[1] or each[2]}", pattern)
    return pc.match_like(text, pattern, ignore_case=ignore_case)


@of_text
def matches(text: Value, pattern: str) -> Value:
    return pc.match_substring_regex(text, pattern)


@of_text
def trim(text: Value, side: str, characters: str) -> Value:
    sides = {"LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}
    return sides.get(side, pc.utf8_trim)(text, characters)


@of_text
def substring(text: Value, place: int, length: int | None) -> Value:
    """From a place that is counted from one, or from the end."""
    start = place - 1 if place > 0 else place
    if length is None:
        return pc.utf8_slice_codeunits(text, start)
    if length <= 0:
        return pc.utf8_slice_codeunits(text, 0, 0)
    ends_inside = start >= 0 or start + length < 0
    return pc.utf8_slice_codeunits(text, start, start + length if ends_inside else None)


def length(value: Value) -> Value:
    """Characters of a text, bytes of what is none."""
    is_binary = pa.types.is_binary(value.type)
    return pc.binary_length(value) if is_binary else of_text(pc.utf8_length)(value)


def concat(values: Sequence[Value]) -> Value:
    texts = [cast(value, pa.string()) for value in values]
    if not all(is_text(text.type) for text in texts):
        return NOTHING
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")
