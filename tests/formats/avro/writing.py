"""Helpers that write Avro with fastavro and byte by byte."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headgate.formats.avro import AvroDecoder
from headgate.formats.decoder import Decoded
from headgate.registry.registry import RefusedSchema, SchemaText

LONGEST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""The largest long."""
LEAST = b"\xff" * 9 + b"\x01"
"""The smallest long, which has no positive counterpart."""


def record(name: str = "shop.Order", /, **fields: Any) -> dict[str, Any]:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def text_of(schema: Any, *references: Any) -> SchemaText:
    named = tuple((str(at), json.dumps(one)) for at, one in enumerate(references))
    return SchemaText("AVRO", json.dumps(schema), named)


def parsed(schema: Any, *references: Any) -> AvroDecoder:
    return AvroDecoder.parse(text_of(schema, *references))


def refusal(schema: Any, *references: Any) -> str:
    with pytest.raises(RefusedSchema) as caught:
        parsed(schema, *references)
    return str(caught.value)


def written(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def decoded(schema: Any, *payloads: bytes) -> Decoded:
    return parsed(schema).decode(pa.array(payloads, pa.binary()))


def read(schema: Any, *rows: Any) -> list[dict[str, Any]]:
    """Return the rows after fastavro wrote them and Headgate decoded them."""
    result = decoded(schema, *(written(schema, row) for row in rows))
    assert result.bad == {}
    result.columns.validate(full=True)
    return list(result.columns.to_pylist())


def long_bytes(value: int) -> bytes:
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def string_bytes(text: str) -> bytes:
    return long_bytes(len(text.encode())) + text.encode()
