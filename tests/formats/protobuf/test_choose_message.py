from __future__ import annotations

from base64 import b64encode

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from headgate.formats.decoder import MessageChoice
from headgate.formats.protobuf import AmbiguousMessage, NoSuchMessage, ProtobufDecoder
from headgate.registry.registry import RefusedSchema, SchemaText

HEAD = 'syntax = "proto3";\n'
IN = "message In { int32 x = 1; }"
OTHER = "message Other { int32 y = 1; }"
EVENT = "message event { In in = 1; Other other = 2; }"


def chosen(text: str, message: MessageChoice = None, head: str = HEAD, **imported: str) -> str:
    named = tuple((f"{name}.proto", HEAD + one) for name, one in imported.items())
    return ProtobufDecoder.compile(SchemaText("PROTOBUF", head + text, named), message).record_name


@pytest.mark.parametrize(
    "order", [(EVENT, IN, OTHER), (IN, EVENT, OTHER), (IN, OTHER, EVENT)], ids=str
)
def test_message_that_no_other_contains_is_the_payload_wherever_it_is(
    order: tuple[str, ...],
) -> None:
    assert chosen("".join(order)) == "event"
    assert chosen("package a.b;" + "".join(order)) == "a.b.event"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("message event { map<string, In> by = 1; }", "event"),
        ("message event { repeated In many = 1; }", "event"),
        ("message event { oneof one { In in = 1; string s = 2; } }", "event"),
        ("message event { message Nested { In in = 1; } Nested n = 1; }", "event"),
        ("message event { message Unused { In in = 1; } }", "event"),
        ("message event { In in = 1; event parent = 2; }", "event"),
        ("message event { message Child { event e = 1; } Child c = 1; In in = 2; }", "event"),
        ("message event { map<string, event> by = 1; In in = 2; }", "event"),
        ("message Mid { In in = 1; } message event { Mid mid = 1; }", "event"),
    ],
)
def test_references_count_however_they_are_made(text: str, name: str) -> None:
    assert chosen(IN + text) == chosen(text + IN) == name


def test_nested_definitions_are_never_the_payload() -> None:
    text = "message event { int32 n = 1; message Unused { int32 x = 1; } enum E { A = 0; } }"
    assert chosen(text) == "event"


def test_only_message_is_the_payload_even_if_it_contains_itself() -> None:
    assert chosen("message Node { Node next = 1; }") == "Node"


def test_messages_of_imported_files_are_not_the_payload() -> None:
    text = 'import "b.proto"; message A { int32 n = 1; }'
    assert chosen(text, b="message B { int32 x = 1; } message C { B b = 1; }") == "A"


def test_messages_of_extensions_are_contained() -> None:
    text = """message M { optional int32 n = 1; extensions 100 to 199; }
        message More { optional int32 x = 1; }
        message Holder { extend M { optional Held held = 101; } }
        message Held {} extend M { optional More more = 100; optional Holder holder = 102; }"""
    assert chosen(text, head='syntax = "proto2";\n') == "M"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (IN + OTHER, "In, Other"),
        (IN + EVENT.replace("event", "one") + EVENT.replace("event", "two") + OTHER, "one, two"),
        ("message X { Out.In i = 1; } message Out { message In {} }", "X, Out"),
        ("message A { B b = 1; } message B { A a = 1; }", "A, B: each is a field of another"),
        ("package p;" + IN + OTHER, "p.In, p.Other"),
        ("".join(f"message M{at} {{}}" for at in range(12)), "M9 and 2 more"),
    ],
)
def test_schema_that_leaves_a_choice_is_refused_with_the_candidates(text: str, names: str) -> None:
    with pytest.raises(AmbiguousMessage, match="the payload can be any of the messages") as caught:
        chosen(text)
    assert str(caught.value).endswith(names)


def test_schema_without_messages_has_no_payload() -> None:
    with pytest.raises(NoSuchMessage, match="the schema has no message"):
        chosen("enum Only { NONE = 0; }")


def registered(*messages: tuple[str, str]) -> str:
    """A file that was compiled elsewhere, of messages with a field of the named type each."""
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    for name, type_name in messages:
        one = file.message_type.add(name=name)
        one.field.add(name="x", number=1, type=11, label=1, type_name=type_name)
    return b64encode(file.SerializeToString()).decode()


def test_compiled_file_has_its_root_whether_names_are_relative_or_not() -> None:
    for type_name in ("B", ".B"):
        assert chosen(registered(("B", ".B"), ("A", type_name)), head="") == "A"


def test_compiled_file_with_a_type_that_is_missing_is_refused() -> None:
    with pytest.raises(RefusedSchema):
        chosen(registered(("A", ".Missing"), ("B", ".A")), head="")


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("One", "a.b.One"),
        ("a.b.One", "a.b.One"),
        ("Two.In", "a.b.Two.In"),
        ("a.b.Two.In", "a.b.Two.In"),
        ("c.Imported", "c.Imported"),
    ],
)
def test_declared_name_is_found_with_and_without_package(wanted: str, name: str) -> None:
    text = 'package a.b; import "c.proto"; message One {} message Two { message In {} }'
    assert chosen(text, wanted, c="package c; message Imported {}") == name


@pytest.mark.parametrize("wanted", ["one", "b.One", "In", "Imported", "Two.MEntry"])
def test_declared_name_that_the_schema_lacks_is_refused_with_those_it_has(wanted: str) -> None:
    text = 'package a.b; import "c.proto"; message One {} '
    text += "message Two { message In {} map<string, int32> m = 1; }"
    with pytest.raises(NoSuchMessage) as caught:
        chosen(text, wanted, c="package c; message Imported {}")
    assert str(caught.value) == (
        f"the schema has no message {wanted}; its messages: a.b.One, a.b.Two, a.b.Two.In"
    )
