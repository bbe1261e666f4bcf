"""The records of a JSON file: one in each line, or all in one array."""

from __future__ import annotations

import codecs
import io
import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from pydantic_core import from_json

from headgate.envelopes.datastream.opened import UnfinishedFile, UnreadableFile


class Written(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()


def json_text(value: Any) -> str:
    """The JSON of a value; what JSON has no form for is a text in it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Written():
            return str(value)
        case str():
            return encode_basestring(value)
        case int():
            return int.__repr__(value)
        case float() if math.isfinite(value):
            return float.__repr__(value)
        case dict():
            inside = [f"{encode_basestring(str(key))}:{json_text(value[key])}" for key in value]
            return f"{{{','.join(inside)}}}"
        case list() | tuple():
            return f"[{','.join([json_text(one) for one in value])}]"
        case bytes():
            return encode_basestring(b64encode(value).decode())
        case _:
            return encode_basestring(str(value))


_BLANK = b" \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*")
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
_NO_OBJECT = "it is not an object"
_DEEPEST = 100
_LONG = 1 << 20
_MOST_VALUES = 1 << 22


class JsonRecord(NamedTuple):
    """One record, or why it is none."""

    content: bytes
    """Without anything around it."""
    value: dict[str, Any] | None
    wrong: str = ""
    is_json: bool = True
    in_array: bool = False

    @property
    def file(self) -> bytes:
        """As a file of its own."""
        return b"[" + self.content + b"]\n" if self.in_array else self.content + b"\n"


def json_records(content: bytes) -> Iterator[JsonRecord]:
    """The records in the order of the file.

    UnfinishedFile where it ends too early; UnreadableFile where it cannot go on after a record.
    """
    plain = content.removeprefix(codecs.BOM_UTF8)
    if re.match(rb"[ \t\r\n]*\[", plain):
        yield from _elements(plain)
    else:
        yield from _lines(plain)


def _lines(content: bytes) -> Iterator[JsonRecord]:
    for line in io.BytesIO(content):
        told = line.strip(_BLANK)
        if not told:
            continue
        try:
            value = _parsed(told.decode())
            yield JsonRecord(told, value, "" if value is not None else _NO_OBJECT)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            if not line.endswith(b"\n") and _is_beginning(told):
                raise UnfinishedFile from None
            yield JsonRecord(told, None, f"it is not JSON: {error}"[:300], is_json=False)
        except (ValueError, RecursionError) as error:
            yield JsonRecord(told, None, str(error)[:300])


def _elements(content: bytes) -> Iterator[JsonRecord]:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"its text is not UTF-8: {error.reason}") from None
    at = _after_blanks(text, _after_blanks(text, 0) + 1)
    if text[at : at + 1] != "]":
        while True:
            at, record = _element(text, at)
            yield record
            at = _after_blanks(text, at)
            if text[at : at + 1] != ",":
                break
            at = _after_blanks(text, at + 1)
    if at == len(text):
        raise UnfinishedFile
    if text[at] != "]" or _after_blanks(text, at + 1) < len(text):
        raise UnreadableFile(f"its array is malformed at character {at}")


def _element(text: str, at: int) -> tuple[int, JsonRecord]:
    try:
        _, end = _ENDS.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and _is_beginning(text[at:].encode()):
            raise UnfinishedFile from None
        raise UnreadableFile(f"its array cannot be read: {error}"[:300]) from None
    told = text[at:end]
    value, wrong = None, ""
    try:
        value = _parsed(told)
        wrong = "" if value is not None else _NO_OBJECT
    except (ValueError, RecursionError) as error:
        wrong = str(error)[:300]
    return end, JsonRecord(told.encode(), value, wrong, in_array=True)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _parsed(text: str) -> dict[str, Any] | None:
    """The object that a text is; None for anything else that is JSON."""
    if len(text) > _LONG and sum(map(text.count, ",[{")) > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES} values")
    found, end = _VALUES.raw_decode(text)
    if end < len(text):
        raise json.JSONDecodeError("more than one value", text, end)
    if not isinstance(found, dict):
        return None
    if text.count("[") + text.count("{") > _DEEPEST and _depth(found) > _DEEPEST:
        raise ValueError(f"it nests deeper than {_DEEPEST}")
    if "\\u" in text and _HALF_CHARACTER.search(text):
        _refuse_halves(found)
    return found


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inside = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for many in inside for one in many if isinstance(one, dict | list)]
    return depth


def _refuse_halves(value: Any) -> None:
    try:
        json_text(value).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair") from None


def _is_beginning(told: bytes) -> bool:
    """Whether something can follow that makes it JSON."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(told)
        if text:
            from_json(text, allow_partial=True)
    except ValueError:
        return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a duplicate key")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


_VALUES = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Written, parse_constant=_no_number
)
_ENDS = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
