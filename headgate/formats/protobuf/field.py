"""Fields of a message as columns: singular, repeated and map fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.protobuf.wire import (
    MESSAGE,
    PtarsSchema,
    Read,
    Unstorable,
    declare_presence,
    delimited,
    lengths_of,
    merge_mismatched,
    offsets_of,
    present_in,
    tag_size,
)

OPTIONAL, REPEATED = 1, 3


class ValueType(Protocol):
    """How values of a protobuf type are converted to a column."""

    @property
    def type(self) -> pa.DataType: ...

    @property
    def width(self) -> int:
        """The number of columns, nested ones included."""
        ...

    @property
    def zero(self) -> Any:
        """The value of a field without presence that is not in the payload; None for messages."""
        ...

    @property
    def absent(self) -> Any:
        """The value of a field with presence that is not in the payload."""
        ...

    def declare(self, declared: Any, schema: PtarsSchema) -> None:
        """Set the type by which ptars reads the declared field."""
        ...

    def read(self, raw: pa.Array) -> Read:
        """Convert the values that ptars read."""
        ...

    def value(self, value: Any) -> Any:
        """Convert a value that python-protobuf read, to the same result; raises Unstorable."""
        ...

    def sizes(self, raw: pa.Array) -> np.ndarray:
        """Return the bytes that each value takes after its tag, in a new array."""
        ...

    def is_written(self, raw: pa.Array) -> np.ndarray | bool:
        """Return which values a writer writes for a field without presence."""
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

    def declare(self, message: Any, schema: PtarsSchema) -> None: ...

    def read(self, raw: pa.Array) -> Read: ...

    def value(self, value: Any) -> Any:
        """Convert what python-protobuf has for the field, None if it is not in the payload."""
        ...

    def sizes(self, raw: pa.Array) -> np.ndarray:
        """Return the bytes that the field takes in each message, tags included."""
        ...

    def present(self, raw: pa.Array) -> np.ndarray | bool:
        """Return which messages have the field."""
        ...


@dataclass(frozen=True, slots=True)
class Singular:
    """A field that occurs once; absent is null if the field has presence."""

    number: int
    column: str
    value_type: ValueType
    has_presence: bool

    @property
    def type(self) -> pa.DataType:
        return self.value_type.type

    @property
    def width(self) -> int:
        return self.value_type.width

    def declare(self, message: Any, schema: PtarsSchema) -> None:
        declared = declare(message, self.number, OPTIONAL)
        self.value_type.declare(declared, schema)
        if self.has_presence:
            declare_presence(message, declared)

    def read(self, raw: pa.Array) -> Read:
        return self.value_type.read(raw)

    def value(self, value: Any) -> Any:
        if value is None:
            return self.value_type.absent if self.has_presence else self.value_type.zero
        return value_within(self.column, self.value_type, value)

    def sizes(self, raw: pa.Array) -> np.ndarray:
        written = present_in(raw) if self.has_presence else self.value_type.is_written(raw)
        sizes = self.value_type.sizes(raw)
        sizes += tag_size(self.number)
        if written is not True:
            sizes *= written
        return sizes

    def present(self, raw: pa.Array) -> np.ndarray | bool:
        return present_in(raw)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field; never null."""

    number: int
    column: str
    value_type: ValueType
    is_packed: bool

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.value_type.type)

    @property
    def width(self) -> int:
        return 1

    def declare(self, message: Any, schema: PtarsSchema) -> None:
        self.value_type.declare(declare(message, self.number, REPEATED), schema)

    def read(self, raw: pa.Array) -> Read:
        read = self.value_type.read(raw.values)
        array = pa.Array.from_buffers(
            self.type, len(raw), [None, raw.buffers()[1]], children=[read.array]
        )
        return Read(array, lists_of(raw, read.mismatched))

    def value(self, value: Any) -> Any:
        return [value_within(self.column, self.value_type, one) for one in value or ()]

    def sizes(self, raw: pa.Array) -> np.ndarray:
        sizes, tag = self.value_type.sizes(raw.values), tag_size(self.number)
        if not self.is_packed:
            return sums(raw, sizes + tag)
        return np.asarray((delimited(sums(raw, sizes)) + tag) * self.present(raw))

    def present(self, raw: pa.Array) -> np.ndarray:
        return lengths_of(raw) > 0


def declare(message: Any, number: int, label: int) -> Any:
    """Add a field with a unique name to a generated message."""
    return message.field.add(name=f"f{number}", number=number, label=label)


def value_within(column: str, value_type: ValueType, value: Any) -> Any:
    """Convert a value; an error names the column."""
    try:
        return value_type.value(value)
    except Unstorable as error:
        raise Unstorable(f"{column}: {error}") from None


def sums(lists: pa.Array, of: np.ndarray) -> np.ndarray:
    """Sum the numbers of the elements of each list."""
    running = np.zeros(len(of) + 1, np.int64)
    np.cumsum(of, out=running[1:])
    totals = running[offsets_of(lists)]
    sums: np.ndarray = totals[1:] - totals[:-1]
    return sums


def lists_of(lists: pa.Array, elements: np.ndarray | None) -> np.ndarray | None:
    """Return the positions of the lists that contain these elements."""
    if elements is None:
        return None
    return np.searchsorted(offsets_of(lists), elements, side="right") - 1


_SORT_ABOVE = 20
"""Entries of one map above which sorting all is faster than comparing each pair."""


def is_map(field: Any) -> bool:
    """Return whether a field of a descriptor is a map, which is repeated entries on the wire."""
    entry = field.message_type
    return entry is not None and entry.has_options and bool(entry.GetOptions().map_entry)


@dataclass(frozen=True)
class MapField:
    """A map field; the last entry of several with one key counts. Never null."""

    number: int
    column: str
    key: Singular
    item: Field
    zero_item: Any
    """The value of an entry without one; None for messages, which have no constant default."""

    @property
    def type(self) -> pa.DataType:
        return pa.map_(self.key.type, self.item.type)

    @property
    def width(self) -> int:
        return 1

    def declare(self, message: Any, schema: PtarsSchema) -> None:
        declared = declare(message, self.number, REPEATED)
        declared.type = MESSAGE
        declared.type_name = schema.message([self.key, self.item])

    def read(self, raw: pa.Array) -> Read:
        raw_keys, raw_items = raw.values.field(0), raw.values.field(1)
        keys, items = self.key.read(raw_keys), self.item.read(raw_items)
        array = pa.MapArray.from_arrays(
            raw.offsets,
            _filled(keys.array, self.key.value_type.zero),
            _filled(items.array, self.zero_item),
        )
        mismatched = [
            keys.mismatched,
            items.mismatched,
            _duplicate_keys(lengths_of(raw), array.keys),
        ]
        if self.zero_item is None:
            mismatched.append(np.flatnonzero(np.logical_not(self.item.present(raw_items))))
        return Read(array, lists_of(raw, merge_mismatched(*mismatched)))

    def value(self, value: Any) -> Any:
        """Sort entries by key: python-protobuf's own order changes from run to run."""
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


def _duplicate_keys(lengths: np.ndarray, keys: pa.Array) -> np.ndarray | None:
    """Return the positions of entries whose key occurs again in the same map."""
    most = lengths.max(initial=0)
    if most < 2:
        return None
    codes = keys.dictionary_encode()
    maps = np.repeat(np.arange(len(lengths)), lengths)
    both = maps * len(codes.dictionary) + codes.indices.to_numpy()
    if most > _SORT_ABOVE:
        _, first, times = np.unique(both, return_index=True, return_counts=True)
        return np.asarray(first[times > 1])
    return merge_mismatched(*(np.flatnonzero(both[by:] == both[:-by]) for by in range(1, most)))
