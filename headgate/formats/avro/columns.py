"""The columns that an Avro type becomes.

A type is expanded first: every reference replaced by what it refers to, and a field that leads
back into its own record by a text. What comes out is a tree, so that all else is a walk over it.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from headgate.formats.avro.schema import DEEPEST_NESTING, AvroSchema
from headgate.formats.avro.types import (
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    JsonText,
    Map,
    Primitive,
    Record,
    Reference,
    Type,
    Union,
    fewest_bytes,
)
from headgate.registry.registry import RefusedSchema
from headgate.schema.field_facts import with_facts
from headgate.schema.names import derived_name

MOST_FIELDS = 10_000
WIDEST_DECIMAL = 38

NULL = Primitive("null")
DURATION = pa.struct([(part, pa.int64()) for part in ("months", "days", "millis")])

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.int64(),
    "time-micros": pa.int64(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.int64(),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.int64(),
    "uuid": pa.string(),
    "duration": DURATION,
}


def root_record(schema: AvroSchema) -> Record:
    """The schema expanded; of a type that is no record, a record whose only field it is."""
    expanded = _Expansion(schema).expand(schema.type, (), 0)
    if isinstance(expanded, Record):
        return expanded
    only = Field("value", expanded)
    return Record(type_word(expanded), (only,), fewest_bytes(expanded, {}))


def column_type(kind: Type) -> pa.DataType:
    """The type of the column that an expanded type becomes."""
    match kind:
        case Primitive(logical=logical) | Fixed(logical=logical) if logical is not None:
            if logical.name != "decimal":
                return _LOGICAL[logical.name]
            if logical.precision > WIDEST_DECIMAL:
                return pa.string()
            return pa.decimal128(logical.precision, logical.scale)
        case Primitive(plain):
            return _PLAIN[plain]
        case Fixed():
            return pa.binary()
        case Enum() | JsonText():
            return pa.string()
        case Array(items):
            return pa.list_(column_type(items))
        case Map(values):
            return pa.map_(pa.string(), column_type(values))
        case Record(fields=fields):
            return pa.struct([pa.field(one.name, column_type(one.type)) for one in fields])
        case Union(branches):
            names = branch_names(kind)
            if not names:
                return pa.null()
            if len(names) == 1:
                return column_type(branches[next(iter(names))])
            return pa.struct(
                [pa.field(name, column_type(branches[at])) for at, name in names.items()]
            )
    raise AssertionError(f"{kind} is not expanded")


def record_columns(record: Record) -> list[pa.Field]:
    """The columns of a record, each with what is known of its field."""
    return [
        with_facts(pa.field(one.name, column_type(one.type)), required=not _may_be_null(one.type))
        for one in record.fields
    ]


def _may_be_null(kind: Type) -> bool:
    match kind:
        case Union(branches):
            return NULL in branches
        case JsonText(inside):
            return _may_be_null(inside)
        case _:
            return kind == NULL


def branch_names(union: Union) -> dict[int, str]:
    """The field of each branch that is not null: a name does not depend on a branch's place.

    Where two would be called the same, neither is: both are named by their full names.
    """
    words = {at: type_word(one) for at, one in enumerate(union.branches) if one != NULL}
    count = Counter(word.rpartition(".")[2].lower() for word in words.values())
    return {at: _branch_name(word, count) for at, word in words.items()}


def _branch_name(word: str, count: Counter[str]) -> str:
    short = word.rpartition(".")[2]
    return short if word in PRIMITIVES or count[short.lower()] == 1 else derived_name(word)


def type_word(kind: Type) -> str:
    """What the type is called: a named one by its full name."""
    match kind:
        case Primitive(word):
            return word
        case Record(name) | Enum(name) | Fixed(name) | Reference(name):
            return name
        case _:
            return type(kind).__name__.lower()


class _Expansion:
    def __init__(self, schema: AvroSchema) -> None:
        self._named = schema.named
        self._fields = 0

    def expand(self, kind: Type, above: tuple[str, ...], depth: int) -> Type:
        if depth > DEEPEST_NESTING:
            raise RefusedSchema(f"nests deeper than {DEEPEST_NESTING}")
        match kind:
            case Reference(name):
                return self.expand(self._named[name], above, depth)
            case Array(items):
                return Array(self.expand(items, above, depth + 1))
            case Map(values):
                return Map(self.expand(values, above, depth + 1))
            case Union(branches):
                self._count(sum(one != NULL for one in branches) - 1)
                return Union(tuple(self.expand(one, above, depth + 1) for one in branches))
            case Record(name, fields, fewest):
                self._count(len(fields))
                inside = (*above, name)
                expanded = [Field(one.name, self._field(one, inside, depth)) for one in fields]
                return Record(name, tuple(expanded), fewest)
            case _:
                return kind

    def _field(self, field: Field, above: tuple[str, ...], depth: int) -> Type:
        if _leads_back(field.type, above):
            return JsonText(field.type)
        return self.expand(field.type, above, depth + 1)

    def _count(self, more: int) -> None:
        self._fields += more
        if self._fields > MOST_FIELDS:
            raise RefusedSchema(f"has more than {MOST_FIELDS} fields")


def _leads_back(kind: Type, above: tuple[str, ...]) -> bool:
    match kind:
        case Reference(name):
            return name in above
        case Array(inside) | Map(inside):
            return _leads_back(inside, above)
        case Union(branches):
            return any(_leads_back(one, above) for one in branches)
        case _:
            return False
