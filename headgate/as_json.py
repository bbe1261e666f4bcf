"""Values as JSON, for programs."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def json_text(value: object) -> str:
    """Return a value as one line of JSON, which no terminal and no reader of lines takes apart."""
    try:
        text = json.dumps(value, default=plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        # Keys that are not text, or numbers that are not finite.
        text = json.dumps(plain(value), ensure_ascii=False)
    return escaped(text)


_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls of terminals and of the direction of text, ends of lines, halves of characters."""


def escaped(text: str) -> str:
    """Escape in JSON what JSON alone would leave as it is."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: object) -> Any:
    """Convert a value to what JSON can hold: times in ISO format, bytes in base64."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        case str():
            return str(value)
        case datetime():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(plain(each) for each in value)
        case list() | tuple():
            return [plain(each) for each in value]
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return str(value)
