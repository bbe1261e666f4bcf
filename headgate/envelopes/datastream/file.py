"""A change file, opened by what is in it: no name of a file says what its bytes are."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator

import pyarrow as pa

from headgate.envelopes.datastream.avro import avro_records_alone, open_avro
from headgate.envelopes.datastream.container import AVRO_MAGIC, GZIP_MAGIC, gunzip
from headgate.envelopes.datastream.json_file import json_records_alone, open_json
from headgate.envelopes.datastream.opened import (
    LARGEST_FILE,
    OpenedFile,
    UnfinishedFile,
    UnreadableFile,
)
from headgate.formats.avro.read_bytes import WrongBytes

_MAGICS = (AVRO_MAGIC, GZIP_MAGIC, codecs.BOM_UTF8)


def open_file(content: bytes | pa.Buffer) -> OpenedFile:
    """The changes of one file, whatever its bytes are: Avro, JSON, or either of them in gzip."""
    try:
        plain = _plain(content)
        return open_avro(plain) if plain.startswith(AVRO_MAGIC) else open_json(plain)
    except UnreadableFile as error:
        return OpenedFile(unreadable=str(error))
    except UnfinishedFile:
        return OpenedFile(unfinished=True)


def records_alone(
    content: bytes | pa.Buffer, positions: Collection[int]
) -> Iterator[tuple[int, bytes]]:
    """Some records, each as a file that has it alone and can be opened like any other."""
    try:
        plain = _plain(content)
        is_avro = plain.startswith(AVRO_MAGIC)
        yield from (avro_records_alone if is_avro else json_records_alone)(plain, positions)
    except (UnreadableFile, UnfinishedFile, WrongBytes):
        return


def one_record(content: bytes | pa.Buffer, position: int) -> bytes | None:
    """The file that has that record alone; None without one."""
    return dict(records_alone(content, [position])).get(position)


def _plain(content: bytes | pa.Buffer) -> bytes:
    plain = content if isinstance(content, bytes) else content.to_pybytes()
    if plain and any(magic != plain and magic.startswith(plain) for magic in _MAGICS):
        raise UnfinishedFile
    if plain.startswith(GZIP_MAGIC):
        return gunzip(plain)
    if len(plain) > LARGEST_FILE:
        raise UnreadableFile(f"it has more than {LARGEST_FILE >> 20} MB")
    return plain
