from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from headgate.schema.field_metadata import is_required
from headgate.schema.fit import type_name
from tests.formats.avro.writing import parsed, record

_TYPES = Path(__file__).parents[3] / "docs" / "types" / "avro.yaml"
DOCUMENTED = yaml.safe_load(_TYPES.read_text())


def column(kind: Any) -> str:
    return type_name(parsed(record("a.Outer", a=kind)).schema.field("a").type)


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda row: row["type"])
def test_type_becomes_the_documented_column(documented: dict[str, Any]) -> None:
    schema = parsed(documented["schema"]).schema
    assert schema.names == ["value"]
    assert type_name(schema.field("value").type) == documented["column"]


def test_documented_types_are_distinct() -> None:
    assert len({row["type"] for row in DOCUMENTED}) == len(DOCUMENTED)


def test_column_has_metadata_on_required_fields() -> None:
    node = record(
        "Node",
        a="int",
        b=["null", "int"],
        c=["int", "string"],
        d=["int", "string", "null"],
        e="null",
        f=["null", "Node"],
        g={"type": "array", "items": "Node"},
    )
    there = [is_required(field) for field in parsed(node).schema]
    assert there == [True, False, True, False, False, False, True]


def test_branch_is_named_after_its_type_in_any_position() -> None:
    item, color = record("shop.Item", n="int"), {"type": "enum", "name": "Color", "symbols": ["X"]}
    code = {"type": "fixed", "name": "Code", "size": 2}
    many = {"type": "array", "items": "int"}
    named = {"type": "map", "values": "int"}
    assert column([item, "null", code, many, "long", color, named]) == (
        "struct<Item:struct<n:int>,Code:binary,array:array<int>,long:long,Color:string,"
        "map:map<string,int>>"
    )


def test_additional_branch_does_not_rename_the_others() -> None:
    some = pa.struct(parsed(["null", "int", "string"]).schema.field("value").type)
    more = pa.struct(parsed(["string", "double", "null", "int"]).schema.field("value").type)
    assert set(some) < set(more)


def test_branches_with_the_same_short_name_have_full_names() -> None:
    first, second = record("a.Item", n="int"), record("b.item", n="int")
    names = [field.name for field in parsed(["null", first, second]).schema.field("value").type]
    assert [name.rpartition("__")[0] for name in names] == ["a_item", "b_item"]
    assert names[::-1] == [
        field.name for field in parsed([second, first]).schema.field("value").type
    ]


def test_primitive_branch_keeps_its_name_beside_a_record_of_that_name() -> None:
    kind = parsed(["int", record("a.int", n="int")]).schema.field("value").type
    assert kind.field(0).name == "int"
    assert kind.field(1).name.startswith("a_int__")


def test_timestamp_branch_has_the_name_of_its_primitive_type() -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    assert column(["string", moment]) == "struct<string:string,long:timestamp>"


def test_only_the_recursive_field_is_text() -> None:
    children = {"type": "array", "items": "Node"}
    by_name = {"type": "map", "values": ["null", "Node"]}
    node = record("Node", a="int", b=children, c=by_name, d=["int", "Node"], e="int")
    assert parsed(node).schema.types == [pa.int32(), *[pa.string()] * 3, pa.int32()]


def test_mutually_recursive_records_are_text_at_the_recursion() -> None:
    inner = record("B", up=["null", "A"], n="int")
    outer = record("A", down=inner, all={"type": "array", "items": "B"})
    assert [type_name(kind) for kind in parsed(outer).schema.types] == [
        "struct<up:string,n:int>",
        "array<struct<up:string,n:int>>",
    ]


def test_record_used_twice_is_not_recursive() -> None:
    item = record("Item", n="int")
    schema = record(a=item, b="Item", c={"type": "array", "items": "Item"})
    assert [type_name(kind) for kind in parsed(schema).schema.types] == [
        "struct<n:int>",
        "struct<n:int>",
        "array<struct<n:int>>",
    ]


def test_text_starts_at_the_same_field_for_any_root() -> None:
    node = record("Node", id="int", next=["null", "Node"])
    assert column(node) == "struct<id:int,next:string>"
    assert column({"type": "array", "items": node}) == "array<struct<id:int,next:string>>"
