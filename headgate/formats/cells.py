"""Cells: the values that records take in columns, set or not. They bound the memory of decoding.

An element of a list takes a byte or two in a payload, and a cell in each of its columns: a few
megabytes of payloads can become gigabytes. So records are decoded in parts
with a limited number of cells.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headgate.formats.decoder import Decoder

MAX_CELLS = 1 << 25
"""Cells of records whose columns are in memory together, unless a single record has more."""


def parts_of(decoder: Decoder, payloads: pa.BinaryArray) -> list[slice]:
    """Split payloads into parts of at most `MAX_CELLS`; usually they are one."""
    most = decoder.most_cells(payloads, MAX_CELLS)
    if most is None:
        return [slice(0, len(payloads))]
    ends = np.cumsum(most)
    parts: list[slice] = []
    start, before = 0, 0
    while start < len(payloads):
        stop = int(np.searchsorted(ends, before + MAX_CELLS, side="right"))
        stop = max(stop, start + 1)
        parts.append(slice(start, stop))
        start, before = stop, int(ends[stop - 1])
    return parts


def cells_of(columns: Iterable[pa.Array]) -> int:
    """Return how many cells columns have, those of lists included."""
    return sum(map(_cells, columns))


def _cells(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_struct(kind):
        return len(array) + sum(_cells(array.field(place)) for place in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return len(array) + _cells(array.values)
    return len(array)
