"""How the columns of a file fit into a table: pure, on Arrow schemas alone."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.route.safe_name import column_twin, digest
from headgate.schema.change import (
    AddColumn,
    AddNestedField,
    CaseTwin,
    RetypeColumn,
    SchemaChange,
)

_CASTS_UP = {
    (pa.int8(), pa.int16()),
    (pa.int8(), pa.int32()),
    (pa.int8(), pa.int64()),
    (pa.int16(), pa.int32()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
}


@dataclass(frozen=True)
class Placed:
    """One column of the file, and the column of the table that takes it."""

    source: str
    target: str
    type: pa.DataType | None = None
    """The type to cast up to, where the table's is larger."""


@dataclass(frozen=True)
class Fit:
    """The table's columns afterwards, what changed, and where each of the file's columns goes."""

    schema: pa.Schema
    changes: tuple[SchemaChange, ...]
    placed: tuple[Placed, ...]

    @property
    def file_fits_as_it_is(self) -> bool:
        return all(one.source == one.target and one.type is None for one in self.placed)


class _Conflict(Exception):
    pass


def fit(file: pa.Schema, table: pa.Schema) -> Fit:
    """Place every column of the file; nothing is dropped and no value changes."""
    if _has_all(table, file):
        return Fit(table, (), tuple(Placed(name, name) for name in file.names))
    fields = {field.name: field for field in table}
    spelled = {name.lower(): name for name in fields}
    taken: set[str] = set()
    changes: list[SchemaChange] = []
    placed = []
    for field in file:
        target, merged, asked = field.name, field.type, list[SchemaChange]()
        while target.lower() in spelled:
            if spelled[target.lower()] != target or target in taken:
                target = column_twin(target)
                asked = [CaseTwin(field.name, target), AddColumn(target, type_name(merged))]
                continue
            try:
                nested: list[SchemaChange] = []
                merged = _merge(fields[target].type, field.type, target, nested)
                asked = nested
                break
            except _Conflict:
                was, target = type_name(fields[target].type), f"{target}__{type_word(field.type)}"
                asked = [RetypeColumn(field.name, was, type_name(field.type), target)]
        else:
            asked = asked or [AddColumn(target, type_name(merged))]
        changes.extend(asked)
        fields[target] = pa.field(target, merged)
        spelled[target.lower()] = target
        taken.add(target)
        cast = merged if _needs_cast(field.type, merged) else None
        placed.append(Placed(field.name, target, cast))
    return Fit(pa.schema(list(fields.values())), tuple(changes), tuple(placed))


def _has_all(table: pa.Schema, file: pa.Schema) -> bool:
    """The usual case by far: the table has just these columns already."""
    types = dict(zip(table.names, table.types, strict=True))
    return all(types.get(name) == kind for name, kind in zip(file.names, file.types, strict=True))


def _merge(
    table: pa.DataType, file: pa.DataType, path: str, changes: list[SchemaChange]
) -> pa.DataType:
    if table.equals(file) or (file, table) in _CASTS_UP:
        return table
    if pa.types.is_struct(table) and pa.types.is_struct(file):
        fields = {field.name: field.type for field in table}
        spelled = {name.lower() for name in fields}
        for field in file:
            inside = f"{path}.{field.name}"
            if field.name in fields:
                fields[field.name] = _merge(fields[field.name], field.type, inside, changes)
            elif field.name.lower() in spelled:
                raise _Conflict(inside)
            else:
                fields[field.name] = field.type
                spelled.add(field.name.lower())
                changes.append(AddNestedField(inside, type_name(field.type)))
        return pa.struct([pa.field(name, kind) for name, kind in fields.items()])
    if pa.types.is_map(table) and pa.types.is_map(file):
        return pa.map_(
            _merge(table.key_type, file.key_type, f"{path}.key", changes),
            _merge(table.item_type, file.item_type, f"{path}.value", changes),
        )
    if pa.types.is_list(table) and pa.types.is_list(file):
        return pa.list_(_merge(table.value_type, file.value_type, f"{path}.element", changes))
    raise _Conflict(path)


def _needs_cast(file: pa.DataType, merged: pa.DataType) -> bool:
    """Missing nested fields are filled in by every reader; other types are not."""
    if pa.types.is_struct(file):
        return any(_needs_cast(field.type, merged.field(field.name).type) for field in file)
    if pa.types.is_map(file):
        return _needs_cast(file.key_type, merged.key_type) or _needs_cast(
            file.item_type, merged.item_type
        )
    if pa.types.is_list(file):
        return _needs_cast(file.value_type, merged.value_type)
    return not file.equals(merged)


def type_name(kind: pa.DataType) -> str:
    """The type as Delta's users write it."""
    words = {
        pa.int8(): "byte",
        pa.int16(): "short",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }
    if kind in words:
        return words[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return str(kind)


def type_word(kind: pa.DataType) -> str:
    """The type as part of a column's name."""
    name = type_name(kind)
    return name if name.isidentifier() else f"{name.split('<')[0].split('(')[0]}_{digest(name)}"
