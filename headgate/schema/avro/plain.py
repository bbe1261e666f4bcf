"""A schema as the reader of whole batches is told it: the same bytes, in the plainest types.

So little of what a reader may take its own way is left to it: no logical type, no name, no
symbol; a boolean is a byte to look at, and a map a list of pairs of which none is lost. A union
never has two branches, because the reader takes one of null and a type for nullable and every
number but null's for the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from headgate.schema.avro.kinds import (
    Array,
    Enum,
    Fixed,
    JsonText,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    fewest_bytes,
)

GUARD_SIZE = 8
_MOST_BRANCHES = 100
"""Arrow numbers them in seven bits."""

_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


@dataclass(frozen=True)
class Plain:
    """A type in Avro's words and in Arrow's."""

    avro: Any
    arrow: pa.DataType
    name: str | None = None
    """What it is called, where Avro wants a name."""

    def field(self, name: str) -> pa.Field:
        """With what the reader notes about the field, and asks for when it gives it out."""
        noted = None if self.name is None else {"avro.name": self.name}
        return pa.field(name, self.arrow, metadata=noted)


def guarded(record: Record) -> Plain | None:
    """The record with a guard after it; None if a batch of it cannot be read at once."""
    if takes_no_bytes(record) or not _is_readable(record):
        return None
    plainer = _Plainer()
    return plainer.record([plainer.plain(record), plainer.fixed(GUARD_SIZE)])


def unguarded(record: Record) -> Plain | None:
    """The record as it stands in a file, with nothing between it and the next."""
    if takes_no_bytes(record) or not _is_readable(record):
        return None
    plainer = _Plainer()
    return plainer.record([plainer.plain(record)])


def takes_no_bytes(kind: Type) -> bool:
    return fewest_bytes(kind, {}) == 0


def with_bytes(kinds: Iterable[Type]) -> list[Type]:
    """Those that are told to the reader: it takes a field without bytes for one without a value."""
    return [kind for kind in kinds if not takes_no_bytes(kind)]


def _is_readable(kind: Type) -> bool:
    match kind:
        case JsonText():
            return False
        case Array(inside) | Map(inside):
            return _is_readable(inside)
        case Record(fields=fields):
            return all(_is_readable(one.type) for one in fields)
        case Union(branches):
            # What takes no bytes is null to the reader, and a union can have only one null.
            nulls = sum(map(takes_no_bytes, branches))
            few = nulls < 2 and len(branches) <= _MOST_BRANCHES
            return few and all(map(_is_readable, branches))
        case _:
            return True


class _Plainer:
    def __init__(self) -> None:
        self._numbers = count()

    def plain(self, kind: Type) -> Plain:
        match kind:
            case Primitive("boolean"):
                return self.fixed(1)
            case Primitive(word):
                return Plain(word, _ARROW[word])
            case Fixed(size=size):
                return self.fixed(size)
            case Enum():
                return Plain("int", pa.int32())
            case Array(items):
                return _list(self.plain(items))
            case Map(values):
                return _list(
                    self.record(map(self.plain, with_bytes([Primitive("string"), values])))
                )
            case Record(fields=fields):
                return self.record(map(self.plain, with_bytes(one.type for one in fields)))
            case Union(branches):
                return self._union(branches)
            case _:
                raise AssertionError(f"{kind} is not expanded")

    def fixed(self, size: int) -> Plain:
        name = self._name()
        return Plain({"type": "fixed", "name": name, "size": size}, pa.binary(size), name)

    def record(self, inside: Iterable[Plain]) -> Plain:
        name, parts = self._name(), list(inside)
        fields = [{"name": f"f{at}", "type": part.avro} for at, part in enumerate(parts)]
        arrow = pa.struct([part.field(f"f{at}") for at, part in enumerate(parts)])
        return Plain({"type": "record", "name": name, "fields": fields}, arrow, name)

    def _union(self, branches: tuple[Type, ...]) -> Plain:
        parts = [
            Plain("null", pa.null()) if takes_no_bytes(one) else self.record([self.plain(one)])
            for one in branches
        ]
        while len(parts) < 3:
            parts.append(self.fixed(1))
        fields = [part.field(part.name or "null") for part in parts]
        return Plain([part.avro for part in parts], pa.dense_union(fields))

    def _name(self) -> str:
        return f"t{next(self._numbers)}"


def _list(item: Plain) -> Plain:
    return Plain({"type": "array", "items": item.avro}, pa.list_(item.field("item")))
