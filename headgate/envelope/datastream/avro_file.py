"""Changes from an Avro file.

What is one file is one whole: where a block is damaged, nobody knows what else is missing, and
nothing of the file is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelope.datastream.avro_container import Container, read_container
from headgate.envelope.datastream.avro_portion import Portion, ReadPortion, portions, records_of
from headgate.envelope.datastream.change_schema import ChangeSchema, change_schema
from headgate.envelope.datastream.changes_by_source import ChangesBySource
from headgate.envelope.datastream.opened_file import (
    OpenedFile,
    RejectedChange,
    SourceTable,
    UnreadableFile,
)
from headgate.envelope.datastream.told_metadata import (
    COLUMNS,
    More,
    Place,
    add_more,
    metadata_columns,
)
from headgate.envelope.datastream.told_values import plain_value, plain_values
from headgate.quarantine.reason import Reason

_MOST_REJECTED = 64 << 20
"""So many bytes may the files have that are made of single records."""
_MOST_MEMORY = 2 << 30


def open_avro(content: bytes) -> OpenedFile:
    """The changes; UnreadableFile or UnfinishedFile if there are none to be had."""
    container = read_container(content)
    schema = change_schema(container.schema)
    opened = _opened(container, schema)
    if schema.fields_mean and opened.rejected and not opened.changes:
        as_written = _opened(container, change_schema(container.schema, as_written=True))
        return as_written if as_written.changes else opened
    return opened


def _opened(container: Container, schema: ChangeSchema) -> OpenedFile:
    file = _AvroFile(container, schema)
    for portion in portions(container, schema):
        file.add(portion)
    rejected = sorted(file.rejected, key=lambda one: one.position)
    return OpenedFile(file.changes.joined(), rejected, has_schema=True)


def avro_records_alone(content: bytes, positions: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Of the records at these positions, each as a file of its own."""
    container = read_container(content)
    schema = change_schema(container.schema)
    first = 0
    for block in container.blocks:
        wanted = [one - first for one in positions if first <= one < first + block.count]
        if wanted:
            records = records_of(container, block, schema)
            portion = Portion(schema, first, (records,), (block.count,))
            for row in wanted:
                yield first + row, container.file_of(portion.content(row))
        first += block.count


class _AvroFile:
    def __init__(self, container: Container, schema: ChangeSchema) -> None:
        self.schema = schema
        self.changes = ChangesBySource()
        self.rejected: list[RejectedChange] = []
        self._container = container
        self._left = _MOST_REJECTED
        self._memory = _MOST_MEMORY

    def add(self, portion: Portion) -> None:
        read = portion.read()
        self._memory -= read.records.nbytes
        if self._memory < 0:
            raise UnreadableFile(f"it takes more than {_MOST_MEMORY >> 30} GB of memory")
        for row, detail in read.bad.items():
            self._reject(portion, row, Reason.PAYLOAD_UNDECODABLE, detail, None)
        metadata = _metadata(self.schema, portion, read)
        payload = read.records.field(_index(self.schema, "payload"))
        nameless = pc.fill_null(pc.equal(metadata["_table"], ""), True)
        unusable = pc.or_(nameless, payload.is_null()).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(unusable).tolist():
            named = not nameless[row].as_py()
            source = source_at(metadata, row) if named else None
            detail = "it has no payload" if named else "it names no table"
            self._reject(portion, int(read.rows[row]), Reason.CHANGE_UNREADABLE, detail, source)
        kept = np.flatnonzero(~unusable)
        if len(kept) < len(unusable):
            metadata, payload = metadata.take(kept), payload.take(kept)
        self.changes.add(
            metadata, self.schema.payload.batch(payload), portion.first + read.rows[kept]
        )

    def _reject(
        self, portion: Portion, row: int, reason: Reason, detail: str, source: SourceTable | None
    ) -> None:
        raw = self._container.file_of(portion.content(row))
        self._left -= len(raw)
        if self._left < 0:
            raise UnreadableFile("too many of its records are no changes to keep each one of them")
        self.rejected.append(RejectedChange(portion.first + row, reason, detail, raw, source))


def source_at(metadata: pa.RecordBatch, row: int) -> SourceTable:
    """The source table that the metadata of a change names."""
    database, schema, table = (
        metadata[name][row].as_py() for name in ("_database", "_schema", "_table")
    )
    return SourceTable(database, schema, table)


def _index(schema: ChangeSchema, name: str) -> int:
    return [one.name for one in schema.record.fields].index(name)


def _metadata(schema: ChangeSchema, portion: Portion, read: ReadPortion) -> pa.RecordBatch:
    told: dict[Place, pa.Array] = {}
    more: More = {}
    source = read.records.field(_index(schema, "source_metadata"))
    parts: list[tuple[Place, pa.Array]] = [
        ((name,), read.records.field(at)) for at, name in enumerate(read.records.type.names)
    ]
    parts += [
        (("source_metadata", name), array)
        for name, array in zip(source.type.names, source.flatten(), strict=True)
    ]
    for place, array in parts:
        if place in COLUMNS:
            told[place] = array
        elif place not in {("payload",), ("source_metadata",)}:
            _note(more, place, array)

    def value_at(place: Place, row: int) -> Any:
        return plain_value(told[place][row])

    return metadata_columns(
        len(read.records),
        told,
        more,
        value_at,
        lambda rows: [portion.content(row) for row in read.rows[rows].tolist()],
    )


def _note(more: More, place: Place, array: pa.Array) -> None:
    there = np.flatnonzero(array.is_valid())
    if len(there):
        for row, value in zip(there.tolist(), plain_values(array.take(there)), strict=True):
            add_more(more, row, place, value)
