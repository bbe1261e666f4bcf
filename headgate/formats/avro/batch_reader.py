"""Reading many Avro records at once with DataFusion: either all of them, or none.

The bytes are written into a temporary container file under the record's physical schema.
Whenever the outcome is not certain, the caller falls back to the reference decoder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.avro.columns import cells_per_byte
from headgate.formats.avro.encoding import (
    MAX_ITEM_CELLS,
    SYNC_MARKER_SIZE,
    encode_header,
    encode_long,
)
from headgate.formats.avro.physical_schema import (
    GUARD_SIZE,
    PhysicalType,
    physical_schema,
    to_column,
)
from headgate.formats.avro.primitive_columns import UnsafeBatch
from headgate.formats.avro.types import Record

_RECORD_COUNT = 1 << 62
"""The count written to a block: with a smaller one, bytes after the last record hang the reader."""

_MAX_BATCH_SIZE = 32 << 20
_MAX_BATCH_CELLS = 1 << 27
"""Limit on cells in arrays and maps: a hostile count can turn every byte into many."""


class _RecordReader:
    guarded: ClassVar[bool]

    def __init__(self, record: Record, schema: PhysicalType) -> None:
        self._record = record
        self._container = _ContainerReader(schema)
        self._cells_per_byte = cells_per_byte(record)

    @classmethod
    def of(cls, record: Record) -> Self | None:
        """Return the reader of a record; None if its records cannot be read in batches."""
        schema = physical_schema(record, guarded=cls.guarded)
        return None if schema is None else cls(record, schema)

    def _to_columns(self, physical: pa.Array | None) -> pa.StructArray | None:
        if physical is None:
            return None
        try:
            return to_column(self._record, physical)
        except (UnsafeBatch, pa.ArrowException):
            return None


class BatchReader(_RecordReader):
    """Reads many payloads of one schema."""

    guarded = True

    def read(self, payloads: pa.BinaryArray) -> pa.StructArray | None:
        """Return the records; None if any of them might be malformed."""
        offsets = np.frombuffer(payloads.buffers()[1], np.int32)
        offsets = offsets[payloads.offset : payloads.offset + len(payloads) + 1]
        size, longest = int(offsets[-1] - offsets[0]), int(np.diff(offsets).max())
        if size > _MAX_BATCH_SIZE or size * self._cells_per_byte > _MAX_BATCH_CELLS:
            return None
        if longest * self._cells_per_byte > MAX_ITEM_CELLS:
            return None
        return self._to_columns(self._container.read_guarded(payloads))


class BlockReader(_RecordReader):
    """Reads the records of many blocks, which have nothing between them."""

    guarded = False

    def read(self, blocks: Sequence[bytes], count: int) -> pa.StructArray | None:
        """Return the `count` records; None if any of them might be malformed."""
        if not count or sum(map(len, blocks)) * self._cells_per_byte > _MAX_BATCH_CELLS:
            return None
        return self._to_columns(self._container.read_blocks(blocks, count))


class _ContainerReader:
    """Reads records of one physical schema through a temporary container file."""

    def __init__(self, schema: PhysicalType) -> None:
        self._avro = json.dumps(schema.avro).encode()
        self._arrow = pa.schema(list(schema.arrow))

    def read_guarded(self, payloads: pa.BinaryArray) -> pa.Array | None:
        """Read payloads with random guards between them; None if a guard does not come back."""
        if _first_process() != os.getpid():
            return None
        guards = pa.py_buffer(np.random.default_rng().bytes(GUARD_SIZE * len(payloads)))
        block = _with_guards(payloads, guards)
        table = self._read([block], block.size, len(payloads))
        if table is None or len(table) != len(payloads) or not _guards_match(table, guards):
            return None
        return table.column(0).combine_chunks()

    def read_blocks(self, blocks: Sequence[bytes], count: int) -> pa.Array | None:
        """Read blocks as one; None if they do not have exactly `count` records."""
        if _first_process() != os.getpid():
            return None
        table = self._read(blocks, sum(map(len, blocks)), count)
        if table is None or len(table) != count:
            return None
        return table.column(0).combine_chunks()

    def _read(self, parts: Sequence[bytes | pa.Buffer], size: int, rows: int) -> pa.Table | None:
        sync_marker = np.random.default_rng().bytes(SYNC_MARKER_SIZE)
        with tempfile.NamedTemporaryFile(prefix="headgate-", suffix=".avro") as file:
            file.write(encode_header(self._avro, sync_marker))
            file.write(encode_long(_RECORD_COUNT) + encode_long(size))
            file.writelines(parts)
            file.write(sync_marker)
            file.flush()
            return self._read_file(Path(file.name).as_uri(), rows)

    def _read_file(self, url: str, rows: int) -> pa.Table | None:
        # The import takes most of a second, and only pipelines with Avro need it.
        from datafusion import SessionConfig, SessionContext

        # The reader numbers union values wrongly in every batch but the first.
        config = SessionConfig().with_target_partitions(1).with_batch_size(rows)
        try:
            batches = SessionContext(config).read_avro(url, schema=self._arrow).collect()
            return pa.Table.from_batches(batches)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # Hostile bytes can make the reader panic.
            return None


@cache
def _first_process() -> int:
    """Return the process that started DataFusion's threads: a fork would wait for them forever."""
    return os.getpid()


def _with_guards(payloads: pa.BinaryArray, guards: pa.Buffer) -> pa.Buffer:
    suffixes = pa.Array.from_buffers(pa.binary(GUARD_SIZE), len(payloads), [None, guards])
    joined: Any = pc.binary_join_element_wise(payloads, suffixes.cast(pa.binary()), b"")
    _, offsets, data = joined.buffers()
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[len(payloads)]))


def _guards_match(table: pa.Table, guards: pa.Buffer) -> bool:
    read = table.column(1).combine_chunks()
    return bool(read.buffers()[1].slice(read.offset * GUARD_SIZE, guards.size).equals(guards))
