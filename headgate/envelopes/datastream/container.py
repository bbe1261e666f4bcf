"""The container of an Avro file: its header, its blocks, and their compression."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.envelopes.datastream.changes import MAX_FILE_SIZE, UnfinishedFile, UnreadableFile
from headgate.formats.avro.encoding import (
    MAGIC,
    SCHEMA_KEY,
    SYNC_MARKER_SIZE,
    Cursor,
    MalformedAvro,
    encode_bytes,
    encode_header,
    encode_long,
    read_long,
    read_varint,
)
from headgate.registry.registry import MAX_SCHEMA_SIZE

GZIP_MAGIC = b"\x1f\x8b"
_CODEC_KEY = b"avro.codec"
_MAX_HEADER_ENTRIES = 1_000
_MAX_BLOCKS = 1 << 20


@dataclass(frozen=True)
class Block:
    """The extent of a compressed block of records."""

    count: int
    start: int
    size: int


@dataclass(frozen=True)
class Container:
    """An Avro file whose header and block boundaries were read, but no records."""

    content: bytes
    schema: bytes
    codec: str
    sync_marker: bytes
    blocks: tuple[Block, ...]

    def decompress(self, block: Block, max_size: int = MAX_FILE_SIZE) -> bytes:
        """Return the encoded records of a block."""
        data = self.content[block.start : block.start + block.size]
        return _decompress(self.codec, data, max_size)

    def single_record_file(self, record: bytes) -> bytes:
        """Return a file with the same schema and only this record."""
        block = encode_long(1) + encode_bytes(record)
        return encode_header(self.schema, self.sync_marker) + block + self.sync_marker


def read_container(content: bytes) -> Container:
    """Read the container; raise UnfinishedFile if it ends early, UnreadableFile if it is broken."""
    cursor = Cursor(content)
    cursor.position = len(MAGIC)
    header = _read_header(cursor)
    schema = header.get(SCHEMA_KEY)
    if schema is None:
        raise UnreadableFile("the header has no schema")
    sync_marker = _take(cursor, SYNC_MARKER_SIZE)
    blocks = []
    while cursor.position < len(content):
        blocks.append(_read_block(cursor))
        marker = content[cursor.position : cursor.position + SYNC_MARKER_SIZE]
        if marker != sync_marker[: len(marker)]:
            raise UnreadableFile(f"a block has no sync marker at its end, byte {cursor.position}")
        _take(cursor, SYNC_MARKER_SIZE)
        if len(blocks) > _MAX_BLOCKS:
            raise UnreadableFile(f"more than {_MAX_BLOCKS} blocks")
    codec = header.get(_CODEC_KEY, b"null").decode(errors="replace")
    return Container(content, schema, codec, sync_marker, tuple(blocks))


def _read_header(cursor: Cursor) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    total = 0
    while count := _long(cursor):
        if count < 0:
            count = -count
            _long(cursor)  # The size in bytes, for readers that skip it.
        total += count
        if total > _MAX_HEADER_ENTRIES:
            raise UnreadableFile(f"more than {_MAX_HEADER_ENTRIES} entries in the header")
        for _ in range(count):
            key = _take(cursor, _length(cursor, MAX_SCHEMA_SIZE))
            entries[key] = _take(cursor, _length(cursor, MAX_SCHEMA_SIZE))
    return entries


def _read_block(cursor: Cursor) -> Block:
    count = _length(cursor, MAX_FILE_SIZE)
    size = _length(cursor, MAX_FILE_SIZE)
    start = cursor.position
    if start + size > len(cursor.data):
        raise UnfinishedFile
    cursor.position = start + size
    return Block(count, start, size)


def _long(cursor: Cursor) -> int:
    try:
        return read_long(cursor)
    except IndexError:
        raise UnfinishedFile from None
    except MalformedAvro as error:
        raise UnreadableFile(str(error)) from None


def _length(cursor: Cursor, limit: int) -> int:
    length = _long(cursor)
    if not 0 <= length <= limit:
        raise UnreadableFile(f"declares {length} bytes or records; the limit is {limit}")
    return length


def _take(cursor: Cursor, size: int) -> bytes:
    start = cursor.position
    if start + size > len(cursor.data):
        raise UnfinishedFile
    cursor.position = start + size
    return cursor.data[start : cursor.position]


_MAX_XZ_MEMORY = 256 << 20
_CHECKSUM_SIZE = 4
_FIRST_PORTION = 1 << 10
_MAX_PORTION = 1 << 20
"""Sizes of the input per call: after each member, zlib copies the input that it has not used."""
_CODEC_ERRORS = (
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
    IndexError,
    pa.ArrowException,
)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _decompress(codec: str, data: bytes, max_size: int) -> bytes:
    if codec not in _CODECS:
        raise UnreadableFile(f"unknown codec {codec[:50]!r}")
    try:
        decompressed = _CODECS[codec](data, max_size)
    except _CODEC_ERRORS as error:
        raise UnreadableFile(f"cannot decompress a block: {error}"[:300]) from None
    if len(decompressed) > max_size:
        raise _too_large()
    return decompressed


def gunzip(data: bytes) -> bytes:
    """Decompress a gzip file, which may have several members."""
    parts, size, position = [], 0, 0
    while position < len(data):
        member = zlib.decompressobj(wbits=31)
        portion = _FIRST_PORTION
        while not member.eof:
            given = data[position : position + portion]
            if not given:
                raise UnfinishedFile
            try:
                parts.append(member.decompress(given, MAX_FILE_SIZE - size + 1))
            except zlib.error as error:
                raise UnreadableFile(f"cannot decompress the file: {error}") from None
            size += len(parts[-1])
            if size > MAX_FILE_SIZE:
                raise _too_large()
            position += len(given) - len(member.unused_data)
            portion = min(2 * portion, _MAX_PORTION)
    return b"".join(parts)


def _too_large() -> UnreadableFile:
    return UnreadableFile(f"more than {MAX_FILE_SIZE >> 20} MB after decompression")


def _streaming(new_decompressor: Callable[[], _Decompressor]) -> Callable[[bytes, int], bytes]:
    def decompress(data: bytes, max_size: int) -> bytes:
        decompressor = new_decompressor()
        decompressed = decompressor.decompress(data, max_size + 1)
        # Bytes after the end are ignored: some writers leave half a checksum there.
        if len(decompressed) <= max_size and not decompressor.eof:
            raise ValueError("it ends too early")
        return decompressed

    return decompress


def _snappy(data: bytes, max_size: int) -> bytes:
    compressed, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    size = read_varint(Cursor(compressed))
    if size > max_size:
        raise _too_large()
    decompressed: bytes = pa.Codec("snappy").decompress(compressed, size, asbytes=True)
    if zlib.crc32(decompressed).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
        raise MalformedAvro("the checksum does not match")
    return decompressed


def _zstandard(data: bytes, max_size: int) -> bytes:
    # A stream, because a frame need not declare its decompressed size.
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        decompressed: bytes = stream.read(max_size + 1)
    return decompressed


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _: data,
    "deflate": _streaming(lambda: zlib.decompressobj(wbits=-15)),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _streaming(bz2.BZ2Decompressor),
    "xz": _streaming(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_MEMORY)),
}
