"""Opening a change file by its content: Avro or JSON, with or without gzip."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator

import pyarrow as pa

from headgate.envelopes.datastream.avro import extract_avro_records, open_avro
from headgate.envelopes.datastream.changes import (
    MAX_FILE_SIZE,
    OpenedFile,
    UnfinishedFile,
    UnreadableFile,
)
from headgate.envelopes.datastream.container import GZIP_MAGIC, gunzip
from headgate.envelopes.datastream.json_file import extract_json_records, open_json
from headgate.formats.avro.encoding import MAGIC as AVRO_MAGIC
from headgate.formats.avro.encoding import MalformedAvro

_MAGICS = (AVRO_MAGIC, GZIP_MAGIC, codecs.BOM_UTF8)


def open_file(content: bytes | pa.Buffer) -> OpenedFile:
    """Return the changes of a file; a file that cannot be read is reported, not raised."""
    try:
        data = _decompressed(content)
        return open_avro(data) if data.startswith(AVRO_MAGIC) else open_json(data)
    except UnreadableFile as error:
        return OpenedFile(unreadable=str(error))
    except UnfinishedFile:
        return OpenedFile(unfinished=True)


def extract_records(
    content: bytes | pa.Buffer, positions: Collection[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the records at some positions, each as a file with only that record."""
    try:
        data = _decompressed(content)
        is_avro = data.startswith(AVRO_MAGIC)
        yield from (extract_avro_records if is_avro else extract_json_records)(data, positions)
    except (UnreadableFile, UnfinishedFile, MalformedAvro):
        return


def _decompressed(content: bytes | pa.Buffer) -> bytes:
    data = content if isinstance(content, bytes) else content.to_pybytes()
    if data and any(magic != data and magic.startswith(data) for magic in _MAGICS):
        raise UnfinishedFile
    if data.startswith(GZIP_MAGIC):
        return gunzip(data)
    if len(data) > MAX_FILE_SIZE:
        raise UnreadableFile(f"more than {MAX_FILE_SIZE >> 20} MB")
    return data
