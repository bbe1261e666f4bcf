"""A registry in memory."""

from __future__ import annotations

from headgate.formats.decoders import Decoders
from headgate.registry.registry import SchemaKey, SchemaText, UnknownSchema

PROTO_ID, AVRO_ID, OTHER_ID = 7, 8, 9
GUID = "11111111-2222-3333-4444-555555555555"
AVRO_GUID = "99999999-2222-3333-4444-555555555555"

PROTO = SchemaText(
    "PROTOBUF",
    'syntax = "proto3"; package shop;'
    "message Order { int32 x = 1; message Line { int32 x = 1; } }"
    "message Refund { int32 x = 1; }",
)
AVRO = SchemaText(
    "AVRO", '{"type": "record", "name": "shop.Pizza", "fields": [{"name": "x", "type": "int"}]}'
)


class KnownSchemas:
    """Knows a protobuf and an Avro schema, each by number and by GUID."""

    def __init__(self) -> None:
        self._known: dict[SchemaKey, SchemaText] = {
            PROTO_ID: PROTO,
            AVRO_ID: AVRO,
            OTHER_ID: PROTO,
            GUID: PROTO,
            AVRO_GUID: AVRO,
        }

    def fetch(self, key: SchemaKey) -> SchemaText:
        if key not in self._known:
            raise UnknownSchema("schema-unknown", f"no schema {key}")
        return self._known[key]

    def register(self, subject: str, schema: SchemaText) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held open."""


def decoders() -> Decoders:
    return Decoders(KnownSchemas())
