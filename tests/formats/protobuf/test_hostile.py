"""Schemas and payloads that want to break the process, or to fill it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from headgate.formats.protobuf import ProtobufDecoder, descriptors
from headgate.formats.protobuf.descriptors import compile_proto
from headgate.registry.registry import RefusedSchema, SchemaText

HEAD = 'syntax = "proto3"; import "google/protobuf/struct.proto";'


def decoder(text: str, head: str = HEAD) -> ProtobufDecoder:
    return ProtobufDecoder.compile(SchemaText("PROTOBUF", head + text), (0,))


POINT = decoder("message Point { int32 x = 1; string label = 2; repeated fixed32 numbers = 3; }")
GOOD = b"\x08\x07\x12\x02ok"


@pytest.mark.parametrize("others", [0, 100])
@pytest.mark.parametrize(
    "hostile",
    [
        b"\x7b" * 1_000_000,
        b"\x7b" * 500_000 + b"\x7c" * 500_000,
        b"\x7b" * 200 + b"\x7c" * 200,
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x7a\xf6\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x88\x80\x80\x80\x80\x80\x00\x01",
        b"\x88\x80\x80\x80\xf0\x01\x01",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x1a\x05\x01\x00\x00\x00\x02",
        b"\x7b\x84\x01",
        b"\x12\x81\x80\x80\x80\x80\x00a",
        b"\x12\x01\xff",
        b"\x00\x00",
        b"\x0e",
    ],
    ids=[
        "groups without end",
        "groups in groups",
        "groups deeper than protobuf goes",
        "endless string",
        "endless unknown field",
        "length that wraps around",
        "tag of seven bytes",
        "tag of more than 32 bits",
        "endless varint",
        "part of a number in a list",
        "group that ends as another",
        "length of six bytes",
        "not unicode",
        "field number 0",
        "wire type that is none",
    ],
)
def test_payload_that_protobuf_refuses_is_bad(hostile: bytes, others: int) -> None:
    payloads = [GOOD] * others + [hostile, GOOD]
    result = POINT.decode(pa.array(payloads, pa.binary()))
    assert list(result.bad) == [others]
    assert result.columns.column("x").to_pylist() == [7] * (others + 1)


WIDE = "message W {" + "".join(f"int32 a{at} = {at + 1};" for at in range(700)) + "}"


@pytest.mark.parametrize(
    ("fields", "head", "element"),
    [
        ("repeated W w = 1;", HEAD, b"\x0a\x00"),
        ("map<int32, W> w = 1;", HEAD, b"\x0a\x02\x12\x00"),
        ("In in = 1; message In { repeated W w = 1; }", HEAD, b"\x0a\x02\x0a\x00"),
        ("repeated In in = 1; message In { W w = 1; }", HEAD, b"\x0a\x02\x0a\x00"),
        (
            "repeated group In = 1 { optional W w = 1; }",
            'syntax = "proto2";',
            b"\x0b\x0a\x00\x0c",
        ),
    ],
    ids=["list", "map", "list inside", "inside a list", "group"],
)
def test_payload_of_elements_without_number_is_bad(fields: str, head: str, element: bytes) -> None:
    wide = WIDE.replace("int32", "optional int32") if "proto2" in head else WIDE
    lists = decoder(f"message M {{ {fields} optional bytes more = 9; }} {wide}", head)
    many = element * 100_000
    long = element * 3 + b"\x4a\xc0\x9a\x0c" + b"x" * 200_000
    result = lists.decode(pa.array([element, many, long], pa.binary()))
    assert list(result.bad) == [1]
    assert "values as columns" in result.bad[1]
    assert result.columns.num_rows == 2


def test_payload_of_many_small_elements_is_decoded() -> None:
    lists = decoder("message M { repeated W w = 1; } message W { int32 a = 1; }")
    result = lists.decode(pa.array([b"\x0a\x00" * 100_000], pa.binary()))
    assert len(result.columns.column("w")[0]) == 100_000


def test_json_nested_as_deep_as_protobuf_reads_is_decoded() -> None:
    node = decoder("message Node { Node next = 1; google.protobuf.Value value = 2; }")

    def nested(depth: int, around: Callable[[bytes], bytes], inside: bytes) -> bytes:
        for _ in range(depth):
            inside = around(inside)
        return inside

    def varint(number: int) -> bytes:
        return bytes([number & 127 | 128, number >> 7])

    def next_node(inside: bytes) -> bytes:
        return b"\x0a" + varint(len(inside)) + inside

    def list_of(inside: bytes) -> bytes:
        values = b"\x0a" + varint(len(inside)) + inside
        return b"\x32" + varint(len(values)) + values

    deep = nested(100, next_node, b"")
    values = b"\x12" + varint(len(nested(49, list_of, b""))) + nested(49, list_of, b"")
    payloads = [deep, values, next_node(deep)]
    result = node.decode(pa.array(payloads, pa.binary()))
    assert list(result.bad) == [2]
    assert result.columns.column("next")[0].as_py().count("next") == 99
    assert result.columns.column("value")[1].as_py() == "[" * 49 + "null" + "]" * 49


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(60))
            + "message M60 {}",
            "more than 10000 fields",
        ),
        (
            "".join(
                f"message M{n} {{" + "".join(f"M{m} f{m} = {m + 1};" for m in range(40)) + "}"
                for n in range(40)
            ),
            "more than 10000 fields",
        ),
        (
            "message M {" + "".join(f"N a{n} = {n + 1};" for n in range(4_000)) + "}"
            "message N { int32 a = 1; int32 b = 2; }",
            "more than 10000 fields",
        ),
        (
            "".join(f"message M{n} {{ M{n + 1} m = 1; }}" for n in range(2_000))
            + "message M2000 {}",
            "nest deeper than 64",
        ),
        (
            "message M {" + "".join(f"string a{n} = {n + 1};" for n in range(9_000)) + "}",
            "cannot be decoded",
        ),
    ],
    ids=["each has two of the next", "all have all", "wide", "deep", "too wide for protobuf"],
)
def test_schema_without_measure_is_refused(text: str, why: str) -> None:
    with pytest.raises(RefusedSchema, match=why):
        decoder(text)


def test_highest_field_numbers_take_no_room() -> None:
    text = "".join(f"message M{n} {{ M{n + 1} m = 536870911; int32 x = 1; }}" for n in range(20))
    high = decoder(text + "message M20 {}")
    assert high.fast is None
    row = high.message(x=1, m={"x": 2})
    [decoded] = high.decode(pa.array([row.SerializeToString()], pa.binary())).columns.to_pylist()
    assert (decoded["x"], decoded["m"]["x"], decoded["m"]["m"]) == (1, 2, None)


def test_enum_of_many_values_in_many_fields_is_decoded() -> None:
    values = "".join(f"V{n} = {n};" for n in range(20_000))
    fields = "".join(f"E a{n} = {n + 1};" for n in range(500))
    many = decoder(f"message M {{ {fields} }} enum E {{ {values} }}")
    row = many.message(a0=19_999, a499=20_000)
    [decoded] = many.decode(pa.array([row.SerializeToString()], pa.binary())).columns.to_pylist()
    assert (decoded["a0"], decoded["a1"], decoded["a499"]) == ("V19999", "V0", "20000")


@pytest.mark.parametrize("opening", ["/* ", '"\\', "'\\"])
def test_what_is_never_closed_is_looked_at_once(opening: str) -> None:
    """From every later beginning again, 64 KB would take half a minute."""
    text = 'syntax = "proto3"; message event {} ' + opening * 32_000
    assert len(descriptors._COMMENT_OR_STRING.findall(text)) == 2
    with pytest.raises(RefusedSchema):
        compile_proto({"a.proto": text}, "a.proto")
