"""A batch of Avro records read at once.

Records one after the other are a block of an Avro file: with a header before them, a reader of
such files takes them all. A guard of random bytes after each record shows that each began and
ended where its payload did: no payload can know its guard.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.schema.avro.plain import GUARD_SIZE, Plain

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_COUNT = 1 << 62
"""What a block says it has: of one with bytes after its last record, the reader finds no end."""


class ContainerReader:
    """Reads payloads of one schema through a file that is gone at once."""

    def __init__(self, guarded: Plain) -> None:
        schema = json.dumps(guarded.avro).encode()
        entry = avro_bytes(b"avro.schema") + avro_bytes(schema)
        self._header = _MAGIC + avro_long(1) + entry + avro_long(0)
        self._schema = pa.schema(list(guarded.arrow))

    def read(self, payloads: pa.BinaryArray) -> pa.Array | None:
        """The records in the plain type; None if any of them is not a record of the schema."""
        if _first_process() != os.getpid():
            return None
        chance = np.random.default_rng()
        guards = pa.py_buffer(chance.bytes(GUARD_SIZE * len(payloads)))
        block = _joined(payloads, guards)
        sync = chance.bytes(_SYNC_SIZE)
        found = self._read_written([block], block.size, len(payloads), sync)
        if found is None or len(found) != len(payloads) or not _is_guarded(found, guards):
            return None
        return found.column(0).combine_chunks()

    def read_blocks(self, blocks: Sequence[bytes], count: int) -> pa.Array | None:
        """All records of some blocks, read as one; None if there are not just so many."""
        if _first_process() != os.getpid():
            return None
        sync = np.random.default_rng().bytes(_SYNC_SIZE)
        found = self._read_written(blocks, sum(map(len, blocks)), count, sync)
        if found is None or len(found) != count:
            return None
        return found.column(0).combine_chunks()

    def _read_written(
        self, parts: Sequence[bytes | pa.Buffer], size: int, rows: int, sync: bytes
    ) -> pa.Table | None:
        with tempfile.NamedTemporaryFile(prefix="headgate-", suffix=".avro") as file:
            file.write(self._header + sync + avro_long(_COUNT) + avro_long(size))
            file.writelines(parts)
            file.write(sync)
            file.flush()
            return self._read_file(Path(file.name).as_uri(), rows)

    def _read_file(self, address: str, rows: int) -> pa.Table | None:
        # Takes most of a second, and is needed by those alone who have Avro.
        from datafusion import SessionConfig, SessionContext

        # The reader numbers the values of a union wrongly in all batches but the first.
        settings = SessionConfig().with_target_partitions(1).with_batch_size(rows)
        try:
            batches = SessionContext(settings).read_avro(address, schema=self._schema).collect()
            return pa.Table.from_batches(batches)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # whatever hostile bytes do inside the reader
            return None


@cache
def _first_process() -> int:
    """Where the reader's threads are: a forked process waits for them for ever."""
    return os.getpid()


def _joined(payloads: pa.BinaryArray, guards: pa.Buffer) -> pa.Buffer:
    after = pa.Array.from_buffers(pa.binary(GUARD_SIZE), len(payloads), [None, guards])
    joined: Any = pc.binary_join_element_wise(payloads, after.cast(pa.binary()), b"")
    _, offsets, data = joined.buffers()
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[len(payloads)]))


def _is_guarded(found: pa.Table, guards: pa.Buffer) -> bool:
    read = found.column(1).combine_chunks()
    return bool(read.buffers()[1].slice(read.offset * GUARD_SIZE, guards.size).equals(guards))


def avro_long(value: int) -> bytes:
    """A whole number as Avro writes it."""
    left, written = value << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])


def avro_bytes(value: bytes) -> bytes:
    """Bytes or a text as Avro writes them."""
    return avro_long(len(value)) + value
