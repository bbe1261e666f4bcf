"""A map field as a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.schema.protobuf.field import REPEATED, Field, One, declare, lists_of, sums
from headgate.schema.protobuf.wire import (
    MESSAGE,
    Read,
    Unstorable,
    Wire,
    delimited,
    lengths_of,
    odd_slots,
    tag_size,
)

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
