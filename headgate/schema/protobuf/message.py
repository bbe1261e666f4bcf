"""A message, or a group, inside another one: a struct of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.schema.field_facts import with_facts
from headgate.schema.protobuf.field import Field, One
from headgate.schema.protobuf.measure import Measure
from headgate.schema.protobuf.scalar import Scalar
from headgate.schema.protobuf.wire import MESSAGE, Read, Wire, delimited, odd_slots, present_in


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
            with_facts(pa.field(one.column, one.type), one.number, one.number in self.required)
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
