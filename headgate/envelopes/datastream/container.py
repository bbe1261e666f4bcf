"""The frame of an Avro file: what its header says, and where its blocks are."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.envelopes.datastream.opened import LARGEST_FILE, UnfinishedFile, UnreadableFile
from headgate.formats.avro.physical_schema import avro_bytes, avro_long
from headgate.formats.avro.read_bytes import Cursor, WrongBytes, read_long, read_varint
from headgate.registry.registry import LARGEST_SCHEMA

GZIP_MAGIC = b"\x1f\x8b"
_MOST_MEMORY = 256 << 20
_CHECKSUM_SIZE = 4
_BAD = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, IndexError, pa.ArrowException)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decompress(codec: str, data: bytes, most: int) -> bytes:
    """A block of an Avro file by the codec that the file names."""
    if codec not in _CODECS:
        raise UnreadableFile(f"its codec {codec[:50]!r} is unknown")
    try:
        found = _CODECS[codec](data, most)
    except _BAD as error:
        raise UnreadableFile(f"a block cannot be decompressed: {error}"[:300]) from None
    return _bounded(found, most)


def gunzip(data: bytes) -> bytes:
    """All of what a gzip file holds, which may be several files one after the other."""
    parts, left, size = [], data, 0
    while left:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(left, LARGEST_FILE - size + 1))
        except zlib.error as error:
            raise UnreadableFile(f"it cannot be decompressed: {error}") from None
        size += len(parts[-1])
        if size > LARGEST_FILE:
            raise _too_large()
        if not member.eof:
            raise UnfinishedFile
        left = member.unused_data
    return b"".join(parts)


def _bounded(found: bytes, most: int) -> bytes:
    if len(found) > most:
        raise _too_large()
    return found


def _too_large() -> UnreadableFile:
    return UnreadableFile(f"it has more than {LARGEST_FILE >> 20} MB once it is decompressed")


def _whole(make: Callable[[], _Decompressor]) -> Callable[[bytes, int], bytes]:
    def whole(data: bytes, most: int) -> bytes:
        made = make()
        found = made.decompress(data, most + 1)
        # What comes after the end is passed over: some writers leave half a checksum there.
        if len(found) <= most and not made.eof:
            raise ValueError("it ends early")
        return found

    return whole


def _snappy(data: bytes, most: int) -> bytes:
    compressed, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    size = read_varint(Cursor(compressed))
    if size > most:
        raise _too_large()
    found: bytes = pa.Codec("snappy").decompress(compressed, size, asbytes=True)
    if zlib.crc32(found).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
        raise WrongBytes("its checksum is another one")
    return found


def _zstandard(data: bytes, most: int) -> bytes:
    # A frame need not say how much is in it.
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        found: bytes = stream.read(most + 1)
    return found


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, most: data,
    "deflate": _whole(lambda: zlib.decompressobj(wbits=-15)),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _whole(bz2.BZ2Decompressor),
    "xz": _whole(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)),
}

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
        raise UnreadableFile(f"it declares {size} bytes or records; the limit is {most}")
    return size


def _take(cursor: Cursor, size: int) -> bytes:
    start = cursor.at
    if start + size > len(cursor.data):
        raise UnfinishedFile
    cursor.at = start + size
    return cursor.data[start : cursor.at]
