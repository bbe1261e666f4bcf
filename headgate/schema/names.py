"""The one way from a value in a message to the name of a table or a column.

A name is a pure function of the value: two tasks that never talk to each other, today and in a
replay next year, give the same table to the same route. A value that is already a plain name
keeps it. Any other value gets a readable form plus a digest of the exact value, so that two
values never share a name: not case twins, not `a.b` and `a/b`, not two long ones that begin
alike.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import b32encode
from collections.abc import Collection, Iterable

LONGEST_ROUTE = 512
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_]{0,62}")
_DERIVED = re.compile(r".*__[a-z2-7]{10}")
_PLAIN_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_READABLE_LENGTH = 40


def is_nameable(route: str | None) -> bool:
    """Whether a route can name a table at all: not empty, not endless, not only punctuation."""
    return (
        route is not None
        and len(route) <= LONGEST_ROUTE
        and any(character.isalnum() for character in route)
    )


def safe_name(value: str, reserved: Collection[str] = ()) -> str:
    """The name for a value that came in a message; safe in a path and in SQL."""
    plain = _PLAIN.fullmatch(value) and not _DERIVED.fullmatch(value)
    return value if plain and value not in reserved else derived_name(value)


def derived_name(value: str) -> str:
    """A readable form of the value and a digest of exactly this value."""
    return f"{readable_name(value) or 'route'}__{digest(value)}"


def readable_name(value: str) -> str:
    """What of a value is safe in a name, though others may have the same; perhaps nothing."""
    ascii_only = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", ascii_only).strip("_")[:_READABLE_LENGTH].rstrip("_")


def digest(value: str) -> str:
    """Fifty bits of SHA-256 in letters that are safe everywhere."""
    hashed = hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
    return b32encode(hashed).decode().lower()[:10]


def column_names(names: Iterable[str], reserved: Collection[str] = ()) -> list[str]:
    """Column names for the fields of one message, in order.

    Delta does not tell `userId` from `userid`: the first keeps its name and its twins get a
    digest of their exact spelling. Fields called like one of Headgate's own columns as well, and
    those whose names have anything but letters, digits and `_` in them.
    """
    taken = {name.lower() for name in reserved}
    columns = []
    for name in names:
        column = name if _PLAIN_COLUMN.fullmatch(name) else derived_name(name)
        while column.lower() in taken:
            column = column_twin(column)
        taken.add(column.lower())
        columns.append(column)
    return columns


def column_twin(name: str) -> str:
    """What a column is called when another one has its name in other letters."""
    return f"{name}__{digest(name)}"
