from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaText
from headgate.schema.fit import type_name

HEAD = 'syntax = "proto3"; import "google/protobuf/struct.proto";'


def decoder(text: str, head: str = HEAD) -> ProtobufDecoder:
    text = (head + text).replace("own.", "google.protobuf.")
    return ProtobufDecoder.compile(SchemaText("PROTOBUF", text), (0,))


def rows(of: ProtobufDecoder, *messages: Any) -> list[dict[str, Any]]:
    payloads = [one if isinstance(one, bytes) else one.SerializeToString() for one in messages]
    result = of.decode(pa.array(payloads, pa.binary()))
    assert result.bad == {}
    return list(result.columns.to_pylist())


TREE = decoder(
    "message Tree { string name = 1; int64 size = 5; Tree left = 2; repeated Tree many = 3;"
    " map<int32, Tree> by = 4; }"
)


def test_message_inside_itself_is_json_wherever_it_stands() -> None:
    assert [type_name(kind) for kind in TREE.schema.types] == [
        "string",
        "string",
        "array<string>",
        "map<int,string>",
        "long",
    ]
    leaf = {"name": "b", "left": {"size": 2**63 - 1}}
    [row] = rows(TREE, TREE.message(name="a", left=leaf, many=[leaf, {}], by={1: leaf}))
    text = '{"left": {"size": "9223372036854775807"}, "name": "b"}'
    assert row == {"name": "a", "size": 0, "left": text, "many": [text, "{}"], "by": [(1, text)]}


def test_columns_go_down_to_where_a_type_stands_in_itself() -> None:
    ring = decoder("message A { B b = 1; } message B { C c = 1; } message C { A a = 1; B b = 2; }")
    assert [type_name(kind) for kind in ring.schema.types] == [
        "struct<c:struct<a:string,b:string>>"
    ]
    assert rows(ring, ring.message(b={"c": {"b": {"c": {}}}})) == [
        {"b": {"c": {"a": None, "b": '{"c": {}}'}}}
    ]


def test_parts_of_what_is_json_are_merged() -> None:
    first, second = (TREE.message(left={"name": "a", "many": [{}]}), TREE.message(left={"size": 1}))
    third = TREE.message(left={"many": [{"name": "b"}]})
    payload = b"".join(one.SerializeToString() for one in (first, second, third))
    [row] = rows(TREE, payload)
    assert json.loads(row["left"]) == {"name": "a", "size": "1", "many": [{}, {"name": "b"}]}


ANYTHING = decoder("message M { own.Struct s = 1; own.Value v = 2; own.ListValue l = 3; }")


def test_structs_and_values_are_plain_json() -> None:
    row = ANYTHING.message()
    row.s.update({"z": None, "a": [1.5, "é", {"k": True}]})
    row.v.null_value = 0
    row.l.extend([1.0, {}])
    assert rows(ANYTHING, row, ANYTHING.message()) == [
        {"s": '{"a": [1.5, "é", {"k": true}], "z": null}', "v": "null", "l": "[1.0, {}]"},
        {"s": None, "v": None, "l": None},
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("times", [1, 100])
def test_number_that_json_does_not_have_makes_the_record_bad(number: float, times: int) -> None:
    row = ANYTHING.message()
    row.s.update({"a": number})
    payloads = [b"", row.SerializeToString()] * times
    result = ANYTHING.decode(pa.array(payloads, pa.binary()))
    assert sorted(result.bad) == list(range(1, 2 * times, 2))
    assert "s: Fail to serialize" in result.bad[1]


def test_number_of_a_field_is_told_in_words_where_json_does_not_have_it() -> None:
    node = decoder("message Node { double d = 1; Node next = 2; }")
    assert rows(node, node.message(next={"d": math.nan}))[0]["next"] == '{"d": "NaN"}'


def test_anys_and_masks_in_json_say_all_they_have() -> None:
    node = decoder(
        "message Node { own.Any any = 1; own.FieldMask mask = 2; Node next = 3; }",
        'syntax = "proto3"; import "google/protobuf/any.proto";'
        'import "google/protobuf/field_mask.proto";',
    )
    inside = {"any": {"type_url": "x/Nowhere", "value": b"\xff"}, "mask": {"paths": ["Camel.b"]}}
    [row] = rows(node, node.message(next=inside))
    assert json.loads(row["next"]) == {
        "any": {"type_url": "x/Nowhere", "value": "/w=="},
        "mask": {"paths": ["Camel.b"]},
    }


@pytest.mark.parametrize("times", [1, 100])
def test_string_that_is_not_unicode_makes_the_record_bad_inside_json_too(times: int) -> None:
    node = decoder(
        "message Node { optional string s = 1; optional Node next = 2; repeated bytes b = 3;"
        " map<string, string> m = 4; }",
        'syntax = "proto2";',
    )
    good = node.message(next={"s": "b'\\xff'", "b": [b"b'"], "m": {"b'": "b'"}}).SerializeToString()
    bad = [b"\x12\x03\x0a\x01\xff", b"\x0a\x01\xff", b"\x12\x05\x22\x03\x12\x01\xff"]
    bad.append(b"\x12\x05\x22\x03\x0a\x01\xff")
    result = node.decode(pa.array([good, *bad] * times, pa.binary()))
    assert sorted({row % 5 for row in result.bad}) == [1, 2, 3, 4]
    assert len(result.bad) == 4 * times
    assert result.columns.num_rows == times


def test_text_is_the_same_in_every_process() -> None:
    """python-protobuf keeps maps in an order of its own that changes from run to run."""
    program = """
import pyarrow as pa
from tests.formats.protobuf.test_json import ANYTHING, TREE
row = ANYTHING.message()
row.s.update({f"key{number}": number for number in range(30)})
print(ANYTHING.decode(pa.array([row.SerializeToString()], pa.binary())).columns.to_pylist())
many = TREE.message(left={"by": {number: {} for number in range(30)}})
print(TREE.decode(pa.array([many.SerializeToString()], pa.binary())).columns.to_pylist())
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, timeout=300
        ).stdout
        for _ in range(2)
    }
    assert len(said) == 1


@pytest.mark.parametrize("times", [1, 100])
def test_unknown_fields_inside_json_are_noticed(times: int) -> None:
    payloads = [b"\x12\x02\x28\x01", b"\x12\x02\x78\x01"] * times
    result = TREE.decode(pa.array(payloads, pa.binary()))
    assert result.unknown == list(range(1, 2 * times, 2))
