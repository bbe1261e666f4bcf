"""Confluent's list of message indexes before a protobuf payload.

Zigzag varints, the count first; the single byte 0 stands for [0]. The list comes from outside:
count and size are bounded before anything is read.
"""

from __future__ import annotations

MOST_INDEXES = 16
_LONGEST_VARINT = 5


class BadIndex(Exception):
    """The bytes are no list of message indexes."""


def read_message_index(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The indexes at `start`, and where the payload begins."""
    count, position = _read_zigzag(data, start)
    if count == 0:
        return (0,), position
    if not 0 < count <= MOST_INDEXES:
        raise BadIndex(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(data, position)
        if index < 0:
            raise BadIndex(f"message index {index}")
        indexes.append(index)
    return tuple(indexes), position


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if position >= len(data):
            raise BadIndex("the record ends inside its message indexes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise BadIndex("a message index takes more than five bytes")
