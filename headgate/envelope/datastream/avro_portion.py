"""Some blocks of an Avro file in a row, read at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headgate.envelope.datastream.avro_container import Block, Container
from headgate.envelope.datastream.change_schema import ChangeSchema
from headgate.envelope.datastream.opened_file import (
    LARGEST_FILE,
    MOST_CELLS,
    UnreadableFile,
)
from headgate.schema.avro.blocks import payloads_of
from headgate.schema.avro.read_bytes import WrongBytes

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
        raise UnreadableFile(f"a block has no room for the {block.count} records it speaks of")
    return records
