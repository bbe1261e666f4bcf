"""Fitting the columns of a file into a table under a contract, on schemas alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import pyarrow as pa

from headgate.config import Mode, Rules
from headgate.schema.changes import (
    AddColumn,
    AddNestedField,
    CaseTwin,
    MakeOptional,
    NarrowType,
    Outcome,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    WidenType,
)
from headgate.schema.field_metadata import (
    field_number,
    has_field_metadata,
    is_required,
    keep_apart,
    kept_apart_from,
)
from headgate.schema.names import column_twin, digest

EVOLVE = Rules()
"""The contract that applies every change."""

_BLOCKED = {
    Mode.FREEZE: Outcome.REFUSED,
    Mode.DISCARD_ROW: Outcome.QUARANTINED,
    Mode.DISCARD_VALUE: Outcome.DISCARDED,
}
_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_INTEGER_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_TYPE_NAMES = {
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


def type_name(data_type: pa.DataType) -> str:
    """Return the name of a type in Spark SQL."""
    if data_type in _TYPE_NAMES:
        return _TYPE_NAMES[data_type]
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_struct(data_type):
        return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in data_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)},{type_name(data_type.item_type)}>"
    if pa.types.is_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    return str(data_type)


def type_suffix(data_type: pa.DataType) -> str:
    """Return the type as a part of a column name."""
    name = type_name(data_type)
    return name if name.isidentifier() else f"{name.split('<')[0].split('(')[0]}_{digest(name)}"


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether the wider type holds every value of the narrower one exactly.

    Integers do not widen to doubles, although a double could hold an int: one schema would turn
    a column of identifiers into 1.0, 2.0, …
    """
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) < _INTEGERS.index(wide)
    if pa.types.is_float32(narrow) and pa.types.is_float64(wide):
        return True
    if not pa.types.is_decimal(wide):
        return False
    integer_digits = wide.precision - wide.scale
    if narrow in _INTEGER_DIGITS:
        return bool(integer_digits >= _INTEGER_DIGITS[narrow])
    return (
        pa.types.is_decimal(narrow)
        and not narrow.equals(wide)
        and bool(wide.scale >= narrow.scale)
        and bool(integer_digits >= narrow.precision - narrow.scale)
    )


def outcome_of(change_type: type[SchemaChange], rules: Rules) -> Outcome:
    """Return the outcome of a type of change under a contract."""
    if change_type.decided_by is None:
        return change_type.outcome
    mode: Mode = getattr(rules, change_type.decided_by)
    return _BLOCKED.get(mode, change_type.outcome)


def with_outcome(change: SchemaChange, rules: Rules) -> SchemaChange:
    """Return a change with its outcome under a contract."""
    return replace(change, outcome=outcome_of(type(change), rules))


@dataclass(frozen=True)
class ColumnMapping:
    """A column of the file, and the column of the table that its values go to."""

    source: str
    target: str
    type: pa.DataType | None = None
    """The type to convert to; None if the file already has it."""


@dataclass(frozen=True)
class Fit:
    """The table's columns after the changes, the changes, and the target of each file column."""

    schema: pa.Schema
    changes: tuple[SchemaChange, ...]
    mappings: tuple[ColumnMapping, ...]

    @cached_property
    def is_identity(self) -> bool:
        """Whether the file can be added to the table without rewriting it."""
        return all(
            mapping.source == mapping.target and mapping.type is None for mapping in self.mappings
        )

    @property
    def blocked(self) -> tuple[SchemaChange, ...]:
        """Changes that the contract keeps out of the table."""
        return tuple(change for change in self.changes if change.is_blocked)


def fit(file: pa.Schema, table: pa.Schema, rules: Rules = EVOLVE, may_widen: bool = True) -> Fit:
    """Map every column of a file to the table, with the changes that this needs.

    Columns that the contract blocks have no mapping; no value is altered.
    """
    return _fit(_Itself(file), _Itself(table), rules, may_widen)


class _Itself:
    """A schema as the key of a cache: to compare columns would take as long as to fit them."""

    __slots__ = ("schema",)

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.schema is other.schema


@lru_cache(maxsize=10_000)
def _fit(of_file: _Itself, of_table: _Itself, rules: Rules, may_widen: bool) -> Fit:
    """Most batches have the files and tables of the batch before."""
    file, table = of_file.schema, of_table.schema
    if _has_all_columns(table, file):
        mappings = tuple(ColumnMapping(name, name) for name in file.names)
        return Fit(table, tuple(_made_optional(file, table)), mappings)
    fitting = _Fitting(file, table, rules, may_widen)
    for column in file:
        fitting.add(column)
    return Fit(
        pa.schema(list(fitting.fields.values())),
        (*fitting.changes, *_made_optional(file, table)),
        tuple(fitting.mappings),
    )


def _has_all_columns(table: pa.Schema, file: pa.Schema) -> bool:
    """Whether the table already has the file's columns, which is by far the most common case."""
    types = dict(zip(table.names, table.types, strict=True))
    return all(
        types.get(name) == data_type for name, data_type in zip(file.names, file.types, strict=True)
    )


def _made_optional(file: pa.Schema, table: pa.Schema) -> list[SchemaChange]:
    optional = [
        column.name for column in file if has_field_metadata(column) and not is_required(column)
    ]
    if not optional:
        return []
    columns: Mapping[str, pa.Field] = {column.name: column for column in table}
    return [
        MakeOptional(name) for name in optional if name in columns and is_required(columns[name])
    ]


class _Conflict(Exception):
    """A nested type that its column cannot hold."""


@dataclass
class _Fitting:
    """The table's columns while those of a file are added."""

    file: pa.Schema
    table: pa.Schema
    rules: Rules
    may_widen: bool
    changes: list[SchemaChange] = field(default_factory=list)
    mappings: list[ColumnMapping] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fields = {column.name: column for column in self.table}
        self._by_lower_case = {name.lower(): name for name in self.fields}
        self._targets: set[str] = set()
        self._file_names = set(self.file.names)

    def add(self, column: pa.Field) -> None:
        existing = self._by_lower_case.get(column.name.lower())
        if existing is None:
            self._add_column(column)
        elif existing != column.name or column.name in self._targets:
            self._keep_apart(column, CaseTwin(column.name, column_twin(column.name)))
        else:
            self._merge_column(column)

    def _add_column(self, column: pa.Field) -> None:
        change: SchemaChange
        renamed = self._renamed_from(column)
        if renamed is None:
            change = AddColumn(column.name, type_name(column.type))
        else:
            change = RenameColumn(column.name, renamed, type_name(column.type))
        change = with_outcome(change, self.rules)
        self.changes.append(change)
        if change.outcome in (Outcome.APPLIED, Outcome.KEPT_APART):
            self._map(column, column.name, column.type)

    def _renamed_from(self, column: pa.Field) -> str | None:
        """Return the column with the same field number, if the file has no column of its name."""
        number = field_number(column)
        for existing in self.table if number is not None else ():
            if field_number(existing) == number and existing.name not in self._file_names:
                return str(existing.name)
        return None

    def _merge_column(self, column: pa.Field) -> None:
        existing = self.fields[column.name]
        for apart in self._columns_kept_apart(column.name):
            if apart.type.equals(column.type) and not existing.type.equals(column.type):
                self._map(column, apart.name, apart.type)
                return
        changes: list[SchemaChange] = []
        try:
            merged = self._merge(existing.type, column.type, column.name, changes)
        except _Conflict:
            was, now = type_name(existing.type), type_name(column.type)
            into = f"{column.name}__{type_suffix(column.type)}"
            self._keep_apart(column, RetypeColumn(column.name, was, now, into))
            return
        self.changes.extend(changes)
        self._map(column, column.name, merged)

    def _keep_apart(self, column: pa.Field, change: RetypeColumn | CaseTwin) -> None:
        """Map to a column of its own, if possible to one that an earlier schema created."""
        for apart in self._columns_kept_apart(column.name, change.into):
            changes: list[SchemaChange] = []
            try:
                merged = self._merge(apart.type, column.type, apart.name, changes)
            except _Conflict:
                continue
            self.changes.extend(changes)
            self._map(column, apart.name, merged)
            return
        into = change.into
        while into.lower() in self._by_lower_case:
            into = column_twin(into)
        decided = with_outcome(replace(change, into=into), self.rules)
        self.changes.append(decided)
        if decided.outcome is Outcome.KEPT_APART:
            self._map(keep_apart(column, column.name), into, column.type)

    def _columns_kept_apart(self, source: str, default: str | None = None) -> list[pa.Field]:
        """Return columns for values that `source` cannot hold, unless they are mapped already."""
        return [
            column
            for column in self.fields.values()
            if column.name not in self._targets
            and (kept_apart_from(column) == source or self._is_untracked(column, default))
        ]

    def _is_untracked(self, column: pa.Field, name: str | None) -> bool:
        """Whether a column has that name, but neither a field in the file nor field metadata."""
        return (
            column.name == name
            and column.name not in self._file_names
            and not has_field_metadata(column)
        )

    def _map(self, column: pa.Field, target: str, merged: pa.DataType) -> None:
        existing = self.fields.get(target, column.with_name(target))
        self.fields[target] = existing.with_type(merged)
        self._by_lower_case[target.lower()] = target
        self._targets.add(target)
        converted = merged if _needs_conversion(column.type, merged) else None
        self.mappings.append(ColumnMapping(column.name, target, converted))

    def _merge(
        self, table: pa.DataType, file: pa.DataType, path: str, changes: list[SchemaChange]
    ) -> pa.DataType:
        """Return the column's type after the changes, which are appended to `changes`."""
        if table.equals(file):
            return table
        if widens(file, table):
            changes.append(NarrowType(path, type_name(table), type_name(file)))
            return table
        if pa.types.is_struct(table) and pa.types.is_struct(file):
            return self._merge_structs(table, file, path, changes)
        if pa.types.is_map(table) and pa.types.is_map(file):
            return pa.map_(
                self._merge(table.key_type, file.key_type, f"{path}.key", changes),
                self._merge(table.item_type, file.item_type, f"{path}.value", changes),
            )
        if pa.types.is_list(table) and pa.types.is_list(file):
            return pa.list_(
                self._merge(table.value_type, file.value_type, f"{path}.element", changes)
            )
        if widens(table, file):
            widened = with_outcome(WidenType(path, type_name(table), type_name(file)), self.rules)
            if widened.outcome is not Outcome.APPLIED:
                changes.append(widened)
                return table
            if self.may_widen:
                changes.append(widened)
                return file
        return self._conflict(table, file, path, changes)

    def _merge_structs(
        self, table: pa.DataType, file: pa.DataType, path: str, changes: list[SchemaChange]
    ) -> pa.DataType:
        fields = {nested.name: nested for nested in table}
        lower_case = {name.lower() for name in fields}
        for nested in file:
            nested_path = f"{path}.{nested.name}"
            if nested.name in fields:
                existing = fields[nested.name]
                merged = self._merge(existing.type, nested.type, nested_path, changes)
                fields[nested.name] = existing.with_type(merged)
            elif nested.name.lower() in lower_case:
                self._conflict(table, file, nested_path, changes)
            else:
                change = AddNestedField(nested_path, type_name(nested.type))
                decided = with_outcome(change, self.rules)
                changes.append(decided)
                if decided.outcome is Outcome.APPLIED:
                    fields[nested.name] = nested
                    lower_case.add(nested.name.lower())
        return pa.struct(list(fields.values()))

    def _conflict(
        self, table: pa.DataType, file: pa.DataType, path: str, changes: list[SchemaChange]
    ) -> pa.DataType:
        """Keep the whole column apart if the contract allows it, else block only this part."""
        change = RetypeColumn(path, type_name(table), type_name(file), "")
        decided = with_outcome(change, self.rules)
        if decided.outcome is Outcome.KEPT_APART:
            raise _Conflict(path)
        changes.append(decided)
        return table


def _needs_conversion(file: pa.DataType, merged: pa.DataType) -> bool:
    """Whether values must be converted: readers only fill in missing nested fields themselves."""
    if pa.types.is_struct(file) and pa.types.is_struct(merged):
        types = {nested.name: nested.type for nested in merged}
        return any(
            nested.name not in types or _needs_conversion(nested.type, types[nested.name])
            for nested in file
        )
    if pa.types.is_map(file) and pa.types.is_map(merged):
        return _needs_conversion(file.key_type, merged.key_type) or _needs_conversion(
            file.item_type, merged.item_type
        )
    if pa.types.is_list(file) and pa.types.is_list(merged):
        return _needs_conversion(file.value_type, merged.value_type)
    return not file.equals(merged)
