from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headgate.formats.avro.schema import parse_schema
from headgate.formats.avro.types import Array, Primitive, Record, RecordField, Reference
from headgate.registry.registry import RefusedSchema, SchemaText
from tests.formats.avro.writing import parsed, record, refusal, text_of


def column(kind: Any, *references: Any) -> pa.DataType:
    return parsed(record(a=kind), *references).schema.field("a").type


def test_schema_text_is_parsed() -> None:
    node = record("a.Node", all={"type": "array", "items": "Node"}, n={"type": "int"})
    schema = parse_schema(text_of(node))
    assert schema.type == Record(
        "a.Node",
        (RecordField("all", Array(Reference("a.Node"))), RecordField("n", Primitive("int"))),
        min_size=2,
    )
    assert dict(schema.named) == {"a.Node": schema.type}


ITEM = record("Item", n="int")


@pytest.mark.parametrize(
    ("defined", "referred"),
    [
        ({**ITEM, "name": "a.Item"}, "a.Item"),
        ({**ITEM, "name": "Item", "namespace": "a"}, "a.Item"),
        ({**ITEM, "name": "a.Item", "namespace": "b"}, "a.Item"),
        ({**ITEM, "name": "Item"}, "Item"),
        ({**ITEM, "name": "Item"}, "shop.Item"),
        ({**ITEM, "name": "Item"}, {"type": "Item"}),
        ({**ITEM, "namespace": None}, "shop.Item"),
    ],
    ids=str,
)
def test_name_is_resolved_as_specified(defined: Any, referred: Any) -> None:
    assert parsed(record(a=defined, b=referred)).schema.field("b").type == column(ITEM)


def test_type_without_a_namespace_is_found_from_within_one() -> None:
    assert column("Item", ITEM) == column(ITEM)


def test_nested_name_is_in_the_namespace_of_its_type() -> None:
    outer = {**record("b.Outer", item=ITEM), "doc": "in b"}
    assert parsed(record(a=outer, b="b.Item")).schema.field("b").type == column(ITEM)
    assert "unknown type 'Item'" in refusal(record(a=outer, b="Item"))


def test_type_of_a_reference_is_found() -> None:
    item = record("other.Item", n="int")
    order = record("other.Lines", lines={"type": "array", "items": "Item"})
    made = parsed(record(order="other.Lines"), item, order)
    [row] = made.decode(pa.array([b"\2\x0a\0"], pa.binary())).columns.to_pylist()
    assert row == {"order": {"lines": [{"n": 5}]}}


def test_schema_may_be_only_a_reference() -> None:
    assert parsed("other.Item", record("other.Item", n="int")).schema.names == ["n"]


def test_type_may_only_be_defined_twice_identically() -> None:
    assert parsed(record(a=ITEM, b=ITEM)).schema.names == ["a", "b"]
    assert "two different definitions" in refusal(record(a=ITEM, b=record("Item", n="long")))


def test_attributes_without_effect_on_the_encoding_are_ignored() -> None:
    noisy = {
        "type": "record",
        "name": "Order",
        "aliases": ["Purchase"],
        "doc": "…",
        "fields": [
            {"name": "a", "type": ["null", "int"], "default": "nonsense", "order": "ignore"},
            {"name": "b", "type": {"type": "string", "avro.java.string": "String"}},
        ],
    }
    assert parsed(noisy).schema.types == [pa.int32(), pa.string()]


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"type": "string", "logicalType": "date"}, pa.string()),
        ({"type": "long", "logicalType": "time-millis"}, pa.int64()),
        ({"type": "long", "logicalType": 5}, pa.int64()),
        ({"type": "bytes", "logicalType": "big-decimal"}, pa.binary()),
        ({"type": "fixed", "name": "F", "size": 15, "logicalType": "uuid"}, pa.binary()),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "duration"}, pa.binary()),
        ({"type": "string", "logicalType": "decimal", "precision": 2}, pa.string()),
        ({"type": ["null", "long"], "logicalType": "timestamp-millis"}, pa.int64()),
    ],
    ids=str,
)
def test_unsupported_logical_type_is_ignored(schema: Any, plain: pa.DataType) -> None:
    assert column(schema) == plain


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"precision": 0},
        {"precision": -1},
        {"precision": "9"},
        {"precision": True},
        {"precision": 2.0},
        {"precision": 9, "scale": 10},
        {"precision": 9, "scale": -1},
        {"precision": 9, "scale": None},
        {"precision": 10**9},
    ],
    ids=str,
)
def test_impossible_decimal_is_plain_bytes(numbers: Any) -> None:
    assert column({"type": "bytes", "logicalType": "decimal", **numbers}) == pa.binary()


def test_decimal_too_wide_for_its_fixed_is_binary() -> None:
    def of(precision: int, size: int) -> pa.DataType:
        fixed = {"type": "fixed", "name": "F", "size": size}
        return column({**fixed, "logicalType": "decimal", "precision": precision})

    assert of(2, 1) == pa.decimal128(2)
    assert of(3, 1) == pa.binary()
    assert of(18, 8) == pa.decimal128(18)
    assert of(19, 8) == pa.binary()
    assert of(1, 0) == pa.binary()
    assert of(38, 2**31 - 1) == pa.decimal128(38)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        5,
        None,
        [],
        "nothing",
        {"type": 5},
        {"type": "array"},
        {"type": "map", "values": 5},
        {"type": "record", "name": "R"},
        {"type": "record", "fields": []},
        {"type": "record", "name": "R", "fields": [{"type": "int"}]},
        {"type": "record", "name": "R", "fields": ["int"]},
        {"type": "record", "name": "int", "fields": []},
        {"type": "enum", "name": "E"},
        {"type": "enum", "name": "E", "symbols": []},
        {"type": "enum", "name": "E", "symbols": [5]},
        {"type": "enum", "name": "E", "symbols": ["X", "X"]},
        {"type": "fixed", "name": "F"},
        {"type": "fixed", "name": "F", "size": -1},
        {"type": "fixed", "name": "F", "size": True},
        {"type": "fixed", "name": "F", "size": 2**31},
        ["int", ["null", "long"]],
        ["int", "int"],
        ["null", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}],
        record(a=record("shop.Order", b="int")),
        record(a=["null", "Later"], b=record("Later", c="int")),
        record(**{"\ud800": "int"}),
        {"type": "enum", "name": "E", "symbols": ["\ud800"]},
    ],
    ids=ascii,
)
def test_invalid_schema_is_refused(schema: Any) -> None:
    assert "not an Avro schema" in refusal(schema)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[" * 100_000, '{"type": "record"', "[" * 200 + '"int"' + "]" * 200]
)
def test_text_that_is_not_a_schema_is_refused(text: str) -> None:
    with pytest.raises(RefusedSchema):
        parse_schema(SchemaText("AVRO", text))


def test_duplicate_field_names_are_refused() -> None:
    schema = record(a="int")
    assert "two fields with the same name" in refusal({**schema, "fields": schema["fields"] * 2})


def test_schema_that_nests_too_deep_is_refused() -> None:
    deep: Any = "int"
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    assert "nests deeper" in refusal(record(a=deep))
    chain = [record(f"R{at}", a=f"R{at - 1}" if at else "int") for at in range(70)]
    assert "nests deeper" in refusal("R69", *chain)


def test_schema_that_multiplies_itself_is_refused() -> None:
    for start in ("int", "null"):
        bomb = [
            record(f"R{at}", a=f"R{at - 1}" if at else start, b=f"R{at - 1}" if at else start)
            for at in range(60)
        ]
        assert "more than 10000 fields" in refusal("R59", *bomb)
        assert refusal(record(a={"type": "array", "items": "R59"}), *bomb)
    union = ["null", *(record(f"U{at}", a="int") for at in range(2_000))]
    assert "more than 10000 fields" in refusal(
        record(
            a=union, **{f"f{at}": ["null", *(f"U{at}" for at in range(2_000))] for at in "bcdef"}
        )
    )


@pytest.mark.parametrize(
    "items",
    [
        "null",
        record("E"),
        record("E", a="null", b=record("I")),
        {"type": "fixed", "name": "F", "size": 0},
    ],
    ids=["null", "record", "records", "fixed"],
)
def test_array_of_zero_size_items_is_refused(items: Any) -> None:
    assert "zero-size items" in refusal(record(a={"type": "array", "items": items}))
    assert "zero-size items" in refusal(
        record("Node", me=["null", "Node"], a={"type": "array", "items": items})
    )


def test_map_of_zero_size_values_is_read() -> None:
    made = parsed(record(a={"type": "map", "values": record("E")}))
    result = made.decode(pa.array([b"\2\2x\0"], pa.binary()))
    assert result.columns.to_pylist() == [{"a": [("x", True)]}]


def test_schema_text_is_not_changed_by_how_it_is_written() -> None:
    schema = record(a=["null", "int"], b=ITEM)
    spaced = SchemaText("AVRO", json.dumps(schema, indent=4))
    assert parse_schema(spaced) == parse_schema(text_of(schema))
