from __future__ import annotations

from base64 import b64encode

import pyarrow as pa
import pytest

from headgate.schema.compile_proto import compile_proto
from headgate.schema.descriptors import descriptors
from headgate.schema.protobuf import NoSuchMessage, ProtobufDecoder
from headgate.schema.registry import RefusedSchema, SchemaText

HEAD = 'syntax = "proto3"; '
A = (
    HEAD + 'import "b.proto"; import "google/protobuf/timestamp.proto"; '
    "message A { B b = 1; google.protobuf.Timestamp at = 2; }"
)
B = HEAD + 'import "c.proto"; message B { C c = 1; }'
C = HEAD + "message C { int32 x = 1; }"
TEXTS = {"a.proto": A, "b.proto": B, "c.proto": C}


def compiled(name: str) -> str:
    """One file as clients register it that have no text of it."""
    files = compile_proto(TEXTS, name).file
    return b64encode(files[-1].SerializeToString()).decode()


@pytest.mark.parametrize(
    ("b", "c"),
    [(B, C), (compiled("b.proto"), C), (compiled("b.proto"), compiled("c.proto"))],
    ids=["text", "one compiled", "both compiled"],
)
def test_compiled_schema_is_taken_with_imports_in_either_form(b: str, c: str) -> None:
    schema = SchemaText("PROTOBUF", compiled("a.proto"), (("c.proto", c), ("b.proto", b)))
    names = [file.name for file in descriptors(schema).file]
    assert sorted(names) == ["a.proto", "b.proto", "c.proto", "google/protobuf/timestamp.proto"]
    assert names.index("c.proto") < names.index("b.proto") < names.index("a.proto") == 3
    payload = b"\x0a\x04\x0a\x02\x08\x05"
    result = ProtobufDecoder.compile(schema, (0,)).decode(pa.array([payload], pa.binary()))
    assert result.columns.to_pylist() == [{"b": {"c": {"x": 5}}, "at": None}]


def test_compiled_schema_without_imports_needs_nothing_else() -> None:
    decoder = ProtobufDecoder.compile(SchemaText("PROTOBUF", compiled("c.proto")), (0,))
    assert (decoder.record_name, decoder.schema.names) == ("C", ["x"])


def test_compiled_schema_whose_import_is_missing_is_refused() -> None:
    with pytest.raises(RefusedSchema, match=r"b\.proto"):
        descriptors(SchemaText("PROTOBUF", compiled("a.proto")))


@pytest.mark.parametrize("text", ["", "AAAA", "CgA="])
def test_bytes_that_are_no_schema_have_no_message(text: str) -> None:
    with pytest.raises((NoSuchMessage, RefusedSchema)):
        ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))
