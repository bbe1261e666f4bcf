"""The frame of an Avro file: what its header says, and where its blocks are."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.envelope.datastream.decompress import decompress
from headgate.envelope.datastream.opened_file import (
    LARGEST_FILE,
    UnfinishedFile,
    UnreadableFile,
)
from headgate.schema.avro.container import avro_bytes, avro_long
from headgate.schema.avro.read_bytes import Cursor, WrongBytes, read_long
from headgate.schema.registry import LARGEST_SCHEMA

AVRO_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_SCHEMA = b"avro.schema"
_CODEC = b"avro.codec"
_MOST_ENTRIES = 1_000
_MOST_BLOCKS = 1 << 20


@dataclass(frozen=True)
class Block:
    """Some records, still compressed."""

    count: int
    start: int
    size: int


@dataclass(frozen=True)
class Container:
    """An Avro file of which only the frame was read."""

    content: bytes
    schema: bytes
    codec: str
    sync: bytes
    blocks: tuple[Block, ...]

    def records(self, block: Block, most: int = LARGEST_FILE) -> bytes:
        """The records of a block one after the other, in no more bytes than `most`."""
        return decompress(self.codec, self.content[block.start : block.start + block.size], most)

    def file_of(self, record: bytes) -> bytes:
        """A file of the same schema that has this record alone."""
        header = AVRO_MAGIC + avro_long(1) + avro_bytes(_SCHEMA) + avro_bytes(self.schema)
        block = avro_long(1) + avro_bytes(record)
        return header + avro_long(0) + self.sync + block + self.sync


def read_container(content: bytes) -> Container:
    """The frame; UnfinishedFile where it ends in the middle, UnreadableFile where it is broken."""
    cursor = Cursor(content)
    cursor.at = len(AVRO_MAGIC)
    entries = _header(cursor)
    schema = entries.get(_SCHEMA)
    if schema is None:
        raise UnreadableFile("its header has no schema")
    sync = _take(cursor, _SYNC_SIZE)
    blocks = []
    while cursor.at < len(content):
        blocks.append(_block(cursor))
        found = content[cursor.at : cursor.at + _SYNC_SIZE]
        if found != sync[: len(found)]:
            raise UnreadableFile(f"a block does not end where it should, at byte {cursor.at}")
        _take(cursor, _SYNC_SIZE)
        if len(blocks) > _MOST_BLOCKS:
            raise UnreadableFile(f"it has more than {_MOST_BLOCKS} blocks")
    codec = entries.get(_CODEC, b"null").decode(errors="replace")
    return Container(content, schema, codec, sync, tuple(blocks))


def _header(cursor: Cursor) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    left = _MOST_ENTRIES
    while count := _long(cursor):
        if count < 0:
            count = -count
            _long(cursor)  # The length, for those who skip it.
        left -= count
        if left < 0:
            raise UnreadableFile("its header has no end")
        for _ in range(count):
            key = _take(cursor, _size(cursor, LARGEST_SCHEMA))
            entries[key] = _take(cursor, _size(cursor, LARGEST_SCHEMA))
    return entries


def _block(cursor: Cursor) -> Block:
    count = _size(cursor, LARGEST_FILE)
    size = _size(cursor, LARGEST_FILE)
    start = cursor.at
    if start + size > len(cursor.data):
        raise UnfinishedFile
    cursor.at = start + size
    return Block(count, start, size)


def _long(cursor: Cursor) -> int:
    try:
        return read_long(cursor)
    except IndexError:
        raise UnfinishedFile from None
    except WrongBytes as error:
        raise UnreadableFile(str(error)) from None


def _size(cursor: Cursor, most: int) -> int:
    size = _long(cursor)
    if not 0 <= size <= most:
        raise UnreadableFile(f"it speaks of {size} bytes or records where {most} are the most")
    return size


def _take(cursor: Cursor, size: int) -> bytes:
    start = cursor.at
    if start + size > len(cursor.data):
        raise UnfinishedFile
    cursor.at = start + size
    return cursor.data[start : cursor.at]
