"""Changes from an Avro file.

What is one file is one whole: where a block is damaged, nobody knows what else is missing, and
nothing of the file is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.container import Block, Container, read_container
from headgate.envelopes.datastream.metadata import (
    COLUMNS,
    More,
    Place,
    add_more,
    metadata_columns,
    plain_value,
    plain_values,
)
from headgate.envelopes.datastream.opened import (
    LARGEST_FILE,
    MOST_CELLS,
    MOST_TABLES,
    Changes,
    OpenedFile,
    RejectedChange,
    SourceTable,
    UnreadableFile,
)
from headgate.envelopes.datastream.schema import ChangeSchema, change_schema
from headgate.formats.avro.blocks import payloads_of
from headgate.formats.avro.read_bytes import WrongBytes
from headgate.reasons import Reason

_PORTION_SIZE = 16 << 20


@dataclass(frozen=True)
class ReadPortion:
    """The records that could be read, and what is wrong with the others."""

    records: pa.StructArray
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    """Which of the portion's records each one is."""
    bad: dict[int, str]


@dataclass(frozen=True)
class Portion:
    """Blocks without their compression."""

    schema: ChangeSchema
    first: int
    """Which record of the file its first one is."""
    blocks: tuple[bytes, ...]
    counts: tuple[int, ...]

    def read(self) -> ReadPortion:
        """At once if that is sure, else by the letter."""
        count = sum(self.counts)
        rows = np.arange(count)
        if self.schema.blocks is not None and not self.is_small:
            found = self.schema.blocks.read(self.blocks, count)
            if found is not None:
                return ReadPortion(found, rows, {})
        found, bad = self.schema.decoder.read(self.payloads)
        return ReadPortion(found, np.delete(rows, list(bad)), bad)

    @property
    def is_small(self) -> bool:
        """Whether its records are read by the letter before a reader of blocks has begun."""
        return sum(map(len, self.blocks)) <= self.schema.decoder.few_bytes

    @cached_property
    def payloads(self) -> pa.BinaryArray:
        """Each record on its own."""
        parts, left = [], MOST_CELLS
        try:
            for block, count in zip(self.blocks, self.counts, strict=True):
                ends, values = self.schema.ends.find(block, count, left)
                parts.append(payloads_of(block, ends))
                left -= values
        except WrongBytes as error:
            raise UnreadableFile(f"a block is damaged: {error}"[:500]) from None
        return pa.concat_arrays(parts)

    def content(self, row: int) -> bytes:
        """The bytes of one record."""
        found: bytes = self.payloads[row].as_py()
        return found


def portions(container: Container, schema: ChangeSchema) -> Iterator[Portion]:
    """All blocks of a file, some of them at a time: what is decompressed is not all in memory."""
    left = LARGEST_FILE
    first = total = size = 0
    blocks: list[bytes] = []
    counts: list[int] = []
    for block in container.blocks:
        records = records_of(container, block, schema, left)
        left -= len(records)
        total += block.count
        if total * schema.cells > MOST_CELLS:
            raise UnreadableFile(f"it has more than {MOST_CELLS} values")
        blocks.append(records)
        counts.append(block.count)
        size += len(records)
        if size >= _PORTION_SIZE:
            yield Portion(schema, first, tuple(blocks), tuple(counts))
            first, size, blocks, counts = total, 0, [], []
    if blocks:
        yield Portion(schema, first, tuple(blocks), tuple(counts))


def records_of(
    container: Container, block: Block, schema: ChangeSchema, most: int = LARGEST_FILE
) -> bytes:
    """The bytes of a block's records, which have room for as many as it speaks of."""
    records = container.records(block, most)
    if block.count * max(1, schema.record.fewest_bytes) > len(records):
        raise UnreadableFile(f"a block is too short for the {block.count} records it declares")
    return records


Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
_SOURCE = ("_database", "_schema", "_table")


class ChangesBySource:
    """Changes of all source tables in a file; those of one table have one schema."""

    def __init__(self) -> None:
        self._parts: dict[SourceTable, list[Changes]] = {}

    def add(self, metadata: pa.RecordBatch, payload: pa.RecordBatch, positions: Positions) -> None:
        """Add changes in the order of the file."""
        for rows in _rows_by_source(metadata):
            part, row = metadata, payload
            if len(rows) < len(metadata):
                part, row = metadata.take(rows), payload.take(rows)
            source = SourceTable(*(part[name][0].as_py() for name in _SOURCE))
            found = Changes(source, part, row, positions[rows])
            self._parts.setdefault(source, []).append(found)
        if len(self._parts) > MOST_TABLES:
            raise UnreadableFile(f"it has changes of more than {MOST_TABLES} tables")

    def joined(self) -> list[Changes]:
        """One for each source table, in the order in which they came."""
        return [parts[0] if len(parts) == 1 else _joined(parts) for parts in self._parts.values()]


def _rows_by_source(metadata: pa.RecordBatch) -> Iterator[Positions]:
    if not len(metadata):
        return
    codes = np.zeros(len(metadata), np.int64)
    for name in _SOURCE:
        words = metadata[name].dictionary_encode(null_encoding="encode")
        if len(words.dictionary) > 1:
            both = codes * len(words.dictionary) + words.indices.to_numpy()
            codes = np.unique(both, return_inverse=True)[1]
    if codes.max() >= MOST_TABLES:
        raise UnreadableFile(f"it has changes of more than {MOST_TABLES} tables")
    firsts = np.unique(codes, return_index=True)[1]
    for first in np.sort(firsts):
        yield np.flatnonzero(codes == codes[first])


def _joined(parts: list[Changes]) -> Changes:
    return Changes(
        parts[0].source,
        pa.concat_batches([one.metadata for one in parts]),
        pa.concat_batches([one.payload for one in parts]),
        np.concatenate([one.positions for one in parts]),
    )


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
            raise UnreadableFile(f"it needs more than {_MOST_MEMORY >> 30} GB of memory")
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
            raise UnreadableFile("too many of its records are not changes")
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
