"""How much room payloads take as columns.

Two bytes are enough for an element of a list, and an element has a slot in each of its columns,
whether it is set or not: a small payload of a wide schema could fill the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.formats.protobuf.field import Many, Map, One, Shape
from headgate.formats.protobuf.message import Message

_MOST_SLOTS = 1 << 26
_SHORTEST_ELEMENT = 2


class _TooLarge(Exception):
    pass


@dataclass(frozen=True)
class Room:
    """The bound for payloads of one message."""

    message: Message

    def refusals(self, payloads: pa.BinaryArray, lengths: np.ndarray) -> dict[int, str]:
        """Those that would take too much; only what could is looked at."""
        refused: dict[int, str] = {}
        if lengths.max(initial=0) <= self._always_fits:
            return refused
        from google.protobuf.message import DecodeError

        for row in np.flatnonzero(lengths > self._always_fits).tolist():
            try:
                _count(self.message, payloads[row].as_py(), _MOST_SLOTS)
            except _TooLarge:
                refused[row] = f"its lists need more than {_MOST_SLOTS} values as columns"
            except DecodeError as error:
                refused[row] = str(error)[:500]
        return refused

    @cached_property
    def _always_fits(self) -> int:
        return _MOST_SLOTS * _SHORTEST_ELEMENT // max(1, _widest(self.message))


def _inside(field: Any) -> tuple[Shape | None, bool]:
    """What a field holds, and whether it may hold many."""
    if isinstance(field, One | Many):
        return field.shape, isinstance(field, Many)
    item = field.item if isinstance(field, Map) else None
    return (item.shape if isinstance(item, One) else None), True


def _widest(message: Message) -> int:
    """The columns of that element of a list that has most of them."""
    most = 0
    for field in message.fields:
        shape, is_list = _inside(field)
        if isinstance(shape, Message):
            most = max(most, shape.width if is_list else 0, _widest(shape))
    return most


def _count(message: Message, payload: Any, left: int) -> int:
    """How many slots are left after the lists in a message."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    # To an empty message every field is an unknown one, and takes no room.
    is_group = isinstance(payload, UnknownFieldSet)
    fields: Any = payload if is_group else UnknownFieldSet(Empty.FromString(payload))
    for found in fields:
        field = message.by_number.get(found.field_number)
        shape, is_list = _inside(field) if field is not None else (None, False)
        if not isinstance(shape, Message) or found.wire_type not in (2, 3):
            continue
        if is_list:
            left -= shape.width
            if left < 0:
                raise _TooLarge
        inside = Message((field.item,)) if isinstance(field, Map) else shape
        left = _count(inside, found.data, left)
    return left
