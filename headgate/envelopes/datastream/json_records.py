"""The records of a JSON file, which has one per line or all in one array."""

from __future__ import annotations

import codecs
import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from pydantic_core import from_json

from headgate.envelopes.datastream.changes import UnfinishedFile, UnreadableFile

_WHITESPACE = b" \t\r\n"
_LINE = re.compile(rb"[^ \t\r\n][^\n]*\n?")
"""A line from its first character that is not whitespace; blank lines are skipped quickly."""
_WHITESPACE_PATTERN = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_AN_OBJECT = "not a JSON object"
_MAX_DEPTH = 100
_MAX_UNCOUNTED_LENGTH = 1 << 20
_MAX_VALUES = 1 << 22


class NumberText(str):
    """A number with a fraction or an exponent, exactly as written."""

    __slots__ = ()


class JsonRecord(NamedTuple):
    """A record of a file, or the reason why it is not one."""

    content: bytes
    """Without surrounding whitespace."""
    value: dict[str, Any] | None
    error: str = ""
    is_json: bool = True
    in_array: bool = False

    @property
    def file(self) -> bytes:
        """A file with only this record."""
        return b"[" + self.content + b"]\n" if self.in_array else self.content + b"\n"


def json_records(content: bytes) -> Iterator[JsonRecord]:
    """Yield the records of a file.

    Raises UnfinishedFile if it ends too early, and UnreadableFile if nothing can be read after
    some record.
    """
    text = content.removeprefix(codecs.BOM_UTF8)
    if re.match(rb"[ \t\r\n]*\[", text):
        yield from _array_elements(text)
    else:
        yield from _lines(text)


def _lines(content: bytes) -> Iterator[JsonRecord]:
    for found in _LINE.finditer(content):
        line = found.group()
        stripped = line.rstrip(_WHITESPACE)
        try:
            value = _parse(stripped.decode())
            yield JsonRecord(stripped, value, "" if value is not None else _NOT_AN_OBJECT)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            if not line.endswith(b"\n") and _is_prefix_of_json(stripped):
                raise UnfinishedFile from None
            yield JsonRecord(stripped, None, f"not JSON: {error}"[:300], is_json=False)
        except (ValueError, RecursionError) as error:
            yield JsonRecord(stripped, None, str(error)[:300])


def _array_elements(content: bytes) -> Iterator[JsonRecord]:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"the text is not UTF-8: {error.reason}") from None
    position = _skip_whitespace(text, _skip_whitespace(text, 0) + 1)
    if text[position : position + 1] != "]":
        while True:
            position, record = _array_element(text, position)
            yield record
            position = _skip_whitespace(text, position)
            if text[position : position + 1] != ",":
                break
            position = _skip_whitespace(text, position + 1)
    if position == len(text):
        raise UnfinishedFile
    if text[position] != "]" or _skip_whitespace(text, position + 1) < len(text):
        raise UnreadableFile(f"unexpected text in or after the array, at character {position}")


def _array_element(text: str, start: int) -> tuple[int, JsonRecord]:
    try:
        _, end = _SCANNER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and _is_prefix_of_json(text[start:].encode()):
            raise UnfinishedFile from None
        raise UnreadableFile(f"cannot read the array: {error}"[:300]) from None
    element = text[start:end]
    value, problem = None, ""
    try:
        value = _parse(element)
        problem = "" if value is not None else _NOT_AN_OBJECT
    except (ValueError, RecursionError) as error:
        problem = str(error)[:300]
    return end, JsonRecord(element.encode(), value, problem, in_array=True)


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE_PATTERN.match(text, position)
    return match.end() if match else position


def _parse(text: str) -> dict[str, Any] | None:
    """Parse an object; None for any other JSON value."""
    if len(text) > _MAX_UNCOUNTED_LENGTH and sum(map(text.count, ",[{")) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values")
    value, end = _DECODER.raw_decode(text)
    if end < len(text):
        raise json.JSONDecodeError("more than one value", text, end)
    if not isinstance(value, dict):
        return None
    if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
        raise ValueError(f"nests deeper than {_MAX_DEPTH}")
    if "\\u" in text and _SURROGATE.search(text):
        _refuse_lone_surrogates(value)
    return value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        children = [node.values() if isinstance(node, dict) else node for node in level]
        level = [child for group in children for child in group if isinstance(child, dict | list)]
    return depth


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json_text(value).encode()
    except UnicodeEncodeError:
        raise ValueError("a string has a lone surrogate") from None


def _is_prefix_of_json(content: bytes) -> bool:
    """Whether more text could make it valid JSON."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content)
        if text:
            from_json(text, allow_partial=True)
    except ValueError:
        return False
    return True


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has a key twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_float=NumberText, parse_constant=_refuse_constant
)
_SCANNER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
"""Finds the end of a value without the cost of parsing its numbers."""


def json_text(value: Any) -> str:
    """Return the JSON of a value; values without a JSON form become strings."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case NumberText():
            return str(value)
        case str():
            return encode_basestring(value)
        case int():
            return int.__repr__(value)
        case float() if math.isfinite(value):
            return float.__repr__(value)
        case dict():
            pairs = [f"{encode_basestring(str(key))}:{json_text(value[key])}" for key in value]
            return f"{{{','.join(pairs)}}}"
        case list() | tuple():
            return f"[{','.join([json_text(item) for item in value])}]"
        case bytes():
            return encode_basestring(b64encode(value).decode())
        case _:
            return encode_basestring(str(value))
