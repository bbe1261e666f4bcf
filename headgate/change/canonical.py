"""Values as texts that are equal where the values are: also for lists, maps and structs.

Each text has its length in front, so that no two values inside of one can be taken for another
two. All NaN are the same here, and so are 0 and -0, as they are to Spark; nulls are equal.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXT = pa.large_binary()
_NULL = pa.scalar(b"~", _TEXT)
_NOTHING = pa.scalar(b"", _TEXT)
_END_OF_LENGTH = pa.scalar(b":", _TEXT)


def canonical(values: pa.Array) -> pa.Array:
    """A text for each value, never null."""
    texts = _texts(values)
    lengths = pc.binary_length(texts).cast(pa.string()).cast(_TEXT)
    whole = pc.binary_join_element_wise(lengths, texts, _END_OF_LENGTH)
    return pc.if_else(values.is_valid(), whole, _NULL)


def _texts(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        return _texts(values.cast(pa.list_(entry)))
    if pa.types.is_struct(kind):
        fields = [canonical(field) for field in values.flatten()]
        joined = pc.binary_join_element_wise(*fields, _NOTHING) if fields else None
        return pa.repeat(_NOTHING, len(values)) if joined is None else joined
    if pa.types.is_nested(kind):
        return _texts_of_lists(values)
    if pa.types.is_floating(kind):
        values = pc.add(values, pa.scalar(0.0, kind))
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        values = values.cast(pa.string())
    return values.cast(_TEXT)


def _texts_of_lists(values: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    elements = canonical(values.flatten())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), elements)
    return pc.binary_join(lists, _NOTHING)
