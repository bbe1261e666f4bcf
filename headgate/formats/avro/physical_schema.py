"""A schema as the reader of whole batches is told it: the same bytes, in the plainest types.

So little of what a reader may take its own way is left to it: no logical type, no name, no
symbol; a boolean is a byte to look at, and a map a list of pairs of which none is lost. A union
never has two branches, because the reader takes one of null and a type for nullable and every
number but null's for the type.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.formats.avro.types import (
    Array,
    Enum,
    Fixed,
    JsonText,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    fewest_bytes,
)

GUARD_SIZE = 8
_MOST_BRANCHES = 100
"""Arrow numbers them in seven bits."""

_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


@dataclass(frozen=True)
class Plain:
    """A type in Avro's words and in Arrow's."""

    avro: Any
    arrow: pa.DataType
    name: str | None = None
    """What it is called, where Avro wants a name."""

    def field(self, name: str) -> pa.Field:
        """With what the reader notes about the field, and asks for when it gives it out."""
        noted = None if self.name is None else {"avro.name": self.name}
        return pa.field(name, self.arrow, metadata=noted)


def guarded(record: Record) -> Plain | None:
    """The record with a guard after it; None if a batch of it cannot be read at once."""
    if takes_no_bytes(record) or not _is_readable(record):
        return None
    plainer = _Plainer()
    return plainer.record([plainer.plain(record), plainer.fixed(GUARD_SIZE)])


def unguarded(record: Record) -> Plain | None:
    """The record as it stands in a file, with nothing between it and the next."""
    if takes_no_bytes(record) or not _is_readable(record):
        return None
    plainer = _Plainer()
    return plainer.record([plainer.plain(record)])


def takes_no_bytes(kind: Type) -> bool:
    return fewest_bytes(kind, {}) == 0


def with_bytes(kinds: Iterable[Type]) -> list[Type]:
    """Those that are told to the reader: it takes a field without bytes for one without a value."""
    return [kind for kind in kinds if not takes_no_bytes(kind)]


def _is_readable(kind: Type) -> bool:
    match kind:
        case JsonText():
            return False
        case Array(inside) | Map(inside):
            return _is_readable(inside)
        case Record(fields=fields):
            return all(_is_readable(one.type) for one in fields)
        case Union(branches):
            # What takes no bytes is null to the reader, and a union can have only one null.
            nulls = sum(map(takes_no_bytes, branches))
            few = nulls < 2 and len(branches) <= _MOST_BRANCHES
            return few and all(map(_is_readable, branches))
        case _:
            return True


class _Plainer:
    def __init__(self) -> None:
        self._numbers = count()

    def plain(self, kind: Type) -> Plain:
        match kind:
            case Primitive("boolean"):
                return self.fixed(1)
            case Primitive(word):
                return Plain(word, _ARROW[word])
            case Fixed(size=size):
                return self.fixed(size)
            case Enum():
                return Plain("int", pa.int32())
            case Array(items):
                return _list(self.plain(items))
            case Map(values):
                return _list(
                    self.record(map(self.plain, with_bytes([Primitive("string"), values])))
                )
            case Record(fields=fields):
                return self.record(map(self.plain, with_bytes(one.type for one in fields)))
            case Union(branches):
                return self._union(branches)
            case _:
                raise AssertionError(f"{kind} is not expanded")

    def fixed(self, size: int) -> Plain:
        name = self._name()
        return Plain({"type": "fixed", "name": name, "size": size}, pa.binary(size), name)

    def record(self, inside: Iterable[Plain]) -> Plain:
        name, parts = self._name(), list(inside)
        fields = [{"name": f"f{at}", "type": part.avro} for at, part in enumerate(parts)]
        arrow = pa.struct([part.field(f"f{at}") for at, part in enumerate(parts)])
        return Plain({"type": "record", "name": name, "fields": fields}, arrow, name)

    def _union(self, branches: tuple[Type, ...]) -> Plain:
        parts = [
            Plain("null", pa.null()) if takes_no_bytes(one) else self.record([self.plain(one)])
            for one in branches
        ]
        while len(parts) < 3:
            parts.append(self.fixed(1))
        fields = [part.field(part.name or "null") for part in parts]
        return Plain([part.avro for part in parts], pa.dense_union(fields))

    def _name(self) -> str:
        return f"t{next(self._numbers)}"


def _list(item: Plain) -> Plain:
    return Plain({"type": "array", "items": item.avro}, pa.list_(item.field("item")))


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
