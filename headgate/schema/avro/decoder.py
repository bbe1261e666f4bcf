"""Avro: a registry's schema text, payloads decoded to columns.

A batch is read at once where it can be. Where anything about it is not as it should be, it is
halved, and the few records that are left are read by the letter: what a record becomes depends
on its bytes and its schema, and never on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.schema.avro.batch import BatchReader
from headgate.schema.avro.columns import column_type, record_columns, root_record
from headgate.schema.avro.exact import ExactReader
from headgate.schema.avro.read_bytes import WrongBytes
from headgate.schema.avro.schema import AvroSchema, parse_schema
from headgate.schema.avro.size import places
from headgate.schema.decoder import Decoded, only_length
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.schema.registry import SchemaText
from headgate.schema.storable import storable_array, storable_fields

_FEW_RECORDS = 32
_MANY_RECORDS = 4_096
"""Python's values take many times the place of Arrow's, and go before the next ones come."""
_FEW_BYTES = 4 << 10
_FEW_BYTES_OF_A_COLUMN = 200


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes the records of one writer's schema."""

    record_name: str
    schema: pa.Schema
    read_type: pa.DataType
    """The columns as they are read, before those of Delta."""
    exact: ExactReader
    batches: BatchReader | None
    few_bytes: int
    """In the time that it takes to begin with a batch, so many are read by the letter."""

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
            read_type=column_type(record),
            exact=ExactReader(record, schema.named),
            batches=BatchReader.of(record),
            few_bytes=_FEW_BYTES + _FEW_BYTES_OF_A_COLUMN * places(record),
        )

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        found, bad = self.read(payloads)
        if not self.schema.names:
            return Decoded(only_length(len(found)), bad)
        arrays = [
            storable_array(found.field(at), field.type) for at, field in enumerate(self.schema)
        ]
        return Decoded(pa.RecordBatch.from_arrays(arrays, schema=self.schema), bad)

    def read(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, dict[int, str]]:
        """The records in the types that they are read in, and what is wrong with the others."""
        found: list[pa.StructArray] = []
        bad: dict[int, str] = {}
        self._decode_range(payloads.fill_null(b""), 0, found, bad)
        if len(found) != 1:
            found = [pa.concat_arrays([*found, pa.array([], self.read_type)])]
        return found[0], bad

    def _decode_range(
        self,
        payloads: pa.BinaryArray,
        start: int,
        found: list[pa.StructArray],
        bad: dict[int, str],
    ) -> None:
        if self.batches is not None and payloads.nbytes > self.few_bytes:
            columns = self.batches.read(payloads)
            if columns is not None:
                found.append(columns)
                return
            if len(payloads) > _FEW_RECORDS:
                middle = len(payloads) // 2
                self._decode_range(payloads[:middle], start, found, bad)
                self._decode_range(payloads[middle:], start + middle, found, bad)
                return
        for first in range(0, len(payloads), _MANY_RECORDS):
            rows = []
            part = payloads[first : first + _MANY_RECORDS]
            for position, payload in enumerate(part.to_pylist(), start + first):
                try:
                    rows.append(self.exact.read(payload))
                except WrongBytes as error:
                    bad[position] = str(error)[:500]
            found.append(pa.array(rows, self.read_type))
