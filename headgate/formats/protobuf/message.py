"""A message, or a group, inside another one: a struct of its fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.field import Field, One
from headgate.formats.protobuf.scalar import NANOS, SCALARS, SECONDS, Enum, Scalar, SecondsAndNanos
from headgate.formats.protobuf.wire import (
    MESSAGE,
    Read,
    Wire,
    delimited,
    longer_lengths,
    more_bytes,
    odd_slots,
    offsets_of,
    present_in,
    tag_size,
    zigzag,
)
from headgate.schema.field_metadata import with_field_metadata

_MANY = 4_000
"""Of so many messages a column is best counted by itself: a table would leave the cache."""
_INT64, _INT32 = SCALARS[3], SCALARS[5]


@dataclass(frozen=True, slots=True)
class _Column:
    """Scalars that occur once in each message."""

    place: int
    scalar: Scalar
    number: int
    has_presence: bool = False
    within: int | None = None
    """The place of the moment or duration that they are a part of."""

    @property
    def least(self) -> int:
        """The bytes that a value takes at least: its tag, and one, or all if that is fixed."""
        return tag_size(self.number) + (self.scalar.fixed_width or 1)


@dataclass(frozen=True, slots=True)
class _Table:
    """Some columns: texts first, then numbers of any length, then those of a fixed one."""

    columns: tuple[_Column, ...]
    texts: int
    varints: int
    least: np.ndarray
    zigzags: tuple[int, ...]
    """Which of the numbers are written without a sign."""
    special: tuple[tuple[int, _Column], ...]
    """Those of which it does not depend on the value alone whether it is written."""

    @classmethod
    def of(cls, columns: Iterable[_Column]) -> _Table:
        texts, varints, fixed = list[_Column](), list[_Column](), list[_Column]()
        for one in columns:
            by_value = texts if one.scalar.is_text else varints
            (by_value if one.scalar.fixed_width is None else fixed).append(one)
        ordered = (*texts, *varints, *fixed)
        least = np.array([[one.least] for one in ordered], np.int32)
        zigzags = [row for row, one in enumerate(varints) if one.scalar.is_zigzag]
        special = [
            (row, one)
            for row, one in enumerate(ordered)
            if one.has_presence or one.within is not None
        ]
        return cls(ordered, len(texts), len(varints), least, tuple(zigzags), tuple(special))

    def sizes(self, raws: Sequence[pa.Array], count: int) -> np.ndarray:
        """The bytes that all of them together take in each message."""
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
            # Of numbers without a sign, too, only the bits matter.
            joined = np.concatenate(bits, dtype=np.int64, casting="unsafe")
            numbers = joined.reshape(len(bits), -1)
            np.not_equal(numbers, 0, out=written[texts:])
            for row in self.zigzags:
                numbers[row] = zigzag(numbers[row])
            if varints:
                sizes[texts : texts + varints] = more_bytes(numbers[:varints])
        for row, one in self.special:
            if one.within is None:
                written[row] = present_in(raws[one.place])
            elif raws[one.within].null_count:
                written[row] &= present_in(raws[one.within])
        sizes += self.least
        sizes *= written
        # These are parts of one payload, which is not longer than 32 bits can tell.
        return np.asarray(np.add.reduce(sizes, 0, np.int32))


@dataclass(frozen=True, slots=True)
class Measure:
    """Of messages that have certain fields."""

    fields: tuple[Field, ...]
    moments: tuple[tuple[int, int], ...]
    """Places of moments and durations, and what each takes besides its parts, which are columns
    behind all others."""
    table: _Table
    others: tuple[tuple[int, Field], ...]
    """Those that are measured one by one."""

    @classmethod
    def of(cls, fields: tuple[Field, ...]) -> Measure:
        columns, others = list[_Column](), list[tuple[int, Field]]()
        moments = list[tuple[int, int]]()
        for place, field in enumerate(fields):
            shape = field.shape if isinstance(field, One) else None
            scalar = _INT32 if isinstance(shape, Enum) else shape
            if isinstance(field, One) and isinstance(scalar, Scalar):
                columns.append(_Column(place, scalar, field.number, field.has_presence))
            elif isinstance(shape, SecondsAndNanos):
                behind = len(fields) + 2 * len(moments)
                columns.append(_Column(behind, _INT64, SECONDS.number, within=place))
                columns.append(_Column(behind + 1, _INT32, NANOS.number, within=place))
                moments.append((place, tag_size(field.number) + 1))
            else:
                others.append((place, field))
        return cls(fields, tuple(moments), _Table.of(columns), tuple(others))

    def sizes(self, raws: Sequence[pa.Array], count: int) -> np.ndarray:
        """The bytes that each message takes, from what ptars read of its fields."""
        sizes = np.zeros(count, np.int64)
        if count > _MANY:
            for field, raw in zip(self.fields, raws, strict=True):
                sizes += field.sizes(raw)
            return sizes
        raws = list(raws)
        for place, besides in self.moments:
            moment = raws[place]
            raws += [moment.field(0), moment.field(1)]
            sizes += besides * present_in(moment)
        if self.table.columns:
            sizes += self.table.sizes(raws, count)
        for place, field in self.others:
            sizes += field.sizes(raws[place])
        return sizes


@dataclass(frozen=True)
class Message:
    """The fields of a message in the order of their numbers, which is that of ptars."""

    fields: tuple[Field, ...]
    oneofs: tuple[tuple[int, ...], ...] = ()
    """Places of the fields of which a message has one at most."""
    required: frozenset[int] = frozenset()
    """Numbers of the fields that a writer must not leave out."""
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

    def declare(self, declared: Any, wire: Wire) -> None:
        declared.type = MESSAGE
        declared.type_name = wire.message(self.fields)

    def read(self, raw: pa.Array) -> Read:
        arrays, odd = self.read_fields(self._insides(raw))
        array = pa.Array.from_buffers(self.type, len(raw), [raw.buffers()[0]], children=arrays)
        return Read(array, odd)

    def read_fields(self, raws: Sequence[pa.Array]) -> tuple[list[pa.Array], np.ndarray | None]:
        """The columns, and messages that are odd."""
        arrays = list(raws)
        odd: list[np.ndarray | None] = [self._have_two(places, raws) for places in self.oneofs]
        for place, one in self._not_as_read:
            read = one.read(raws[place])
            arrays[place] = read.array
            odd.append(read.odd)
        return arrays, odd_slots(*odd)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return delimited(self.sizes_of_fields(self._insides(raw), len(raw)))

    def sizes_of_fields(self, raws: Sequence[pa.Array], count: int) -> np.ndarray:
        """The bytes that each message takes."""
        return self._measure.sizes(raws, count)

    def value(self, value: Any) -> dict[str, Any]:
        # Not value.ListFields(): a field may have that name.
        present = {field.number: one for field, one in type(value).ListFields(value)}
        return {one.column: one.value(present.get(one.number)) for one in self.fields}

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)

    @cached_property
    def _measure(self) -> Measure:
        return Measure.of(self.fields)

    @cached_property
    def _not_as_read(self) -> tuple[tuple[int, Field], ...]:
        """Places and fields of the columns that are not just what ptars gives."""
        return tuple(
            (place, one)
            for place, one in enumerate(self.fields)
            if not (
                isinstance(one, One)
                and isinstance(one.shape, Scalar)
                and one.shape.is_stored_as_read
            )
        )

    def _insides(self, raw: pa.Array) -> list[pa.Array]:
        return [raw.field(place) for place in range(len(self.fields))]

    def _have_two(self, places: tuple[int, ...], raws: Sequence[pa.Array]) -> np.ndarray:
        """ptars keeps all that came; of a oneof, the last one counts."""
        branches = np.zeros(len(raws[places[0]]), np.int32)
        for place in places:
            branches += self.fields[place].present(raws[place])
        return np.flatnonzero(branches > 1)


@dataclass(frozen=True)
class Empty:
    """A message without fields: it says only whether it is there."""

    type = pa.bool_()
    width = 1
    zero = None
    absent = False

    def declare(self, declared: Any, wire: Wire) -> None:
        declared.type = MESSAGE
        declared.type_name = wire.message([])

    def read(self, raw: pa.Array) -> Read:
        return Read(raw.is_valid())

    def value(self, value: Any) -> bool:
        return True

    def sizes(self, raw: pa.Array) -> np.ndarray:
        return np.ones(len(raw), np.int32)

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)
