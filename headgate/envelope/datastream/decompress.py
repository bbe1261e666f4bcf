"""Bytes decompressed, and never more of them than are wanted."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from headgate.envelope.datastream.opened_file import (
    LARGEST_FILE,
    UnfinishedFile,
    UnreadableFile,
)
from headgate.schema.avro.read_bytes import Cursor, WrongBytes, read_varint

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
            raise ValueError("it ends too early")
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
