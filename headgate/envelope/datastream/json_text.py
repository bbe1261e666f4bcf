"""Values as JSON text that loses no digit of any number."""

from __future__ import annotations

import math
from base64 import b64encode
from json.encoder import encode_basestring
from typing import Any


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
