"""What a column remembers of the field it was made for, in its metadata in the table."""

from __future__ import annotations

import pyarrow as pa

_NUMBER = b"headgate.number"
_REQUIRED = b"headgate.required"
_APART = b"headgate.apart"


def with_facts(field: pa.Field, number: int | None = None, required: bool = False) -> pa.Field:
    """A field that says which number it has in its message, and whether it is always there."""
    facts = {_REQUIRED: b"true" if required else b"false"}
    if number is not None:
        facts[_NUMBER] = str(number).encode()
    return field.with_metadata({**(field.metadata or {}), **facts})


def has_facts(field: pa.Field) -> bool:
    """Whether the column was made for a field of that very name."""
    return _REQUIRED in (field.metadata or {})


def number_of(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(_NUMBER)
    return int(number) if number is not None else None


def is_required(field: pa.Field) -> bool:
    return (field.metadata or {}).get(_REQUIRED) == b"true"


def kept_apart(field: pa.Field, source: str) -> pa.Field:
    """A column that holds what another one of that name could not."""
    return field.with_metadata({_APART: source.encode()})


def apart_from(field: pa.Field) -> str | None:
    source = (field.metadata or {}).get(_APART)
    return source.decode() if source is not None else None
