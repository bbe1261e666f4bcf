"""The table of column types against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from headgate.formats.protobuf import ProtobufDecoder
from headgate.formats.protobuf.scalar import SCALARS
from headgate.registry.registry import SchemaText
from headgate.schema.fit import type_name

_FILE = Path(__file__).parents[3] / "docs" / "types" / "protobuf.yaml"
COLUMN_TYPES: list[dict[str, str]] = yaml.safe_load(_FILE.read_text())
OWN = ["any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"]
IMPORTS = "".join(f'import "google/protobuf/{name}.proto";' for name in OWN)
DECLARATIONS = {
    "enum": "Color it = 1;",
    "message": "Point it = 1;",
    "group": "optional group It = 1 { optional int32 x = 1; }",
    "message without fields": "Hollow it = 1;",
    "message inside itself": "Outer it = 1;",
    "oneof { T }": "oneof one { int32 it = 1; }",
}
OTHERS = "message Hollow {} message Point { int32 x = 1; } enum Color { RED = 0; }"


@pytest.mark.parametrize("line", COLUMN_TYPES, ids=lambda line: line["type"])
def test_column_has_the_type_that_the_table_says(line: dict[str, str]) -> None:
    kind = re.sub(r"\bK\b", "string", re.sub(r"\bT\b", "int32", line["type"]))
    wanted = re.sub(r"\bK\b", "string", re.sub(r"\bT\b", "int", line["column"]))
    declared = DECLARATIONS.get(line["type"], f"{kind} it = 1;")
    syntax = "proto2" if line["type"] == "group" else "proto3"
    others = "" if line["type"] == "group" else OTHERS
    text = f'syntax = "{syntax}"; {IMPORTS} message Outer {{ {declared} }} {others}'
    [column] = ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,)).schema
    assert type_name(column.type) == wanted.replace("fields", "x:int")


def test_table_has_every_scalar_and_every_message_of_protobufs_own() -> None:
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    listed = [line["type"] for line in COLUMN_TYPES]
    assert len(set(listed)) == len(listed)
    assert {scalar.name for scalar in SCALARS.values()} <= set(listed)
    for module in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        for name in module.DESCRIPTOR.message_types_by_name:
            assert f"google.protobuf.{name}" in listed


def test_every_column_may_be_null() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; repeated N n = 2; } message N {}'
    schema = ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,)).schema
    assert all(field.nullable for field in schema)
    assert schema.field("n").type == pa.list_(pa.bool_())
