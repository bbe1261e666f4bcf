"""The Avro decoder: payloads of one writer schema to columns.

A batch is read at once if possible. If anything in it looks wrong it is halved, and the few
remaining records go to the reference decoder: what a record becomes depends on its bytes and
its schema, never on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.avro.batch_reader import BatchReader
from headgate.formats.avro.columns import (
    cell_count,
    cells_per_byte,
    column_type,
    record_columns,
    root_record,
)
from headgate.formats.avro.encoding import MAX_ITEM_CELLS, Cursor, MalformedAvro
from headgate.formats.avro.reference_decoder import AvroReferenceDecoder
from headgate.formats.avro.schema import AvroSchema, parse_schema
from headgate.formats.decoder import Decoded, only_length
from headgate.formats.storable import storable_array, storable_fields
from headgate.registry.registry import SchemaText
from headgate.schema.origin import ORIGIN_COLUMNS

_MIN_SPLIT_RECORDS = 32
_REFERENCE_CHUNK = 4_096
"""Python values take many times the memory of Arrow's: convert each chunk before the next."""
_REFERENCE_CELLS = 1 << 20
"""Cells in lists of such a chunk, unless a single record has more."""
_BATCH_START_SIZE = 4 << 10
_BATCH_START_SIZE_PER_CELL = 200


def min_batch_size(cells: int) -> int:
    """Return the bytes that the reference decoder reads in the time it takes to start a batch."""
    return _BATCH_START_SIZE + _BATCH_START_SIZE_PER_CELL * cells


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes the records of one writer schema."""

    record_name: str
    schema: pa.Schema
    decoded_type: pa.DataType
    """The columns as decoded, before conversion to types that Delta can store."""
    reference: AvroReferenceDecoder
    batches: BatchReader | None
    min_batch_size: int
    width: int
    cells_per_byte: float
    """An upper bound of the cells in lists."""

    @classmethod
    def parse(cls, text: SchemaText) -> AvroDecoder:
        return cls.of(parse_schema(text))

    @classmethod
    def of(cls, schema: AvroSchema) -> AvroDecoder:
        record = root_record(schema)
        columns = storable_fields(record_columns(record), ORIGIN_COLUMNS)
        return cls(
            record_name=record.name,
            schema=pa.schema(columns),
            decoded_type=column_type(record),
            reference=AvroReferenceDecoder(record, schema.named),
            batches=BatchReader.of(record),
            min_batch_size=min_batch_size(cell_count(record)),
            width=cell_count(record),
            cells_per_byte=cells_per_byte(record),
        )

    def most_cells(self, payloads: pa.BinaryArray, enough: int) -> np.ndarray | None:
        if not len(payloads):
            return None
        lengths = pc.binary_length(payloads).fill_null(0).to_numpy(zero_copy_only=False)
        in_lists = np.minimum(lengths * self.cells_per_byte, MAX_ITEM_CELLS)
        if len(lengths) * self.width + in_lists.sum() <= enough:
            return None
        return np.asarray(in_lists.astype(np.int64) + self.width)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        records, bad = self.read(payloads)
        if not self.schema.names:
            return Decoded(only_length(len(records)), bad)
        arrays = [
            storable_array(records.field(index), field.type)
            for index, field in enumerate(self.schema)
        ]
        return Decoded(pa.RecordBatch.from_arrays(arrays, schema=self.schema), bad)

    def read(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, dict[int, str]]:
        """Return the records in their decoded type, and errors by position for the others."""
        parts: list[pa.StructArray] = []
        bad: dict[int, str] = {}
        self._read_range(payloads.fill_null(b""), 0, parts, bad)
        if len(parts) != 1:
            parts = [pa.concat_arrays([*parts, pa.array([], self.decoded_type)])]
        return parts[0], bad

    def _read_range(
        self,
        payloads: pa.BinaryArray,
        start: int,
        parts: list[pa.StructArray],
        bad: dict[int, str],
    ) -> None:
        if self.batches is not None and payloads.nbytes > self.min_batch_size:
            records = self.batches.read(payloads)
            if records is not None:
                parts.append(records)
                return
            if len(payloads) > _MIN_SPLIT_RECORDS:
                middle = len(payloads) // 2
                self._read_range(payloads[:middle], start, parts, bad)
                self._read_range(payloads[middle:], start + middle, parts, bad)
                return
        for first in range(0, len(payloads), _REFERENCE_CHUNK):
            rows, cells = list[Any](), 0
            chunk = payloads[first : first + _REFERENCE_CHUNK]
            for position, payload in enumerate(chunk.to_pylist(), start + first):
                cursor = Cursor(payload)
                try:
                    rows.append(self.reference.decode(cursor))
                except MalformedAvro as error:
                    bad[position] = str(error)[:500]
                cells += cursor.cells
                if cells > _REFERENCE_CELLS:
                    parts.append(pa.array(rows, self.decoded_type))
                    rows, cells = [], 0
            parts.append(pa.array(rows, self.decoded_type))
