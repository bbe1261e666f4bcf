"""Hostile records, and whether reference implementations of Protobuf and Avro accept them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import fastavro
from google.protobuf.message import DecodeError

from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaText
from tests.engine.games import ENVELOPE, varint

EVENT = SchemaText(
    "PROTOBUF",
    'syntax = "proto3"; message event { int64 n = 1; string name = 2; repeated int32 list = 3;'
    " event inside = 4; map<string, event> named = 5; }",
)
LEGACY = SchemaText(
    "PROTOBUF",
    'syntax = "proto2"; message event { optional int64 n = 1; optional group G = 2 {'
    " optional event inside = 3; } }",
)
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": "bytes"}},
        {"name": "inside", "type": ["null", "event"]},
        {"name": "either", "type": ["null", "string", "double"]},
    ],
}
AVRO = SchemaText("AVRO", json.dumps(RECORD))
_PARSED = fastavro.parse_schema(RECORD)


@cache
def _message(text: SchemaText) -> Any:
    return ProtobufDecoder.compile(text, (0,)).message


def wrapped(route: str, schema_id: int, payload: bytes) -> bytes:
    fields = {"game_name": route, "schema_id": schema_id, "payload": payload}
    return bytes(ENVELOPE.decoder.message(**fields).SerializeToString())


def good_protobuf(number: int) -> bytes:
    made = _message(EVENT)(n=number, name=f"né {number}", list=[number % 7, -1])
    if number % 3 == 0:
        made.inside.n = number
    return bytes(made.SerializeToString())


def good_avro(number: int) -> bytes:
    row = {
        "n": number,
        "name": f"né {number}",
        "list": [number % 7],
        "map": {"k": b"\0"},
        "inside": None,
        "either": 0.5 if number % 2 else "x",
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _PARSED, row)
    return stream.getvalue()


def hostile(ids: dict[str, int], count: int, seed: int = 7) -> Iterator[bytes]:
    """Return records that are not valid by their schema."""
    chance = random.Random(seed)
    made = 0
    while made < count:
        damaged = [one for one in _damaged(ids, chance) if not _lands(one, ids)]
        for one in (*damaged, *_absurd(ids, chance))[: count - made]:
            made += 1
            yield one


def _damaged(ids: dict[str, int], chance: random.Random) -> Iterator[bytes]:
    """Return damaged records; some of them may still be valid."""
    number = chance.randrange(10**6)
    for route, schema_id, payload in (
        ("protobuf", ids["protobuf"], good_protobuf(number)),
        ("avro", ids["avro"], good_avro(number)),
    ):
        whole = wrapped(route, schema_id, payload)
        yield _flipped(whole, chance)
        yield whole[: chance.randrange(1, len(whole))]
        yield wrapped(route, schema_id, _flipped(payload, chance))
        yield wrapped(route, schema_id, payload[: chance.randrange(len(payload))])
        yield wrapped(route, schema_id, payload + b"\xff")
        yield wrapped(route, chance.choice([0, -1, 10**6, 2**31 - 1]), payload)
        yield wrapped(route, schema_id, chance.randbytes(chance.randrange(1, 200)))


def _absurd(ids: dict[str, int], chance: random.Random) -> Iterator[bytes]:
    """Return invalid records; some of them crash reference implementations."""
    protobuf, legacy, avro = ids["protobuf"], ids["legacy"], ids["avro"]
    # Absurd lengths and counts.
    for absurd in (2**31 - 1, 2**32, 2**63 - 1):
        yield b"\x1a" + varint(absurd) + b"x"
        yield wrapped("protobuf", protobuf, b"\x12" + varint(absurd) + b"x")
        yield wrapped("avro", avro, b"\x02" + varint(2 * absurd) + b"x")
        yield wrapped("avro", avro, b"\x02\x02x" + varint(2 * absurd) + b"\x02")
    # Nesting: messages in messages, groups in groups, records in records.
    deep = b""
    for _ in range(3_000):
        deep = b"\x22" + varint(len(deep)) + deep
    yield wrapped("protobuf", protobuf, deep)
    yield wrapped("legacy", legacy, b"\x13" * chance.randrange(1_000, 9_000))
    yield wrapped("legacy", legacy, b"\x13\x1a\x02\x13" * 2_000)
    yield wrapped("avro", avro, b"\x02\x02x\x00\x00\x02" * chance.randrange(2_000, 9_000))
    # Invalid UTF-8, a branch of a union out of range, an unusable route.
    yield wrapped("protobuf", protobuf, b"\x12\x02\xc3\x28")
    yield wrapped("avro", avro, b"\x02\x04\xc3\x28\x00\x00\x00\x00")
    yield wrapped("avro", avro, b"\x02\x02x\x00\x00\x00\x0e")
    yield wrapped("...", protobuf, b"")
    yield b""
    # Bombs: a few bytes that declare many values, and many meaningless bytes.
    yield wrapped("avro", avro, b"\x02\x02x" + varint(2**40) + b"\x00" * 10)
    yield wrapped("protobuf", protobuf, b"\x1a" + varint(50_000) + b"\xff" * 50_000)


def _flipped(value: bytes, chance: random.Random) -> bytes:
    flipped = bytearray(value)
    for _ in range(chance.randrange(1, 4)):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def _lands(value: bytes, ids: dict[str, int]) -> bool:
    """Whether the reference implementations accept a record."""
    schemas = {schema_id: name for name, schema_id in ids.items()}
    try:
        opened = ENVELOPE.decoder.message.FromString(value)
        if not any(letter.isalnum() for letter in opened.game_name):
            return False
        name = schemas[opened.schema_id]
        if name == "avro":
            stream = io.BytesIO(opened.payload)
            row = fastavro.schemaless_reader(stream, _PARSED, None)
            fastavro.schemaless_writer(io.BytesIO(), _PARSED, row)
            return stream.tell() == len(opened.payload)
        text = EVENT if name == "protobuf" else LEGACY
        _message(text).FromString(opened.payload)
    except (DecodeError, KeyError, ValueError, EOFError, IndexError, OverflowError):
        return False
    except (RecursionError, MemoryError, TypeError, AttributeError):
        return False
    return True
