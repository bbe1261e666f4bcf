"""A field of a message as a column: one value, or many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.protobuf.wire import (
    MESSAGE,
    Read,
    Unstorable,
    Wire,
    declare_presence,
    delimited,
    lengths_of,
    odd_slots,
    offsets_of,
    present_in,
    tag_size,
)

OPTIONAL, REPEATED = 1, 3


class Shape(Protocol):
    """What a value of some type becomes, wherever it stands."""

    @property
    def type(self) -> pa.DataType: ...

    @property
    def width(self) -> int:
        """How many columns it takes, with those inside."""
        ...

    @property
    def zero(self) -> Any:
        """The value of a field without presence that is not in the payload; None for messages."""
        ...

    @property
    def absent(self) -> Any:
        """The value of a field with presence that is not in the payload."""
        ...

    def declare(self, declared: Any, wire: Wire) -> None:
        """Give the declared field the type that ptars shall read."""
        ...

    def read(self, raw: pa.Array) -> Read:
        """The values from what ptars read."""
        ...

    def value(self, value: Any) -> Any:
        """The same value from what python-protobuf read; raises Unstorable."""
        ...

    def sizes(self, raw: pa.Array) -> np.ndarray:
        """The bytes that each value takes behind its tag, in an array that may be changed."""
        ...

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        """Which slots of a field without presence a writer writes."""
        ...


class Field(Protocol):
    """A field of a message and its column."""

    @property
    def number(self) -> int: ...

    @property
    def column(self) -> str: ...

    @property
    def type(self) -> pa.DataType: ...

    @property
    def width(self) -> int: ...

    def declare(self, message: Any, wire: Wire) -> None: ...

    def read(self, raw: pa.Array) -> Read: ...

    def value(self, value: Any) -> Any:
        """From what python-protobuf has for the field; None where it is not in the payload."""
        ...

    def sizes(self, raw: pa.Array) -> np.ndarray:
        """The bytes that the field takes in each message, tags and all."""
        ...

    def present(self, raw: pa.Array) -> np.ndarray | bool:
        """Which messages have it."""
        ...


@dataclass(frozen=True, slots=True)
class One:
    """A field that occurs once; null is absent, where protobuf can tell."""

    number: int
    column: str
    shape: Shape
    has_presence: bool

    @property
    def type(self) -> pa.DataType:
        return self.shape.type

    @property
    def width(self) -> int:
        return self.shape.width

    def declare(self, message: Any, wire: Wire) -> None:
        declared = declare(message, self.number, OPTIONAL)
        self.shape.declare(declared, wire)
        if self.has_presence:
            declare_presence(message, declared)

    def read(self, raw: pa.Array) -> Read:
        return self.shape.read(raw)

    def value(self, value: Any) -> Any:
        if value is None:
            return self.shape.absent if self.has_presence else self.shape.zero
        return value_within(self.column, self.shape, value)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        written = present_in(raw) if self.has_presence else self.shape.is_written(raw)
        sizes = self.shape.sizes(raw)
        sizes += tag_size(self.number)
        if written is not True:
            sizes *= written
        return sizes

    def present(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)


@dataclass(frozen=True, slots=True)
class Many:
    """A repeated field; never null."""

    number: int
    column: str
    shape: Shape
    is_packed: bool

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.shape.type)

    @property
    def width(self) -> int:
        return 1

    def declare(self, message: Any, wire: Wire) -> None:
        self.shape.declare(declare(message, self.number, REPEATED), wire)

    def read(self, raw: pa.Array) -> Read:
        read = self.shape.read(raw.values)
        array = pa.Array.from_buffers(
            self.type, len(raw), [None, raw.buffers()[1]], children=[read.array]
        )
        return Read(array, lists_of(raw, read.odd))

    def value(self, value: Any) -> Any:
        return [value_within(self.column, self.shape, one) for one in value or ()]

    def sizes(self, raw: pa.Array) -> np.ndarray:
        sizes, tag = self.shape.sizes(raw.values), tag_size(self.number)
        if not self.is_packed:
            return sums(raw, sizes + tag)
        return np.asarray((delimited(sums(raw, sizes)) + tag) * self.present(raw))

    def present(self, raw: pa.Array) -> np.ndarray:
        return lengths_of(raw) > 0


def declare(message: Any, number: int, label: int) -> Any:
    """A new field whose name no other one can have."""
    return message.field.add(name=f"f{number}", number=number, label=label)


def value_within(column: str, shape: Shape, value: Any) -> Any:
    """The value; what cannot be stored is told with where it stands."""
    try:
        return shape.value(value)
    except Unstorable as error:
        raise Unstorable(f"{column}: {error}") from None


def sums(lists: pa.Array, of: np.ndarray) -> np.ndarray:
    """For each list the sum over its elements."""
    running = np.zeros(len(of) + 1, np.int64)
    np.cumsum(of, out=running[1:])
    totals = running[offsets_of(lists)]
    sums: np.ndarray = totals[1:] - totals[:-1]
    return sums


def lists_of(lists: pa.Array, elements: np.ndarray | None) -> np.ndarray | None:
    """The lists that these elements are in."""
    if elements is None:
        return None
    return np.searchsorted(offsets_of(lists), elements, side="right") - 1


_MANY = 20
"""From so many entries in one map on, sorting them all is faster than comparing each to each."""


def is_map(field: Any) -> bool:
    """Whether a field of a descriptor is one: on the wire it is repeated entries."""
    entry = field.message_type
    return entry is not None and entry.has_options and bool(entry.GetOptions().map_entry)


@dataclass(frozen=True)
class Map:
    """Entries by key; the last of those with one key counts. Never null."""

    number: int
    column: str
    key: One
    item: Field
    zero_item: Any
    """What an entry without a value has; None for messages, whose zero is no constant."""

    @property
    def type(self) -> pa.DataType:
        return pa.map_(self.key.type, self.item.type)

    @property
    def width(self) -> int:
        return 1

    def declare(self, message: Any, wire: Wire) -> None:
        declared = declare(message, self.number, REPEATED)
        declared.type = MESSAGE
        declared.type_name = wire.message([self.key, self.item])

    def read(self, raw: pa.Array) -> Read:
        raw_keys, raw_items = raw.values.field(0), raw.values.field(1)
        keys, items = self.key.read(raw_keys), self.item.read(raw_items)
        array = pa.MapArray.from_arrays(
            raw.offsets,
            _filled(keys.array, self.key.shape.zero),
            _filled(items.array, self.zero_item),
        )
        odd = [keys.odd, items.odd, _doubles(lengths_of(raw), array.keys)]
        if self.zero_item is None:
            odd.append(np.flatnonzero(np.logical_not(self.item.present(raw_items))))
        return Read(array, lists_of(raw, odd_slots(*odd)))

    def value(self, value: Any) -> Any:
        """In the order of the keys: python-protobuf's own order changes from run to run."""
        try:
            entries = sorted((value or {}).items(), key=lambda entry: entry[0])
        except UnicodeDecodeError:
            raise Unstorable(f"{self.column}: a key that is not UTF-8") from None
        return [(self.key.value(key), self.item.value(item)) for key, item in entries]

    def sizes(self, raw: pa.Array) -> np.ndarray:
        entries = self.key.sizes(raw.values.field(0)) + self.item.sizes(raw.values.field(1))
        return sums(raw, delimited(entries) + tag_size(self.number))

    def present(self, raw: pa.Array) -> np.ndarray:
        return lengths_of(raw) > 0


def _filled(array: pa.Array, zero: Any) -> pa.Array:
    if zero is None or not array.null_count:
        return array
    return pc.fill_null(array, pa.scalar(zero, array.type))


def _doubles(lengths: np.ndarray, keys: pa.Array) -> np.ndarray | None:
    """Entries of maps that have a key twice."""
    most = lengths.max(initial=0)
    if most < 2:
        return None
    codes = keys.dictionary_encode()
    maps = np.repeat(np.arange(len(lengths)), lengths)
    both = maps * len(codes.dictionary) + codes.indices.to_numpy()
    if most > _MANY:
        _, first, times = np.unique(both, return_index=True, return_counts=True)
        return np.asarray(first[times > 1])
    return odd_slots(*(np.flatnonzero(both[by:] == both[:-by]) for by in range(1, most)))
