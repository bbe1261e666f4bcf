"""What the text of an Avro schema says: its types as small values, every name resolved.

Nothing is expanded here, so that a text which multiplies itself costs no more than its length.
Defaults, aliases and documentation do not change how bytes are read, and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.formats.avro.types import (
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Reference,
    Type,
    Union,
    fewest_bytes,
    logical_type,
)
from headgate.registry.registry import RefusedSchema, SchemaText

DEEPEST_NESTING = 64
_LARGEST_FIXED = (1 << 31) - 1


@dataclass(frozen=True)
class AvroSchema:
    """A type, and all named types that it can refer to."""

    type: Type
    named: Mapping[str, Named]


def parse_schema(text: SchemaText) -> AvroSchema:
    """The schema of a registry, with what it refers to; RefusedSchema for what is none."""
    reader = _Reader()
    try:
        for _, reference in text.references:
            reader.type(_loaded(reference), "", 0)
        return AvroSchema(reader.type(_loaded(text.text), "", 0), reader.named)
    except (ValueError, RecursionError) as error:
        raise _wrong(error) from None


def _loaded(text: str) -> Any:
    said = json.loads(text)
    json.dumps(said, ensure_ascii=False).encode()  # Half characters have no place in a name.
    return said


class _Reader:
    def __init__(self) -> None:
        self.named: dict[str, Named] = {}
        self._being_read: set[str] = set()

    def type(self, said: Any, space: str, depth: int) -> Type:
        if depth > DEEPEST_NESTING:
            raise RefusedSchema(f"nests deeper than {DEEPEST_NESTING}")
        if isinstance(said, str):
            return Primitive(said) if said in PRIMITIVES else self._reference(said, space)
        if isinstance(said, list):
            return self._union([self.type(one, space, depth + 1) for one in said])
        if not isinstance(said, dict):
            raise _wrong(f"{said!r} is not a type")
        kind = said.get("type")
        if not isinstance(kind, str):
            return self.type(kind, space, depth + 1)
        if kind in PRIMITIVES:
            return Primitive(kind, logical_type(kind, said))
        if kind == "array":
            return self._array(self.type(said.get("items"), space, depth + 1))
        if kind == "map":
            return Map(self.type(said.get("values"), space, depth + 1))
        makers: dict[str, Callable[[dict[str, Any], str, int], Named]] = {
            "record": self._record,
            "error": self._record,
            "enum": _enum,
            "fixed": _fixed,
        }
        if kind not in makers:
            return self._reference(kind, space)
        return self._define(makers[kind](said, _full_name(said, space), depth))

    def _define(self, made: Named) -> Named:
        if self.named.setdefault(made.name, made) != made:
            raise _wrong(f"{made.name} has two different definitions")
        return made

    def _reference(self, name: str, space: str) -> Reference:
        inside = f"{space}.{name}" if space and "." not in name else name
        for full in (inside, name):
            if full in self.named or full in self._being_read:
                return Reference(full)
        raise _wrong(f"unknown type {name!r}")

    def _union(self, branches: list[Type]) -> Union:
        if not branches:
            raise _wrong("a union of nothing")
        kinds = [_kind(branch) for branch in branches]
        if "union" in kinds or len(set(kinds)) < len(kinds):
            raise _wrong("a union has a duplicate type or a nested union")
        return Union(tuple(branches))

    def _array(self, items: Type) -> Array:
        if not fewest_bytes(items, self.named):
            raise RefusedSchema("an array of zero-byte items can be endless")
        return Array(items)

    def _record(self, said: dict[str, Any], name: str, depth: int) -> Record:
        if name in self._being_read:
            raise _wrong(f"{name} is defined inside of itself")
        self._being_read.add(name)
        space = name.rpartition(".")[0]
        fields = []
        for one in _listed(said, "fields"):
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise _wrong(f"record {name} has a field without a name")
            fields.append(Field(one["name"], self.type(one.get("type"), space, depth + 1)))
        self._being_read.remove(name)
        if len({one.name for one in fields}) < len(fields):
            raise RefusedSchema(f"record {name} has two fields of one name")
        return Record(
            name, tuple(fields), sum(fewest_bytes(one.type, self.named) for one in fields)
        )


def _enum(said: dict[str, Any], name: str, _: int) -> Enum:
    symbols = _listed(said, "symbols")
    if not all(isinstance(one, str) for one in symbols) or not symbols:
        raise _wrong(f"enum {name} has no symbols")
    if len(set(symbols)) < len(symbols):
        raise _wrong(f"enum {name} has a duplicate symbol")
    return Enum(name, tuple(symbols))


def _fixed(said: dict[str, Any], name: str, _: int) -> Fixed:
    size = said.get("size")
    if type(size) is not int or not 0 <= size <= _LARGEST_FIXED:
        raise _wrong(f"fixed {name} has the size {size!r}")
    return Fixed(name, size, logical_type("fixed", said, size))


def _listed(said: dict[str, Any], key: str) -> list[Any]:
    value = said.get(key)
    if not isinstance(value, list):
        raise _wrong(f"{said.get('name')!r} has no {key}")
    return value


def _full_name(said: dict[str, Any], space: str) -> str:
    name, own = said.get("name"), said.get("namespace")
    if not isinstance(name, str) or not name:
        raise _wrong(f"a {said['type']} without a name")
    space = own if isinstance(own, str) else space
    full = f"{space}.{name}" if space and "." not in name else name
    if full in PRIMITIVES:
        raise _wrong(f"a {said['type']} is called {full}")
    return full


def _kind(branch: Type) -> str:
    match branch:
        case Primitive(kind):
            return kind
        case Record(name) | Enum(name) | Fixed(name) | Reference(name):
            return f"named {name}"
        case _:
            return type(branch).__name__.lower()


def _wrong(what: object) -> RefusedSchema:
    return RefusedSchema(f"not an Avro schema: {what}"[:500])
