"""Changes from an Avro file.

A file is all or nothing: if a block is damaged, it is unknown what else is missing, and no
change of the file is used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.changes import (
    MAX_CELLS,
    MAX_FILE_SIZE,
    MAX_REJECTED,
    MAX_TABLES,
    Changes,
    OpenedFile,
    Positions,
    RejectedChanges,
    SourceTable,
    UnreadableFile,
    no_changes,
    require_few_records,
    require_usable,
)
from headgate.envelopes.datastream.container import Block, Container, read_container
from headgate.envelopes.datastream.metadata import (
    COLUMNS,
    Extras,
    FieldPath,
    add_extra,
    metadata_columns,
    python_value,
    python_values,
)
from headgate.envelopes.datastream.schema import ChangeSchema, change_schema
from headgate.formats.avro.blocks import split_block
from headgate.formats.avro.decoder import min_batch_size
from headgate.formats.avro.encoding import MalformedAvro
from headgate.reasons import Reason

_PORTION_SIZE = 16 << 20
_RECORDS_AT_A_TIME = 1 << 16
"""Bounds what is kept of records before their number is checked."""
_MAX_MEMORY = 2 << 30
_SOURCE_COLUMNS = ("_database", "_schema", "_table")


def open_avro(content: bytes) -> OpenedFile:
    """Return the changes of a file; raise UnreadableFile or UnfinishedFile."""
    container = read_container(content)
    schema = change_schema(container.schema)
    opened = _open(container, schema)
    is_rejected = opened.rejected or opened.unreadable is not None
    if schema.has_field_logical_types and is_rejected and not opened.changes:
        as_written = _open(container, change_schema(container.schema, as_written=True))
        return as_written if as_written.changes else opened
    return opened


def _open(container: Container, schema: ChangeSchema) -> OpenedFile:
    file = _AvroFile(container, schema)
    try:
        for portion in _portions(container, schema):
            file.add(portion)
    except UnreadableFile as error:
        return OpenedFile(unreadable=str(error))
    rejected = sorted(file.rejected.kept, key=lambda change: change.position)
    return OpenedFile(file.changes.all(), rejected, file.rejected.more, has_schema=True)


def extract_avro_records(content: bytes, positions: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records at some positions, each as a file with only that record."""
    container = read_container(content)
    schema = change_schema(container.schema)
    wanted = sorted(position for position in positions if position >= 0)
    first = 0
    for block in container.blocks:
        begin, end = bisect_left(wanted, first), bisect_left(wanted, first + block.count)
        rows = [position - first for position in wanted[begin:end]]
        if rows:
            records = _decompress(container, block, schema)
            portion = BlockPortion(schema, first, (records,), (block.count,))
            for row in rows:
                yield first + row, container.single_record_file(portion.content(row))
        first += block.count


class _AvroFile:
    """The changes and rejected records of a file that is read in portions."""

    def __init__(self, container: Container, schema: ChangeSchema) -> None:
        self.schema = schema
        self.changes = _ChangesBySource()
        self.rejected = RejectedChanges()
        self._container = container
        self._memory = 0

    def add(self, portion: BlockPortion) -> None:
        read = portion.read()
        self._memory += read.records.nbytes
        if self._memory > _MAX_MEMORY:
            raise UnreadableFile(f"takes more than {_MAX_MEMORY >> 30} GB of memory")
        for row, detail in read.bad.items():
            self._reject(portion, row, Reason.PAYLOAD_UNDECODABLE, detail, None)
        for start in range(0, len(read.records), _RECORDS_AT_A_TIME):
            self._add_records(portion, read.slice(start, _RECORDS_AT_A_TIME))
        if self.changes.is_empty and self.rejected.total > MAX_REJECTED:
            raise no_changes()

    def _add_records(self, portion: BlockPortion, read: ReadPortion) -> None:
        metadata = _metadata(self.schema, portion, read)
        payload = read.records.field(_field_index(self.schema, "payload"))
        nameless = pc.fill_null(pc.equal(metadata["_table"], ""), True)
        unusable = pc.or_(nameless, payload.is_null()).to_numpy(zero_copy_only=False)
        unusable_rows = np.flatnonzero(unusable)
        for row in unusable_rows[:MAX_REJECTED].tolist():
            has_table = not nameless[row].as_py()
            source = _source_at(metadata, row) if has_table else None
            detail = "the record has no payload" if has_table else "the record names no table"
            self._reject(portion, int(read.rows[row]), Reason.CHANGE_UNREADABLE, detail, source)
        if len(unusable_rows) > MAX_REJECTED:
            self.rejected.count(len(unusable_rows) - MAX_REJECTED)
        usable = np.flatnonzero(~unusable)
        if len(usable) < len(unusable):
            metadata, payload = metadata.take(usable), payload.take(usable)
        self.changes.add(
            metadata, self.schema.payload.batch(payload), portion.first + read.rows[usable]
        )

    def _reject(
        self,
        portion: BlockPortion,
        row: int,
        reason: Reason,
        detail: str,
        source: SourceTable | None,
    ) -> None:
        self.rejected.add(
            portion.first + row,
            reason,
            detail,
            lambda: self._container.single_record_file(portion.content(row)),
            source,
        )


@dataclass(frozen=True)
class ReadPortion:
    """The records of a portion that could be decoded, and errors by row for the others."""

    records: pa.StructArray
    rows: Positions
    """Rows of the records in the portion."""
    bad: dict[int, str]

    def slice(self, start: int, length: int) -> ReadPortion:
        """Return some of the records, without errors."""
        rows = self.rows[start : start + length]
        return ReadPortion(self.records.slice(start, length), rows, {})


@dataclass(frozen=True)
class BlockPortion:
    """Some decompressed blocks of a file."""

    schema: ChangeSchema
    first: int
    """Position of the first record in the file."""
    blocks: tuple[bytes, ...]
    counts: tuple[int, ...]

    def read(self) -> ReadPortion:
        """Decode the records: whole blocks if that is safe, else record by record."""
        count = sum(self.counts)
        rows = np.arange(count)
        if self.schema.blocks is not None and not self.is_small:
            records = self.schema.blocks.read(self.blocks, count)
            if records is not None:
                return ReadPortion(records, rows, {})
        parts: list[pa.StructArray] = []
        bad: dict[int, str] = {}
        for first in range(0, max(1, count), _RECORDS_AT_A_TIME):
            payloads = self.payloads[first : first + _RECORDS_AT_A_TIME]
            part, errors = self.schema.decoder.read(payloads)
            parts.append(part)
            bad.update({first + row: detail for row, detail in errors.items()})
            require_usable(len(bad))
        records = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return ReadPortion(records, np.delete(rows, list(bad)), bad)

    @property
    def is_small(self) -> bool:
        """Whether decoding record by record takes less time than starting the block reader."""
        return sum(map(len, self.blocks)) <= min_batch_size(self.schema.cells)

    @cached_property
    def payloads(self) -> pa.BinaryArray:
        """The records, each as a payload of its own."""
        parts, remaining = [], MAX_CELLS
        try:
            for block, count in zip(self.blocks, self.counts, strict=True):
                ends, cells = self.schema.boundaries.find(block, count, remaining)
                parts.append(split_block(block, ends))
                remaining -= cells
        except MalformedAvro as error:
            raise UnreadableFile(f"a block is damaged: {error}"[:500]) from None
        return pa.concat_arrays(parts)

    def content(self, row: int) -> bytes:
        """Return the bytes of one record."""
        payload: bytes = self.payloads[row].as_py()
        return payload


def _portions(container: Container, schema: ChangeSchema) -> Iterator[BlockPortion]:
    """Yield the blocks of a file in portions, to bound the memory of decompressed data."""
    remaining = MAX_FILE_SIZE
    first = total = size = 0
    blocks: list[bytes] = []
    counts: list[int] = []
    for block in container.blocks:
        records = _decompress(container, block, schema, remaining)
        remaining -= len(records)
        total += block.count
        require_few_records(total)
        if total * schema.cells > MAX_CELLS:
            raise UnreadableFile(f"more than {MAX_CELLS} values")
        blocks.append(records)
        counts.append(block.count)
        size += len(records)
        if size >= _PORTION_SIZE:
            yield BlockPortion(schema, first, tuple(blocks), tuple(counts))
            first, size, blocks, counts = total, 0, [], []
    if blocks:
        yield BlockPortion(schema, first, tuple(blocks), tuple(counts))


def _decompress(
    container: Container, block: Block, schema: ChangeSchema, max_size: int = MAX_FILE_SIZE
) -> bytes:
    """Decompress a block and check that it is large enough for its declared count."""
    records = container.decompress(block, max_size)
    if block.count * max(1, schema.record.min_size) > len(records):
        raise UnreadableFile(f"a block declares {block.count} records, but is too small for them")
    return records


class _ChangesBySource:
    """Changes of all source tables in a file; those of one table have one schema."""

    def __init__(self) -> None:
        self._parts: dict[SourceTable, list[Changes]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, metadata: pa.RecordBatch, payload: pa.RecordBatch, positions: Positions) -> None:
        """Add changes in the order of the file."""
        for rows in _rows_by_source(metadata):
            is_part = len(rows) < len(metadata)
            part = Changes(
                _source_at(metadata, int(rows[0])),
                metadata.take(rows) if is_part else metadata,
                payload.take(rows) if is_part else payload,
                positions[rows],
            )
            self._parts.setdefault(part.source, []).append(part)
        if len(self._parts) > MAX_TABLES:
            raise UnreadableFile(f"changes of more than {MAX_TABLES} tables")

    def all(self) -> list[Changes]:
        """Return the changes by source table, in order of first appearance."""
        return [parts[0] if len(parts) == 1 else _concat(parts) for parts in self._parts.values()]


def _rows_by_source(metadata: pa.RecordBatch) -> Iterator[Positions]:
    if not len(metadata):
        return
    codes = np.zeros(len(metadata), np.int64)
    for name in _SOURCE_COLUMNS:
        encoded = metadata[name].dictionary_encode(null_encoding="encode")
        if len(encoded.dictionary) > 1:
            combined = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            codes = np.unique(combined, return_inverse=True)[1]
    if codes.max() >= MAX_TABLES:
        raise UnreadableFile(f"changes of more than {MAX_TABLES} tables")
    first_rows = np.unique(codes, return_index=True)[1]
    for row in np.sort(first_rows):
        yield np.flatnonzero(codes == codes[row])


def _concat(parts: list[Changes]) -> Changes:
    return Changes(
        parts[0].source,
        pa.concat_batches([part.metadata for part in parts]),
        pa.concat_batches([part.payload for part in parts]),
        np.concatenate([part.positions for part in parts]),
    )


def _source_at(metadata: pa.RecordBatch, row: int) -> SourceTable:
    return SourceTable(*(metadata[name][row].as_py() for name in _SOURCE_COLUMNS))


def _field_index(schema: ChangeSchema, name: str) -> int:
    return [field.name for field in schema.record.fields].index(name)


def _metadata(schema: ChangeSchema, portion: BlockPortion, read: ReadPortion) -> pa.RecordBatch:
    values: dict[FieldPath, pa.Array] = {}
    extras: Extras = {}
    source = read.records.field(_field_index(schema, "source_metadata"))
    fields: list[tuple[FieldPath, pa.Array]] = [
        ((name,), read.records.field(index)) for index, name in enumerate(read.records.type.names)
    ]
    fields += [
        (("source_metadata", name), array)
        for name, array in zip(source.type.names, source.flatten(), strict=True)
    ]
    for path, array in fields:
        if path in COLUMNS:
            values[path] = array
        elif path not in {("payload",), ("source_metadata",)}:
            _add_extras(extras, path, array)

    def value_at(path: FieldPath, row: int) -> Any:
        return python_value(values[path][row])

    return metadata_columns(
        len(read.records),
        values,
        extras,
        value_at,
        lambda rows: [portion.content(row) for row in read.rows[rows].tolist()],
    )


def _add_extras(extras: Extras, path: FieldPath, array: pa.Array) -> None:
    rows = np.flatnonzero(array.is_valid())
    if len(rows):
        for row, value in zip(rows.tolist(), python_values(array.take(rows)), strict=True):
            add_extra(extras, row, path, value)
