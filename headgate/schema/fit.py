"""How the columns of a schema fit into a table: pure, on Arrow schemas and a contract alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
from headgate.schema.field_facts import apart_from, has_facts, is_required, kept_apart, number_of
from headgate.schema.names import column_twin, digest

_WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_DIGITS = dict(zip(_WHOLE, (3, 5, 10, 19), strict=True))


def widens(smaller: pa.DataType, larger: pa.DataType) -> bool:
    """Whether every value of the one is a value of the other, with nothing to round.

    Whole numbers do not become floating ones, though a double could hold an int: a column of
    identifiers would turn into 1.0, 2.0, … because of one schema.
    """
    if smaller in _WHOLE and larger in _WHOLE:
        return _WHOLE.index(smaller) < _WHOLE.index(larger)
    if pa.types.is_float32(smaller) and pa.types.is_float64(larger):
        return True
    if not pa.types.is_decimal(larger):
        return False
    digits = larger.precision - larger.scale
    if smaller in _DIGITS:
        return bool(digits >= _DIGITS[smaller])
    return (
        pa.types.is_decimal(smaller)
        and not smaller.equals(larger)
        and bool(larger.scale >= smaller.scale)
        and bool(digits >= smaller.precision - smaller.scale)
    )


_WORDS = {
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


def type_name(kind: pa.DataType) -> str:
    """The type as Delta's users write it."""
    if kind in _WORDS:
        return _WORDS[kind]
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


FOLLOW = Rules()
"""The contract that follows every change."""

_OUTCOMES = {
    Mode.FREEZE: Outcome.REFUSED,
    Mode.DISCARD_ROW: Outcome.QUARANTINED,
    Mode.DISCARD_VALUE: Outcome.DISCARDED,
}


@dataclass(frozen=True)
class Placed:
    """One column of the file, and the column of the table that takes it."""

    source: str
    target: str
    type: pa.DataType | None = None
    """The type to conform to, where the file's is another one than the column will have."""


@dataclass(frozen=True)
class Fit:
    """The table's columns afterwards, what changed, and where each of the file's columns goes."""

    schema: pa.Schema
    changes: tuple[SchemaChange, ...]
    placed: tuple[Placed, ...]

    @property
    def file_fits_as_it_is(self) -> bool:
        return all(one.source == one.target and one.type is None for one in self.placed)

    @property
    def withheld(self) -> tuple[SchemaChange, ...]:
        """What the contract keeps out of the table."""
        return tuple(one for one in self.changes if one.withheld)


class _Conflict(Exception):
    """A type inside a column that the column cannot hold."""


def outcome_of(kind: type[SchemaChange], rules: Rules) -> Outcome:
    """What the contract makes of a kind of change."""
    if kind.decided_by is None:
        return kind.outcome
    mode: Mode = getattr(rules, kind.decided_by)
    return _OUTCOMES.get(mode, kind.outcome)


def decided(change: SchemaChange, rules: Rules) -> SchemaChange:
    """The change with the outcome that the contract gives it."""
    return replace(change, outcome=outcome_of(type(change), rules))


def fit(file: pa.Schema, table: pa.Schema, rules: Rules = FOLLOW, may_widen: bool = True) -> Fit:
    """Place every column of the file; what cannot be placed is told, and no value changes."""
    if _has_all(table, file):
        told = tuple(_made_optional(file, table))
        return Fit(table, told, tuple(Placed(name, name) for name in file.names))
    fitting = _Fitting(file, table, rules, may_widen)
    for one in file:
        fitting.place(one)
    return Fit(
        pa.schema(list(fitting.fields.values())),
        (*fitting.changes, *_made_optional(file, table)),
        tuple(fitting.placed),
    )


def _has_all(table: pa.Schema, file: pa.Schema) -> bool:
    """The usual case by far: the table has just these columns already."""
    types = dict(zip(table.names, table.types, strict=True))
    return all(types.get(name) == kind for name, kind in zip(file.names, file.types, strict=True))


def _made_optional(file: pa.Schema, table: pa.Schema) -> list[SchemaChange]:
    told = [one for one in file if has_facts(one) and not is_required(one)]
    if not told:
        return []
    columns: Mapping[str, pa.Field] = {one.name: one for one in table}
    return [
        MakeOptional(one.name)
        for one in told
        if one.name in columns and is_required(columns[one.name])
    ]


@dataclass
class _Fitting:
    """The columns of the table as they come to be, while those of the file are placed."""

    file: pa.Schema
    table: pa.Schema
    rules: Rules
    may_widen: bool
    changes: list[SchemaChange] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fields = {one.name: one for one in self.table}
        self._spelled = {name.lower(): name for name in self.fields}
        self._taken: set[str] = set()
        self._names = set(self.file.names)

    def place(self, wanted: pa.Field) -> None:
        if wanted.name.lower() not in self._spelled:
            self._add(wanted)
        elif self._spelled[wanted.name.lower()] != wanted.name or wanted.name in self._taken:
            self._set_apart(wanted, CaseTwin(wanted.name, column_twin(wanted.name)))
        else:
            self._merge_into(wanted)

    def _add(self, wanted: pa.Field) -> None:
        change: SchemaChange
        renamed = self._renamed(wanted)
        if renamed is None:
            change = decided(AddColumn(wanted.name, type_name(wanted.type)), self.rules)
        else:
            change = decided(RenameColumn(wanted.name, renamed, type_name(wanted.type)), self.rules)
        self.changes.append(change)
        if change.outcome in (Outcome.APPLIED, Outcome.KEPT_APART):
            self._put(wanted, wanted.name, wanted.type)

    def _renamed(self, wanted: pa.Field) -> str | None:
        """The column that has the field's number, where the schema no longer has its name."""
        number = number_of(wanted)
        for column in self.table if number is not None else ():
            if number_of(column) == number and column.name not in self._names:
                return str(column.name)
        return None

    def _merge_into(self, wanted: pa.Field) -> None:
        column = self.fields[wanted.name]
        for own in self._kept_apart_from(wanted.name):
            if own.type.equals(wanted.type) and not column.type.equals(wanted.type):
                self._put(wanted, own.name, own.type)
                return
        asked: list[SchemaChange] = []
        try:
            merged = self._merge(column.type, wanted.type, wanted.name, asked)
        except _Conflict:
            was, now = type_name(column.type), type_name(wanted.type)
            into = f"{wanted.name}__{type_word(wanted.type)}"
            self._set_apart(wanted, RetypeColumn(wanted.name, was, now, into))
            return
        self.changes.extend(asked)
        self._put(wanted, wanted.name, merged)

    def _set_apart(self, wanted: pa.Field, change: RetypeColumn | CaseTwin) -> None:
        """To a column of its own; the table may have one from before that can take it."""
        for own in self._kept_apart_from(wanted.name, change.into):
            asked: list[SchemaChange] = []
            try:
                merged = self._merge(own.type, wanted.type, own.name, asked)
            except _Conflict:
                continue
            self.changes.extend(asked)
            self._put(wanted, own.name, merged)
            return
        into = change.into
        while into.lower() in self._spelled:
            into = column_twin(into)
        told = decided(replace(change, into=into), self.rules)
        self.changes.append(told)
        if told.outcome is Outcome.KEPT_APART:
            self._put(kept_apart(wanted, wanted.name), into, wanted.type)

    def _kept_apart_from(self, source: str, usual: str | None = None) -> list[pa.Field]:
        """The columns that hold what the one of that name could not, as far as they are free."""
        free = [one for one in self.fields.values() if one.name not in self._taken]
        return [
            one
            for one in free
            if apart_from(one) == source
            or (one.name == usual and one.name not in self._names and not has_facts(one))
        ]

    def _put(self, wanted: pa.Field, target: str, merged: pa.DataType) -> None:
        column = self.fields.get(target, wanted.with_name(target))
        self.fields[target] = column.with_type(merged)
        self._spelled[target.lower()] = target
        self._taken.add(target)
        conformed = merged if _needs_conforming(wanted.type, merged) else None
        self.placed.append(Placed(wanted.name, target, conformed))

    def _merge(
        self, table: pa.DataType, file: pa.DataType, path: str, asked: list[SchemaChange]
    ) -> pa.DataType:
        if table.equals(file):
            return table
        if widens(file, table):
            asked.append(NarrowType(path, type_name(table), type_name(file)))
            return table
        if pa.types.is_struct(table) and pa.types.is_struct(file):
            return self._merge_structs(table, file, path, asked)
        if pa.types.is_map(table) and pa.types.is_map(file):
            return pa.map_(
                self._merge(table.key_type, file.key_type, f"{path}.key", asked),
                self._merge(table.item_type, file.item_type, f"{path}.value", asked),
            )
        if pa.types.is_list(table) and pa.types.is_list(file):
            return pa.list_(
                self._merge(table.value_type, file.value_type, f"{path}.element", asked)
            )
        if widens(table, file):
            widened = decided(WidenType(path, type_name(table), type_name(file)), self.rules)
            if widened.outcome is not Outcome.APPLIED:
                asked.append(widened)
                return table
            if self.may_widen:
                asked.append(widened)
                return file
        return self._conflict(table, file, path, asked)

    def _merge_structs(
        self, table: pa.DataType, file: pa.DataType, path: str, asked: list[SchemaChange]
    ) -> pa.DataType:
        fields = {one.name: one for one in table}
        spelled = {name.lower() for name in fields}
        for one in file:
            inside = f"{path}.{one.name}"
            if one.name in fields:
                merged = self._merge(fields[one.name].type, one.type, inside, asked)
                fields[one.name] = fields[one.name].with_type(merged)
            elif one.name.lower() in spelled:
                self._conflict(table, file, inside, asked)
            else:
                change = decided(AddNestedField(inside, type_name(one.type)), self.rules)
                asked.append(change)
                if change.outcome is Outcome.APPLIED:
                    fields[one.name] = one
                    spelled.add(one.name.lower())
        return pa.struct(list(fields.values()))

    def _conflict(
        self, table: pa.DataType, file: pa.DataType, path: str, asked: list[SchemaChange]
    ) -> pa.DataType:
        """Where the contract follows, the whole column goes apart; else only what conflicts stays
        out."""
        change = decided(RetypeColumn(path, type_name(table), type_name(file), ""), self.rules)
        if change.outcome is Outcome.KEPT_APART:
            raise _Conflict(path)
        asked.append(change)
        return table


def _needs_conforming(file: pa.DataType, merged: pa.DataType) -> bool:
    """Nested fields that the file lacks are filled in by every reader; all else is not."""
    if pa.types.is_struct(file) and pa.types.is_struct(merged):
        known = {one.name: one.type for one in merged}
        return any(
            one.name not in known or _needs_conforming(one.type, known[one.name]) for one in file
        )
    if pa.types.is_map(file) and pa.types.is_map(merged):
        return _needs_conforming(file.key_type, merged.key_type) or _needs_conforming(
            file.item_type, merged.item_type
        )
    if pa.types.is_list(file) and pa.types.is_list(merged):
        return _needs_conforming(file.value_type, merged.value_type)
    return not file.equals(merged)
