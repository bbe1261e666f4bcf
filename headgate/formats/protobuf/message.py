"""Messages as columns: planned from a descriptor, read from ptars, measured and converted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.field import Field, MapField, Repeated, Singular, ValueType, is_map
from headgate.formats.protobuf.json_text import JsonText, SingularJson
from headgate.formats.protobuf.scalar import (
    NANOS,
    SCALARS,
    SECONDS,
    DurationValue,
    EnumValue,
    Scalar,
    SecondsAndNanos,
    TimestampValue,
    WrapperValue,
)
from headgate.formats.protobuf.wire import (
    BYTES,
    GROUP,
    MESSAGE,
    STRING,
    PtarsSchema,
    Read,
    delimited,
    extra_varint_bytes,
    longer_lengths,
    merge_mismatched,
    offsets_of,
    present_in,
    tag_size,
    zigzag,
)
from headgate.registry.registry import RefusedSchema
from headgate.schema.field_metadata import with_field_metadata
from headgate.schema.names import column_names

_TABLE_UP_TO = 4_000
"""Messages above which columns are measured one by one: a table would exceed the cache."""
_INT64, _INT32 = SCALARS[3], SCALARS[5]


@dataclass(frozen=True, slots=True)
class _Column:
    """A singular scalar field of each message, or a part of a timestamp or duration."""

    place: int
    scalar: Scalar
    number: int
    has_presence: bool = False
    within: int | None = None
    """The place of the timestamp or duration that it is a part of."""

    @property
    def minimum(self) -> int:
        """The bytes of the tag and of the shortest value."""
        return tag_size(self.number) + (self.scalar.fixed_width or 1)


@dataclass(frozen=True, slots=True)
class _MeasuredColumns:
    """Columns to measure together: texts first, then varints, then numbers of a fixed size."""

    columns: tuple[_Column, ...]
    texts: int
    varints: int
    minimum: np.ndarray
    zigzags: tuple[int, ...]
    """Rows, among the varints, of those in zigzag encoding."""
    special: tuple[tuple[int, _Column], ...]
    """Columns that are written or not depending on more than their value."""

    @classmethod
    def of(cls, columns: Iterable[_Column]) -> _MeasuredColumns:
        texts, varints, fixed = list[_Column](), list[_Column](), list[_Column]()
        for one in columns:
            by_value = texts if one.scalar.is_text else varints
            (by_value if one.scalar.fixed_width is None else fixed).append(one)
        ordered = (*texts, *varints, *fixed)
        minimum = np.array([[one.minimum] for one in ordered], np.int32)
        zigzags = [row for row, one in enumerate(varints) if one.scalar.is_zigzag]
        special = [
            (row, one)
            for row, one in enumerate(ordered)
            if one.has_presence or one.within is not None
        ]
        return cls(ordered, len(texts), len(varints), minimum, tuple(zigzags), tuple(special))

    def sizes(self, raws: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return the bytes that all columns together take in each message."""
        texts, varints = self.texts, self.varints
        sizes = np.zeros((len(self.columns), count), np.int32)
        if texts:
            offsets = [offsets_of(raws[one.place]) for one in self.columns[:texts]]
            ends = np.concatenate(offsets).reshape(texts, -1)
            np.subtract(ends[:, 1:], ends[:, :-1], out=sizes[:texts])
        written = sizes != 0
        if texts:
            for longer in longer_lengths(sizes[:texts]):
                sizes[:texts] += longer
        if texts < len(self.columns):
            bits = [one.scalar.bits(raws[one.place]) for one in self.columns[texts:]]
            # Only the bits matter, of unsigned numbers too.
            joined = np.concatenate(bits, dtype=np.int64, casting="unsafe")
            numbers = joined.reshape(len(bits), -1)
            np.not_equal(numbers, 0, out=written[texts:])
            for row in self.zigzags:
                numbers[row] = zigzag(numbers[row])
            if varints:
                sizes[texts : texts + varints] = extra_varint_bytes(numbers[:varints])
        for row, one in self.special:
            if one.within is None:
                written[row] = present_in(raws[one.place])
            elif raws[one.within].null_count:
                written[row] &= present_in(raws[one.within])
        sizes += self.minimum
        sizes *= written
        # Parts of one payload, whose length fits into 32 bits.
        return np.asarray(np.add.reduce(sizes, 0, np.int32))


@dataclass(frozen=True, slots=True)
class EncodedSize:
    """The arithmetic of how many bytes messages with certain fields take."""

    fields: tuple[Field, ...]
    timestamps: tuple[tuple[int, int], ...]
    """Places of timestamps and durations, and the bytes each takes besides its parts; those are
    columns after all others."""
    table: _MeasuredColumns
    others: tuple[tuple[int, Field], ...]
    """Fields that are measured one by one."""

    @classmethod
    def of(cls, fields: tuple[Field, ...]) -> EncodedSize:
        columns, others = list[_Column](), list[tuple[int, Field]]()
        timestamps = list[tuple[int, int]]()
        for place, one in enumerate(fields):
            value_type = one.value_type if isinstance(one, Singular) else None
            scalar = _INT32 if isinstance(value_type, EnumValue) else value_type
            if isinstance(one, Singular) and isinstance(scalar, Scalar):
                columns.append(_Column(place, scalar, one.number, one.has_presence))
            elif isinstance(value_type, SecondsAndNanos):
                behind = len(fields) + 2 * len(timestamps)
                columns.append(_Column(behind, _INT64, SECONDS.number, within=place))
                columns.append(_Column(behind + 1, _INT32, NANOS.number, within=place))
                timestamps.append((place, tag_size(one.number) + 1))
            else:
                others.append((place, one))
        return cls(fields, tuple(timestamps), _MeasuredColumns.of(columns), tuple(others))

    def sizes(self, raws: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return the bytes that each message takes, from the columns that ptars read."""
        sizes = np.zeros(count, np.int64)
        if count > _TABLE_UP_TO:
            for one, raw in zip(self.fields, raws, strict=True):
                sizes += one.sizes(raw)
            return sizes
        raws = list(raws)
        for place, besides in self.timestamps:
            timestamp = raws[place]
            raws += [timestamp.field(0), timestamp.field(1)]
            sizes += besides * present_in(timestamp)
        if self.table.columns:
            sizes += self.table.sizes(raws, count)
        for place, one in self.others:
            sizes += one.sizes(raws[place])
        return sizes


@dataclass(frozen=True)
class Message:
    """A struct of the fields of a message, in the order of their numbers as in ptars."""

    fields: tuple[Field, ...]
    oneofs: tuple[tuple[int, ...], ...] = ()
    """Places of the fields of each oneof."""
    required: frozenset[int] = frozenset()
    """Numbers of required fields."""
    zero = None
    absent = None

    @property
    def columns(self) -> list[pa.Field]:
        return [
            with_field_metadata(
                pa.field(one.column, one.type), one.number, one.number in self.required
            )
            for one in self.fields
        ]

    @cached_property
    def by_number(self) -> dict[int, Field]:
        return {one.number: one for one in self.fields}

    @cached_property
    def type(self) -> pa.DataType:
        return pa.struct(self.columns)

    @cached_property
    def width(self) -> int:
        return 1 + sum(one.width for one in self.fields)

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        declared.type = MESSAGE
        declared.type_name = schema.message(self.fields)

    def read(self, raw: pa.Array) -> Read:
        arrays, mismatched = self.read_fields(self._children(raw))
        array = pa.Array.from_buffers(self.type, len(raw), [raw.buffers()[0]], children=arrays)
        return Read(array, mismatched)

    def read_fields(self, raws: Sequence[pa.Array]) -> tuple[list[pa.Array], np.ndarray | None]:
        """Return the columns, and the positions of mismatched messages."""
        arrays = list(raws)
        mismatched: list[np.ndarray | None] = [
            self._with_several_set(places, raws) for places in self.oneofs
        ]
        for place, one in self._converted:
            read = one.read(raws[place])
            arrays[place] = read.array
            mismatched.append(read.mismatched)
        return arrays, merge_mismatched(*mismatched)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return delimited(self.sizes_of_fields(self._children(raw), len(raw)))

    def sizes_of_fields(self, raws: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return the bytes that each message takes."""
        return self._encoded_size.sizes(raws, count)

    def value(self, value: Any) -> dict[str, Any]:
        # Not value.ListFields(): a field may have that name.
        present = {field.number: one for field, one in type(value).ListFields(value)}
        return {one.column: one.value(present.get(one.number)) for one in self.fields}

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)

    @cached_property
    def _encoded_size(self) -> EncodedSize:
        return EncodedSize.of(self.fields)

    @cached_property
    def _converted(self) -> tuple[tuple[int, Field], ...]:
        """Places and fields of the columns that differ from the arrays of ptars."""
        return tuple(
            (place, one)
            for place, one in enumerate(self.fields)
            if not (
                isinstance(one, Singular)
                and isinstance(one.value_type, Scalar)
                and one.value_type.is_stored_as_read
            )
        )

    def _children(self, raw: pa.Array) -> list[pa.Array]:
        return [raw.field(place) for place in range(len(self.fields))]

    def _with_several_set(self, places: tuple[int, ...], raws: Sequence[pa.Array]) -> np.ndarray:
        """Find messages with several fields of a oneof set: ptars keeps all, protobuf the last."""
        branches = np.zeros(len(raws[places[0]]), np.int32)
        for place in places:
            branches += self.fields[place].present(raws[place])
        return np.flatnonzero(branches > 1)


@dataclass(frozen=True)
class EmptyMessage:
    """A message without fields: whether it is present."""

    type = pa.bool_()
    width = 1
    zero = None
    absent = False

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        declared.type = MESSAGE
        declared.type_name = schema.message([])

    def read(self, raw: pa.Array) -> Read:
        return Read(raw.is_valid())

    def value(self, value: Any) -> bool:
        return True

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return np.ones(len(raw), np.int32)

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)


_MAX_FIELDS = 10_000
_MAX_DEPTH = 64


@dataclass
class Planner:
    """Plans the columns of one message from its descriptor, within limits."""

    class_for_json: Callable[[str], Any]
    fields: int = 0
    has_groups: bool = False
    """Whether any column is a group, which ptars cannot read."""
    has_maps: bool = False
    has_lists_of_numbers: bool = False
    _known: dict[str, ValueType | None] = field(default_factory=dict)
    _enums: dict[str, EnumValue] = field(default_factory=dict)

    def message(self, descriptor: Any, reserved: Collection[str]) -> Message:
        """Plan the columns of a message; messages inside themselves become JSON text."""
        return self._message(descriptor, (), reserved)

    def _message(
        self, descriptor: Any, around: tuple[str, ...], reserved: Collection[str] = ()
    ) -> Message:
        if len(around) >= _MAX_DEPTH:
            raise RefusedSchema(f"messages nest deeper than {_MAX_DEPTH}")
        self.fields += len(descriptor.fields)
        if self.fields > _MAX_FIELDS:
            raise RefusedSchema(f"the message has more than {_MAX_FIELDS} fields")
        ordered = sorted(descriptor.fields, key=lambda one: int(one.number))
        columns = column_names((one.name for one in ordered), reserved)
        inside = (*around, descriptor.full_name)
        place = {one.number: at for at, one in enumerate(ordered)}
        return Message(
            tuple(self._field(*one, inside) for one in zip(ordered, columns, strict=True)),
            tuple(
                tuple(place[one.number] for one in oneof.fields)
                for oneof in descriptor.oneofs
                if len(oneof.fields) > 1
            ),
            frozenset(one.number for one in ordered if one.is_required),
        )

    def _field(self, of: Any, column: str, around: tuple[str, ...]) -> Field:
        if is_map(of):
            self.has_maps = True
            key, item = (of.message_type.fields_by_name[name] for name in ("key", "value"))
            value_type = self._value_type(item, around)
            return MapField(
                of.number,
                column,
                Singular(1, column, self._value_type(key, around), has_presence=True),
                _one(2, column, value_type, has_presence=True),
                value_type.zero,
            )
        value_type = self._value_type(of, around)
        if of.is_repeated:
            self.has_lists_of_numbers |= of.message_type is None and of.type not in (STRING, BYTES)
            return Repeated(of.number, column, value_type, of.is_packed)
        return _one(of.number, column, value_type, of.has_presence)

    def _value_type(self, of: Any, around: tuple[str, ...]) -> ValueType:
        if of.enum_type is not None:
            return self._enum(of.enum_type)
        if of.message_type is None:
            return SCALARS[of.type]
        self.has_groups |= of.type == GROUP
        name = of.message_type.full_name
        own = self._well_known(of.message_type)
        if own is not None:
            return own
        if name in around:
            return JsonText(self.class_for_json(name))
        return self._message(of.message_type, around) if of.message_type.fields else EmptyMessage()

    def _enum(self, descriptor: Any) -> EnumValue:
        """Share one for all fields of the type: it may have many values."""
        if descriptor.full_name not in self._enums:
            names: dict[int, str] = {}
            for value in descriptor.values:
                names.setdefault(value.number, value.name)
            self._enums[descriptor.full_name] = EnumValue(names, descriptor.is_closed)
        return self._enums[descriptor.full_name]

    def _well_known(self, descriptor: Any) -> ValueType | None:
        name = descriptor.full_name
        if not name.startswith("google.protobuf."):
            return None
        if name not in self._known:
            self._known[name] = self._make_well_known(descriptor)
        return self._known[name]

    def _make_well_known(self, descriptor: Any) -> ValueType | None:
        from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

        name = descriptor.name
        for module in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
            genuine = module.DESCRIPTOR.message_types_by_name.get(name)
            if genuine is None or descriptor.containing_type is not None:
                continue
            if _signature(genuine) != _signature(descriptor):
                raise RefusedSchema(f"{descriptor.full_name} is not the one of protobuf itself")
            if module is struct_pb2:
                return JsonText(self.class_for_json(descriptor.full_name))
            if module is wrappers_pb2:
                return WrapperValue(SCALARS[descriptor.fields[0].type])
            return TimestampValue() if module is timestamp_pb2 else DurationValue()
        return None


def _one(number: int, column: str, value_type: ValueType, has_presence: bool) -> Field:
    if isinstance(value_type, JsonText):
        return SingularJson(number, column, value_type)
    return Singular(number, column, value_type, has_presence)


def _signature(descriptor: Any) -> list[tuple[str, int, int]]:
    return [(one.name, one.number, one.type) for one in descriptor.fields]
