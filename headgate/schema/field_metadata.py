"""Metadata of a column about the field that it was created for, stored in the table's schema."""

from __future__ import annotations

import pyarrow as pa

_NUMBER = b"headgate.number"
_REQUIRED = b"headgate.required"
_KEPT_APART = b"headgate.apart"


def with_field_metadata(
    field: pa.Field, number: int | None = None, required: bool = False
) -> pa.Field:
    """Return a field with its number in the message, and whether it is required."""
    metadata = {_REQUIRED: b"true" if required else b"false"}
    if number is not None:
        metadata[_NUMBER] = str(number).encode()
    return field.with_metadata({**(field.metadata or {}), **metadata})


def has_field_metadata(field: pa.Field) -> bool:
    """Whether a column was created for a field of the same name."""
    return _REQUIRED in (field.metadata or {})


def field_number(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(_NUMBER)
    return int(number) if number is not None else None


def is_required(field: pa.Field) -> bool:
    return (field.metadata or {}).get(_REQUIRED) == b"true"


def keep_apart(field: pa.Field, source: str) -> pa.Field:
    """Return a column for the values that the column `source` cannot hold."""
    return field.with_metadata({_KEPT_APART: source.encode()})


def kept_apart_from(field: pa.Field) -> str | None:
    """Return the column whose values a column is kept apart from."""
    source = (field.metadata or {}).get(_KEPT_APART)
    return source.decode() if source is not None else None
