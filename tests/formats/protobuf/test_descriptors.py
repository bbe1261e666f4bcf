from __future__ import annotations

from base64 import b64encode

import pyarrow as pa
import pytest

from headgate.formats.protobuf import NoSuchMessage, ProtobufDecoder
from headgate.formats.protobuf.descriptors import compile_proto, descriptors
from headgate.registry.registry import MAX_REFERENCES, RefusedSchema, SchemaText
from headgate.schema.fit import type_name

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


def test_references_in_a_circle_are_refused() -> None:
    circle = (("b.proto", HEAD + 'import "c.proto";'), ("c.proto", HEAD + 'import "b.proto";'))
    text = HEAD + 'import "b.proto"; message A {}'
    with pytest.raises(RefusedSchema, match="recursively imports itself"):
        ProtobufDecoder.compile(SchemaText("PROTOBUF", text, circle), (0,))


def test_compiled_references_in_a_circle_are_refused() -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    def importing(name: str, other: str) -> str:
        file = FileDescriptorProto(name=name, syntax="proto3", dependency=[other])
        file.message_type.add(name=name[0].upper())
        return b64encode(file.SerializeToString()).decode()

    circle = (
        ("b.proto", importing("b.proto", "c.proto")),
        ("c.proto", importing("c.proto", "b.proto")),
    )
    with pytest.raises(RefusedSchema):
        ProtobufDecoder.compile(
            SchemaText("PROTOBUF", importing("a.proto", "b.proto"), circle), (0,)
        )


def test_as_many_references_as_a_registry_gives_are_compiled() -> None:
    chain = tuple(
        (f"f{at}.proto", HEAD + f'import "f{at + 1}.proto"; message F{at} {{ F{at + 1} f = 1; }}')
        for at in range(MAX_REFERENCES - 1)
    )
    last = f"f{MAX_REFERENCES - 1}.proto"
    chain += ((last, HEAD + f"message F{MAX_REFERENCES - 1} {{ int32 x = 1; }}"),)
    text = (
        HEAD + f'import "f{MAX_REFERENCES - 2}.proto"; message A {{ F{MAX_REFERENCES - 2} f = 1; }}'
    )
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text, chain), (0,))
    assert type_name(made.schema.field("f").type) == "struct<f:struct<x:int>>"


def test_compiled_file_in_which_names_clash_in_json_is_taken() -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    message = file.message_type.add(name="A")
    message.field.add(name="foo_bar", number=1, type=5, label=1, json_name="fooBar")
    message.field.add(name="fooBar", number=2, type=5, label=1, json_name="fooBar")
    message.field.add(name="x", number=3, type=5, label=1)
    text = b64encode(file.SerializeToString()).decode()
    assert ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,)).schema.names == [
        "foo_bar",
        "fooBar",
        "x",
    ]
