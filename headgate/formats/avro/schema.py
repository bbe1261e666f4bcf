"""Parsing of Avro schema text into types, with every name resolved.

References are not expanded here, so parsing a schema that multiplies itself takes time linear
in its length. Defaults, aliases and documentation do not affect decoding and are ignored.
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
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    RecordField,
    Reference,
    Type,
    Union,
    logical_type,
    min_size,
)
from headgate.registry.registry import RefusedSchema, SchemaText

MAX_SCHEMA_DEPTH = 64
_MAX_FIXED_SIZE = (1 << 31) - 1


@dataclass(frozen=True)
class AvroSchema:
    """A type, and all named types that it can refer to."""

    type: Type
    named: Mapping[str, Named]


def parse_schema(text: SchemaText) -> AvroSchema:
    """Parse a registered schema and its references; raise RefusedSchema if it is invalid."""
    parser = _Parser()
    try:
        for _, reference in text.references:
            parser.parse(_load_json(reference), "", 0)
        return AvroSchema(parser.parse(_load_json(text.text), "", 0), parser.named)
    except (ValueError, RecursionError) as error:
        raise _invalid(error) from None


def _load_json(text: str) -> Any:
    definition = json.loads(text)
    # Refuse lone surrogates here: a name with one cannot be encoded later.
    json.dumps(definition, ensure_ascii=False).encode()
    return definition


class _Parser:
    def __init__(self) -> None:
        self.named: dict[str, Named] = {}
        self._open: set[str] = set()
        """Records whose fields are being parsed."""

    def parse(self, definition: Any, namespace: str, depth: int) -> Type:
        if depth > MAX_SCHEMA_DEPTH:
            raise RefusedSchema(f"nests deeper than {MAX_SCHEMA_DEPTH}")
        if isinstance(definition, str):
            if definition in PRIMITIVES:
                return Primitive(definition)
            return self._reference(definition, namespace)
        if isinstance(definition, list):
            return self._union([self.parse(branch, namespace, depth + 1) for branch in definition])
        if not isinstance(definition, dict):
            raise _invalid(f"{definition!r} is not a type")
        name = definition.get("type")
        if not isinstance(name, str):
            return self.parse(name, namespace, depth + 1)
        if name in PRIMITIVES:
            return Primitive(name, logical_type(name, definition))
        if name == "array":
            return self._array(self.parse(definition.get("items"), namespace, depth + 1))
        if name == "map":
            return Map(self.parse(definition.get("values"), namespace, depth + 1))
        named_types: dict[str, Callable[[dict[str, Any], str, int], Named]] = {
            "record": self._record,
            "error": self._record,
            "enum": _enum,
            "fixed": _fixed,
        }
        if name not in named_types:
            return self._reference(name, namespace)
        return self._define(named_types[name](definition, _full_name(definition, namespace), depth))

    def _define(self, named_type: Named) -> Named:
        if self.named.setdefault(named_type.name, named_type) != named_type:
            raise _invalid(f"{named_type.name} has two different definitions")
        return named_type

    def _reference(self, name: str, namespace: str) -> Reference:
        qualified = f"{namespace}.{name}" if namespace and "." not in name else name
        for full_name in (qualified, name):
            if full_name in self.named or full_name in self._open:
                return Reference(full_name)
        raise _invalid(f"unknown type {name!r}")

    def _union(self, branches: list[Type]) -> Union:
        if not branches:
            raise _invalid("a union has no branches")
        names = [_branch_identity(branch) for branch in branches]
        if "union" in names or len(set(names)) < len(names):
            raise _invalid("a union has a type twice or contains a union")
        return Union(tuple(branches))

    def _array(self, items: Type) -> Array:
        if not min_size(items, self.named):
            raise RefusedSchema("an array of zero-size items has no bound on its length")
        return Array(items)

    def _record(self, definition: dict[str, Any], name: str, depth: int) -> Record:
        if name in self._open:
            raise _invalid(f"{name} is defined inside itself")
        self._open.add(name)
        namespace = name.rpartition(".")[0]
        fields = []
        for item in _list(definition, "fields"):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise _invalid(f"record {name} has a field without a name")
            fields.append(
                RecordField(item["name"], self.parse(item.get("type"), namespace, depth + 1))
            )
        self._open.remove(name)
        if len({field.name for field in fields}) < len(fields):
            raise RefusedSchema(f"record {name} has two fields with the same name")
        size = sum(min_size(field.type, self.named) for field in fields)
        return Record(name, tuple(fields), size)


def _enum(definition: dict[str, Any], name: str, _: int) -> Enum:
    symbols = _list(definition, "symbols")
    if not all(isinstance(symbol, str) for symbol in symbols) or not symbols:
        raise _invalid(f"enum {name} has no symbols")
    if len(set(symbols)) < len(symbols):
        raise _invalid(f"enum {name} has a symbol twice")
    return Enum(name, tuple(symbols))


def _fixed(definition: dict[str, Any], name: str, _: int) -> Fixed:
    size = definition.get("size")
    if type(size) is not int or not 0 <= size <= _MAX_FIXED_SIZE:
        raise _invalid(f"fixed {name} has the size {size!r}")
    return Fixed(name, size, logical_type("fixed", definition, size))


def _list(definition: dict[str, Any], key: str) -> list[Any]:
    value = definition.get(key)
    if not isinstance(value, list):
        raise _invalid(f"{definition.get('name')!r} has no {key}")
    return value


def _full_name(definition: dict[str, Any], enclosing: str) -> str:
    name, declared = definition.get("name"), definition.get("namespace")
    if not isinstance(name, str) or not name:
        raise _invalid(f"a {definition['type']} has no name")
    namespace = declared if isinstance(declared, str) else enclosing
    full_name = f"{namespace}.{name}" if namespace and "." not in name else name
    if full_name in PRIMITIVES:
        raise _invalid(f"a {definition['type']} has the name of the primitive {full_name}")
    return full_name


def _branch_identity(branch: Type) -> str:
    """Return what must differ between the branches of a union."""
    match branch:
        case Primitive(name):
            return name
        case Record(name) | Enum(name) | Fixed(name) | Reference(name):
            return f"named {name}"
        case _:
            return type(branch).__name__.lower()


def _invalid(problem: object) -> RefusedSchema:
    return RefusedSchema(f"not an Avro schema: {problem}"[:500])
