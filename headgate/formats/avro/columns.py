"""The Arrow columns of an Avro type, and bounds on the memory that its values take.

A type is expanded first: references are replaced by their definitions, and recursive fields by
JSON text. Everything else is a walk over the resulting tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from headgate.formats.avro.schema import MAX_SCHEMA_DEPTH, AvroSchema
from headgate.formats.avro.types import (
    PRIMITIVES,
    Array,
    Enum,
    Fixed,
    JsonTextType,
    Map,
    Primitive,
    Record,
    RecordField,
    Reference,
    Type,
    Union,
    min_size,
)
from headgate.registry.registry import RefusedSchema
from headgate.schema.field_metadata import with_field_metadata
from headgate.schema.names import derived_name

MAX_FIELDS = 10_000
MAX_DECIMAL_PRECISION = 38

NULL = Primitive("null")
DURATION = pa.struct([(part, pa.int64()) for part in ("months", "days", "millis")])

_PRIMITIVE_COLUMNS = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL_COLUMNS = {
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
    """Expand a schema; a root type that is not a record becomes the only field of one."""
    expanded = _Expansion(schema).expand(schema.type, (), 0)
    if isinstance(expanded, Record):
        return expanded
    return Record(type_name(expanded), (RecordField("value", expanded),), min_size(expanded, {}))


class _Expansion:
    def __init__(self, schema: AvroSchema) -> None:
        self._named = schema.named
        self._field_count = 0

    def expand(self, avro_type: Type, enclosing: tuple[str, ...], depth: int) -> Type:
        if depth > MAX_SCHEMA_DEPTH:
            raise RefusedSchema(f"nests deeper than {MAX_SCHEMA_DEPTH}")
        match avro_type:
            case Reference(name):
                return self.expand(self._named[name], enclosing, depth)
            case Array(items):
                return Array(self.expand(items, enclosing, depth + 1))
            case Map(values):
                return Map(self.expand(values, enclosing, depth + 1))
            case Union(branches):
                self._count(sum(branch != NULL for branch in branches) - 1)
                return Union(
                    tuple(self.expand(branch, enclosing, depth + 1) for branch in branches)
                )
            case Record(name, fields, size):
                self._count(len(fields))
                inside = (*enclosing, name)
                expanded = [
                    RecordField(field.name, self._field(field, inside, depth)) for field in fields
                ]
                return Record(name, tuple(expanded), size)
            case _:
                return avro_type

    def _field(self, field: RecordField, enclosing: tuple[str, ...], depth: int) -> Type:
        if _is_recursive(field.type, enclosing):
            return JsonTextType(field.type)
        return self.expand(field.type, enclosing, depth + 1)

    def _count(self, fields: int) -> None:
        self._field_count += fields
        if self._field_count > MAX_FIELDS:
            raise RefusedSchema(f"has more than {MAX_FIELDS} fields")


def _is_recursive(avro_type: Type, enclosing: tuple[str, ...]) -> bool:
    match avro_type:
        case Reference(name):
            return name in enclosing
        case Array(item) | Map(item):
            return _is_recursive(item, enclosing)
        case Union(branches):
            return any(_is_recursive(branch, enclosing) for branch in branches)
        case _:
            return False


def column_type(avro_type: Type) -> pa.DataType:
    """Return the Arrow type of an expanded type."""
    match avro_type:
        case Primitive(logical=logical) | Fixed(logical=logical) if logical is not None:
            if logical.name != "decimal":
                return _LOGICAL_COLUMNS[logical.name]
            if logical.precision > MAX_DECIMAL_PRECISION:
                return pa.string()
            return pa.decimal128(logical.precision, logical.scale)
        case Primitive(name):
            return _PRIMITIVE_COLUMNS[name]
        case Fixed():
            return pa.binary()
        case Enum() | JsonTextType():
            return pa.string()
        case Array(items):
            return pa.list_(column_type(items))
        case Map(values):
            return pa.map_(pa.string(), column_type(values))
        case Record(fields=fields):
            return pa.struct([pa.field(field.name, column_type(field.type)) for field in fields])
        case Union(branches):
            names = branch_names(avro_type)
            if not names:
                return pa.null()
            if len(names) == 1:
                return column_type(branches[next(iter(names))])
            return pa.struct(
                [pa.field(name, column_type(branches[index])) for index, name in names.items()]
            )
    raise AssertionError(f"{avro_type} is not expanded")


def record_columns(record: Record) -> list[pa.Field]:
    """Return the columns of a record, with metadata on whether each field is required."""
    return [
        with_field_metadata(
            pa.field(field.name, column_type(field.type)), required=not _nullable(field.type)
        )
        for field in record.fields
    ]


def _nullable(avro_type: Type) -> bool:
    match avro_type:
        case Union(branches):
            return NULL in branches
        case JsonTextType(inside):
            return _nullable(inside)
        case _:
            return avro_type == NULL


def branch_names(union: Union) -> Mapping[int, str]:
    """Return the struct field of each non-null branch, by the branch's index.

    Names do not depend on the position of a branch, so that adding one never renames another.
    Branches whose short names collide are named by their full names.
    """
    return _field_names(
        tuple(None if branch == NULL else type_name(branch) for branch in union.branches)
    )


@lru_cache(maxsize=1024)
def _field_names(branches: tuple[str | None, ...]) -> Mapping[int, str]:
    names = {index: name for index, name in enumerate(branches) if name is not None}
    counts = Counter(name.rpartition(".")[2].lower() for name in names.values())
    return {index: _branch_name(name, counts) for index, name in names.items()}


def _branch_name(name: str, counts: Counter[str]) -> str:
    short = name.rpartition(".")[2]
    return short if name in PRIMITIVES or counts[short.lower()] == 1 else derived_name(name)


def type_name(avro_type: Type) -> str:
    """Return the name of a type; the full name of a named type."""
    match avro_type:
        case Primitive(name):
            return name
        case Record(name) | Enum(name) | Fixed(name) | Reference(name):
            return name
        case _:
            return type(avro_type).__name__.lower()


def cell_count(avro_type: Type) -> int:
    """Return the number of cells that a value takes in columns, even if it is null."""
    match avro_type:
        case Record(fields=fields):
            return 1 + sum(cell_count(field.type) for field in fields)
        case Union(branches):
            return 1 + sum(cell_count(branch) for branch in branches if branch != NULL)
        case _:
            return 1


def cells_per_byte(avro_type: Type) -> float:
    """Return an upper bound on the cells in arrays and maps per byte of payload."""
    match avro_type:
        case Array(items):
            return cell_count(items) / min_size(items, {}) + cells_per_byte(items)
        case Map(values):
            entry = (1 + cell_count(values)) / (1 + min_size(values, {}))
            return entry + cells_per_byte(values)
        case Record(fields=fields):
            return max((cells_per_byte(field.type) for field in fields), default=0.0)
        case Union(branches):
            return max(cells_per_byte(branch) for branch in branches)
        case _:
            return 0.0
