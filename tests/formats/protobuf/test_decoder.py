from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.formats.protobuf import NoSuchMessage, ProtobufDecoder
from headgate.formats.protobuf.reference import ProtobufReferenceDecoder, Validation
from headgate.registry.registry import RefusedSchema, SchemaText
from headgate.schema.field_metadata import field_number, is_required

HEAD = 'syntax = "proto3";\n'


def decoder(text: str, message: tuple[int, ...] = (0,), **references: str) -> ProtobufDecoder:
    named = tuple((f"{name}.proto", HEAD + one) for name, one in references.items())
    return ProtobufDecoder.compile(SchemaText("PROTOBUF", HEAD + text, named), message)


POINT = decoder("message Point { int32 x = 1; string label = 2; }")
BAD = [
    b"\xff",
    b"\x08",
    b"\x12\x05ab",
    b"\x12\x01\xff",
    b"\x00",
    b"\x0b",
    b"\x0a\xff\xff\xff\xff\x0f",
]


def point(number: int) -> bytes:
    payload: bytes = POINT.message(x=number, label="ok").SerializeToString()
    return payload


@given(st.lists(st.none() | st.sampled_from(BAD), max_size=80))
@settings(deadline=None, max_examples=60)
@example([])
@example([BAD[0]])
@example([None] * 80)
@example([*BAD * 20, None])
def test_bad_records_are_found_wherever_they_stand(spoiled: list[bytes | None]) -> None:
    payloads = [point(at) if bad is None else bad for at, bad in enumerate(spoiled)]
    result = POINT.decode(pa.array(payloads, pa.binary()))
    good = [at for at, bad in enumerate(spoiled) if bad is None]
    assert sorted(result.bad) == [at for at, bad in enumerate(spoiled) if bad is not None]
    assert all(result.bad.values())
    assert result.columns.column("x").to_pylist() == good
    assert result.columns.schema == POINT.schema


@dataclass(frozen=True)
class CountingReference(ProtobufReferenceDecoder):
    """Counts the payloads that python-protobuf is given."""

    given: list[int] = field(default_factory=list)

    def invalid(self, payloads: pa.BinaryArray) -> dict[int, str]:
        self.given.append(len(payloads))
        return super().invalid(payloads)

    def validate(self, payloads: pa.BinaryArray, rows: np.ndarray) -> Validation:
        self.given.append(len(rows))
        return super().validate(payloads, rows)

    def decode(
        self, payloads: pa.BinaryArray, rows: np.ndarray
    ) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        self.given.append(len(rows))
        return super().decode(payloads, rows)


@pytest.mark.parametrize("bad", [0, 1, 5, 50])
def test_bad_record_sends_only_a_chunk_around_it_to_python_protobuf(bad: int) -> None:
    reference = CountingReference(POINT.reference.files, POINT.record_name, POINT.columns)
    assert POINT.fast is not None
    counting = replace(POINT, reference=reference, fast=replace(POINT.fast, reference=reference))
    payloads = [point(7)] * 100_000
    rows = [at * len(payloads) // bad for at in range(bad)]
    for row in rows:
        payloads[row] = b"\xff"
    result = counting.decode(pa.array(payloads, pa.binary()))
    assert list(result.bad) == rows
    assert result.columns.column("x").to_pylist() == [7] * (len(payloads) - bad)
    assert sum(reference.given) <= bad * 512


@pytest.mark.parametrize("spoiled", [b"\xff", b"\x12\x01\xff", b""])
def test_payload_means_the_same_among_any_others(spoiled: bytes) -> None:
    """Even one that is made to be as long as it should be, with other bytes in it."""
    lists = decoder("message M { repeated int32 a = 1; repeated fixed32 b = 2; string c = 3; }")
    odd = b"\x08\x05\x12\x05\x01\x00\x00\x00\x02"
    for others in (0, 1, 10, 200, 2_000):
        payloads = [odd, *[spoiled] * others]
        result = lists.decode(pa.array(payloads, pa.binary()))
        assert 0 not in result.bad
        assert result.columns.to_pylist()[0] == {"a": [5], "b": [1], "c": ""}
        assert result.unknown == []


def test_part_of_an_array_is_decoded_by_itself() -> None:
    payloads = pa.array([b"\xff", point(1), b"\xff", point(3), point(4)], pa.binary())
    result = POINT.decode(payloads.slice(1, 3))
    assert result.columns.column("x").to_pylist() == [1, 3]
    assert list(result.bad) == [1]


def test_long_payload_is_decoded() -> None:
    long = POINT.message(x=1, label="x" * 1_000_000).SerializeToString()
    result = POINT.decode(pa.array([long], pa.binary()))
    assert result.columns.column("label").to_pylist() == ["x" * 1_000_000]


@pytest.mark.parametrize("count", [1, 40, 400])
def test_fields_that_the_schema_lacks_are_noticed(count: int) -> None:
    extended = 'syntax = "proto2"; message M { optional In in = 1; extensions 9; message In {} }'
    made = ProtobufDecoder.compile(
        SchemaText("PROTOBUF", extended + "extend M { optional int32 more = 9; }"), (0,)
    )
    kinds = [b"", b"\x78\x01", b"\x0a\x02\x78\x01", b"\x48\x01", b"\x0a\x00"]
    payloads = [kinds[at % len(kinds)] for at in range(count)]
    result = made.decode(pa.array(payloads, pa.binary()))
    assert result.bad == {}
    assert result.columns.num_rows == count
    assert result.unknown == [at for at in range(count) if at % len(kinds) in (1, 2, 3)]


def test_payload_that_is_null_is_an_empty_message() -> None:
    result = POINT.decode(pa.array([None, point(1), None], pa.binary()))
    assert result.columns.column("x").to_pylist() == [0, 1, 0]


def test_message_without_fields_gives_a_row_without_columns() -> None:
    result = decoder("message Empty {}").decode(pa.array([b"", b"\xff", b""], pa.binary()))
    assert (result.columns.num_rows, result.columns.num_columns) == (2, 0)
    assert list(result.bad) == [1]


def test_fields_called_like_metadata_columns_get_names_of_their_own() -> None:
    assert decoder("message M { string _topic = 1; }").schema.names[0].startswith("_topic__")


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_names_that_differ_in_case_or_underscores_alone_are_all_columns(syntax: str) -> None:
    names = ["foo_bar", "fooBar", "FooBar", "foobar", "foo__bar"]
    fields = "".join(f"optional int32 {name} = {at + 1};" for at, name in enumerate(names))
    text = f'syntax = "{syntax}"; message M {{ {fields} message Inside {{ {fields} }} }}'
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))
    first, second, third, fourth, fifth = made.schema.names
    assert [first, second, fifth] == ["foo_bar", "fooBar", "foo__bar"]
    assert third.startswith("FooBar__")
    assert fourth.startswith("foobar__")
    payload = b"\x08\x01\x10\x02\x18\x03\x20\x04\x28\x05"
    [row] = made.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert list(row.values()) == [1, 2, 3, 4, 5]


def test_names_in_comments_and_strings_are_left_alone() -> None:
    text = 'message M { // message X {\n int32 a_b = 1 [json_name = "message Y {"]; int32 aB = 2; }'
    assert decoder(text + "message N { int32 a_b = 1; int32 aB = 2; }").schema.names == [
        "a_b",
        "aB",
    ]


def test_fields_called_like_methods_of_python_protobuf_are_decoded() -> None:
    names = ["DESCRIPTOR", "ListFields", "FromString", "SerializePartialToString", "HasField"]
    fields = "".join(f"optional int32 {name} = {at + 1};" for at, name in enumerate(names))
    text = f"message M {{ {fields} map<int32, M.In> m = 9; message In {{ {fields} }} }}"
    payload = b"\x08\x01\x18\x03\x4a\x04\x08\x07\x12\x00\x78\x01"
    result = decoder(text).decode(pa.array([payload], pa.binary()))
    [row] = result.columns.to_pylist()
    assert list(row.values()) == [1, None, 3, None, None, [(7, dict.fromkeys(names))]]
    assert result.unknown == [0]


def test_columns_come_in_the_order_of_their_numbers_and_say_them() -> None:
    schema = decoder(
        "message M { N n = 7; int32 b = 2; repeated N many = 5; map<string, N> by = 6; }"
        "message N { string d = 9; string c = 8; }"
    ).schema
    nested = [schema.field("n").type, schema.field("many").type.value_type]
    nested.append(schema.field("by").type.item_type)
    assert [(one.name, field_number(one)) for one in schema] == [
        ("b", 2),
        ("many", 5),
        ("by", 6),
        ("n", 7),
    ]
    for kind in nested:
        assert [(one.name, field_number(one)) for one in kind] == [("c", 8), ("d", 9)]


def test_only_required_fields_are_said_to_be() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; optional int32 b = 2; }'
    schema = ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,)).schema
    assert [is_required(one) for one in schema] == [True, False]
    assert all(one.nullable for one in schema)


@pytest.mark.parametrize("edition", ["2023", "2024"])
def test_editions_are_decoded_by_their_features(edition: str) -> None:
    text = f"""edition = "{edition}";
        message M {{
          int32 a = 1;
          int32 b = 2 [features.field_presence = IMPLICIT];
          E e = 3;
          N n = 4 [features.message_encoding = DELIMITED];
        }}
        message N {{ int32 c = 1; }}
        enum E {{ option features.enum_type = CLOSED; X = 0; Y = 1; }}"""
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))
    payloads = [b"", b"\x08\x00\x10\x01\x18\x01\x23\x08\x07\x24", b"\x18\x09"]
    assert made.decode(pa.array(payloads, pa.binary())).columns.to_pylist() == [
        {"a": None, "b": 0, "e": None, "n": None},
        {"a": 0, "b": 1, "e": "Y", "n": {"c": 7}},
        {"a": None, "b": 0, "e": None, "n": None},
    ]


def test_edition_that_the_compiler_does_not_know_is_refused() -> None:
    with pytest.raises(RefusedSchema, match='Unknown edition "2099"'):
        ProtobufDecoder.compile(SchemaText("PROTOBUF", 'edition = "2099"; message M {}'), (0,))


SEVERAL = "package a.b; message One {} message Two { message In { message Deep {} } message At {} }"


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ((0,), "a.b.One"),
        ((1,), "a.b.Two"),
        ((1, 1), "a.b.Two.At"),
        ((1, 0), "a.b.Two.In"),
        ((1, 0, 0), "a.b.Two.In.Deep"),
    ],
)
def test_message_index_names_a_message(index: tuple[int, ...], name: str) -> None:
    assert decoder(SEVERAL, index).record_name == name


@pytest.mark.parametrize("index", [(2,), (0, 0), (1, 0, 0, 0), (1, 2), (2**31 - 1,), (-1,)])
def test_message_index_out_of_range_is_refused(index: tuple[int, ...]) -> None:
    with pytest.raises(NoSuchMessage, match="no message at index"):
        decoder(SEVERAL, index)


def test_schema_without_a_message_has_no_first_one() -> None:
    with pytest.raises(NoSuchMessage):
        decoder("enum Only { NONE = 0; }")


def test_references_are_imported() -> None:
    both = decoder(
        'import "b.proto"; message A { B b = 1; C c = 2; }',
        b='import public "c.proto"; message B { int32 x = 1; }',
        c="message C { int32 y = 1; }",
    )
    [row] = both.decode(
        pa.array([b"\x0a\x02\x08\x05\x12\x02\x08\x06"], pa.binary())
    ).columns.to_pylist()
    assert row == {"b": {"x": 5}, "c": {"y": 6}}


def test_reference_in_a_folder_is_imported() -> None:
    text = HEAD + 'import "shop/v1/item.proto"; message A { shop.Item item = 1; }'
    item = ("shop/v1/item.proto", HEAD + "package shop; message Item { int32 x = 1; }")
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text, (item,)), (0,))
    assert made.schema.field("item").type == pa.struct([pa.field("x", pa.int32())])


@pytest.mark.parametrize(
    "name",
    ["../../x.proto", "/etc/x.proto", "a/../../x.proto", "..", "__root__.proto", "a\0.proto", ""],
)
def test_reference_with_a_malicious_name_is_refused(name: str) -> None:
    text = SchemaText("PROTOBUF", HEAD + "message A {}", ((name, HEAD),))
    with pytest.raises(RefusedSchema):
        ProtobufDecoder.compile(text, (0,))


def test_reference_cannot_replace_protobufs_own_types() -> None:
    fake = (
        "google/protobuf/timestamp.proto",
        HEAD + "package google.protobuf; message Timestamp { string seconds = 1; }",
    )
    text = (
        HEAD
        + 'import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'
    )
    made = ProtobufDecoder.compile(SchemaText("PROTOBUF", text, (fake,)), (0,))
    payload = b"\x0a\x02\x08\x05"
    [row] = made.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert row == {"t": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}


def test_schema_that_does_not_compile_is_refused_in_the_compilers_words() -> None:
    with pytest.raises(RefusedSchema, match='"Missing" is not defined'):
        decoder("message A { Missing m = 1; }")


def test_schemas_that_differ_in_names_alone_share_what_reads_them() -> None:
    one = decoder("message One { int64 score = 1; string who = 3; }")
    other = decoder("message Other { int64 level = 1; string where = 3; }")
    wider = decoder("message Wider { int64 score = 1; string who = 3; bool won = 4; }")
    handlers = [each.fast.handler for each in (one, other, wider) if each.fast is not None]
    assert handlers[0] is handlers[1]
    assert handlers[0] is not handlers[2]
    payloads = pa.array([one.message(score=7, who="ann").SerializeToString()], pa.binary())
    assert one.decode(payloads).columns.to_pylist() == [{"score": 7, "who": "ann"}]
    assert other.decode(payloads).columns.to_pylist() == [{"level": 7, "where": "ann"}]


def test_class_of_python_protobuf_is_made_only_for_a_doubtful_payload() -> None:
    fresh = decoder("message Fresh { int32 x = 1; string label = 2; }")
    assert not fresh.decode(pa.array([point(1), point(2)], pa.binary())).bad
    assert "message" not in vars(fresh.reference)
    assert list(fresh.decode(pa.array([point(1), b"\xff"], pa.binary())).bad) == [1]
    assert "message" in vars(fresh.reference)


@pytest.mark.parametrize(
    ("text", "is_like"),
    [
        ("message Spot { int32 a = 1; string b = 2; }", True),
        ("message Spot { int32 a = 1; string b = 3; }", False),
        ("message Spot { int64 a = 1; string b = 2; }", False),
        ("message Spot { optional int32 a = 1; string b = 2; }", False),
        ("message Spot { oneof one { int32 a = 1; string b = 2; } }", False),
        ("message Spot { int32 a = 1; }", False),
    ],
)
def test_decoders_are_alike_that_differ_in_names_alone(text: str, is_like: bool) -> None:
    assert POINT.is_like(decoder(text)) == decoder(text).is_like(POINT) == is_like


def test_names_that_are_values_are_no_names_of_columns() -> None:
    text = "message M {{ {0} a = 1; }} message {0} {{ {0} {1} = 1; int32 n = 2; }}"
    one, other = decoder(text.format("Node", "next")), decoder(text.format("Node", "before"))
    assert not one.is_like(other)
