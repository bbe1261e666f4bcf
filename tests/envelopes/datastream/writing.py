"""Helpers that write change files as Datastream does."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa

from headgate.envelopes.datastream.changes import Changes, OpenedFile
from headgate.envelopes.datastream.file import extract_records, open_file

AT = datetime(2024, 5, 10, 5, 36, 59, 578000, tzinfo=UTC)
MILLIS = 1_715_319_419_578
UUID = "0b0f4fb9-72bf-458b-ad52-57e000000000"
SYNC = bytes(range(16))


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


def fields(**types: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in types.items()]


def record(name: str, /, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields(**types)}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


TIMESTAMP_MILLIS = logical("long", "timestamp-millis")
TOP = {
    "uuid": "string",
    "read_timestamp": TIMESTAMP_MILLIS,
    "source_timestamp": TIMESTAMP_MILLIS,
    "object": "string",
    "read_method": "string",
    "stream_name": "string",
    "schema_key": "string",
    "sort_keys": {"type": "array", "items": ["string", "long"]},
}
MYSQL = {
    "table": "string",
    "database": "string",
    "primary_keys": {"type": "array", "items": "string"},
    "log_file": nullable("string"),
    "log_position": nullable("long"),
    "change_type": nullable("string"),
    "is_deleted": nullable("boolean"),
}
PAYLOAD = {"id": nullable("int"), "name": nullable("string")}


def schema(
    payload: Any = None, source: Any = None, top: Any = None, name: str = "shop_users"
) -> dict[str, Any]:
    inside: dict[str, Any] = PAYLOAD if payload is None else payload
    kind = inside if "type" in inside else record("payload", **inside)
    return record(
        name,
        **(TOP if top is None else top),
        source_metadata=record("source_metadata", **(MYSQL if source is None else source)),
        payload=kind,
    )


def change(payload: Any = None, source: Any = None, **top: Any) -> dict[str, Any]:
    """Return a MySQL change for an Avro file."""
    values = {
        "table": "users",
        "database": "shop",
        "primary_keys": ["id"],
        "log_file": "mysql-bin.000014",
        "log_position": 81151,
        "change_type": "UPDATE-INSERT",
        "is_deleted": False,
    }
    return {
        "uuid": UUID,
        "read_timestamp": AT,
        "source_timestamp": AT,
        "object": "shop_users",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/1/locations/here/streams/shop",
        "schema_key": "fb57c3235f48c2f937c1652c56d3d961cdb20c1a",
        "sort_keys": [MILLIS, "mysql-bin.000014", 81151],
        "source_metadata": {**values, **(source or {})},
        "payload": {"id": 1, "name": "Ada"} if payload is None else payload,
        **top,
    }


def avro(
    writer_schema: Any, changes: Sequence[Any], codec: str = "null", interval: int = 16_000
) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(writer_schema), changes, codec, interval)
    return stream.getvalue()


def long_bytes(value: int) -> bytes:
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def sized(content: bytes) -> bytes:
    return long_bytes(len(content)) + content


def header(writer_schema: Any, codec: str = "null") -> bytes:
    text = json.dumps(writer_schema).encode()
    entries = sized(b"avro.codec") + sized(codec.encode()) + sized(b"avro.schema") + sized(text)
    return b"Obj\x01" + long_bytes(2) + entries + long_bytes(0) + SYNC


def block(content: bytes, count: int) -> bytes:
    return long_bytes(count) + sized(content) + SYNC


def payload_bytes(writer_schema: Any, *changes: Any) -> bytes:
    stream = io.BytesIO()
    for one in changes:
        fastavro.schemaless_writer(stream, fastavro.parse_schema(writer_schema), one)
    return stream.getvalue()


def _snappy(content: bytes) -> bytes:
    compressed: bytes = pa.Codec("snappy").compress(content, asbytes=True)
    return compressed + zlib.crc32(content).to_bytes(4, "big")


def _zstandard(content: bytes) -> bytes:
    compressed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return compressed


def _streamed_zstandard(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    compressed: bytes = sink.getvalue().to_pybytes()
    return compressed


COMPRESSED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "null": ("null", lambda content: content),
    "deflate": ("deflate", lambda content: zlib.compress(content, wbits=-15)),
    "snappy": ("snappy", _snappy),
    "zstandard": ("zstandard", _zstandard),
    "zstandard without its size": ("zstandard", _streamed_zstandard),
    "bzip2": ("bzip2", bz2.compress),
    "xz": ("xz", lzma.compress),
}


def compressed_avro(form: str, writer_schema: Any, changes: Sequence[Any]) -> bytes:
    codec, compress = COMPRESSED[form]
    return header(writer_schema, codec) + block(
        compress(payload_bytes(writer_schema, *changes)), len(changes)
    )


def json_change(payload: Any = None, source: Any = None, **top: Any) -> dict[str, Any]:
    """Return a MySQL change for a JSON file."""
    values = change(payload, source)
    timestamp = "2024-05-10T05:36:59.578Z"
    return {**values, "read_timestamp": timestamp, "source_timestamp": timestamp, **top}


def lines(*changes: Any) -> bytes:
    return "".join(f"{json.dumps(one)}\n" for one in changes).encode()


def only(content: bytes) -> Changes:
    """Return the changes of a file with changes of one table and nothing else."""
    opened = open_file(content)
    assert (opened.unreadable, opened.unfinished, opened.rejected) == (None, False, [])
    (changes,) = opened.changes
    changes.metadata.validate(full=True)
    changes.payload.validate(full=True)
    return changes


def rows(content: bytes) -> list[dict[str, Any]]:
    return list(only(content).payload.to_pylist())


def first_metadata(content: bytes) -> dict[str, Any]:
    """Return the metadata of the first change, without nulls."""
    first = only(content).metadata.slice(0, 1).to_pylist()[0]
    return {name: value for name, value in first.items() if value is not None}


def count(opened: OpenedFile) -> int:
    return sum(len(one.positions) for one in opened.changes)


def extract(content: bytes | pa.Buffer, position: int) -> bytes | None:
    """Return a file with only the record at a position; None if it does not exist."""
    return dict(extract_records(content, [position])).get(position)
