"""JSON for programs: one envelope for everything, and nothing else on standard output."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


def print_json(data: object, errors: Sequence[object] = ()) -> None:
    """What was found and, if that is not well, what is wrong with it."""
    envelope: dict[str, object] = {"ok": not errors}
    if errors:
        envelope["errors"] = plain(errors)
    envelope["data"] = plain(data)
    print(json.dumps(envelope, indent=2, ensure_ascii=False))


def print_json_line(record: Mapping[str, object]) -> None:
    print(json.dumps(plain(record), ensure_ascii=False), flush=True)


def plain(value: object) -> Any:
    """A value as JSON can hold it: times in ISO format, bytes in base64."""
    match value:
        case None | bool() | int() | float():
            return value
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
