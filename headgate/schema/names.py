"""Safe and unique names of tables and columns for values that come in messages.

A name is a pure function of the value, so that independent tasks, and a replay a year later,
choose the same table for a route. A value that is already a valid name is kept. Any other value
gets a readable form plus a digest of the exact value, so that two values never share a name: not
if they differ only in case, not `a.b` and `a/b`, not long ones with a common prefix.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import b32encode
from collections.abc import Collection, Iterable

MAX_ROUTE_LENGTH = 512
_VALID_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,62}")
_DERIVED = re.compile(r".*__[a-z2-7]{10}")
_VALID_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_READABLE_LENGTH = 40


def is_nameable(route: str | None) -> bool:
    """Whether a route can name a table: it has letters or digits, and is not too long."""
    return (
        route is not None
        and len(route) <= MAX_ROUTE_LENGTH
        and any(character.isalnum() for character in route)
    )


def safe_name(value: str, reserved: Collection[str] = ()) -> str:
    """Return a name for any value that is safe in paths and in SQL."""
    is_valid = _VALID_NAME.fullmatch(value) and not _DERIVED.fullmatch(value)
    return value if is_valid and value not in reserved else derived_name(value)


def derived_name(value: str) -> str:
    """Return a readable form of a value with a digest of the exact value."""
    return f"{readable_name(value) or 'route'}__{digest(value)}"


def readable_name(value: str) -> str:
    """Return the safe characters of a value: not unique, and possibly empty."""
    ascii_only = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", ascii_only).strip("_")[:_READABLE_LENGTH].rstrip("_")


def digest(value: str) -> str:
    """Return 50 bits of SHA-256 in base32, which is safe in any name."""
    hashed = hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
    return b32encode(hashed).decode().lower()[:10]


def column_names(names: Iterable[str], reserved: Collection[str] = ()) -> list[str]:
    """Return the column names for the fields of a message, in order.

    Delta's column names are case-insensitive: of `userId` and `userid`, the first keeps its name
    and the second gets a digest of its exact spelling. So do fields with a reserved name, and
    those with characters other than letters, digits and `_`.
    """
    taken = {name.lower() for name in reserved}
    columns = []
    for name in names:
        column = name if _VALID_COLUMN.fullmatch(name) else derived_name(name)
        while column.lower() in taken:
            column = column_twin(column)
        taken.add(column.lower())
        columns.append(column)
    return columns


def column_twin(name: str) -> str:
    """Return the name of a column whose own name is taken, at least in another case."""
    return f"{name}__{digest(name)}"
