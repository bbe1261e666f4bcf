from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.schema.avro import AvroDecoder
from headgate.schema.registry import RefusedSchema, SchemaText


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def parsed(schema: Any, *references: Any) -> AvroDecoder:
    named = tuple((str(at), json.dumps(one)) for at, one in enumerate(references))
    return AvroDecoder.parse(SchemaText("AVRO", json.dumps(schema), named))


def written(schema: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def refusal(schema: Any) -> str:
    with pytest.raises(RefusedSchema) as caught:
        parsed(schema)
    return str(caught.value)


def read(schema: Any, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    payloads = pa.array([written(schema, row) for row in rows], pa.binary())
    result = parsed(schema).decode(payloads)
    assert result.bad == {}
    return list(result.columns.to_pylist())


PLAIN = record(
    a="int", b="long", c="float", d="double", e="bytes", f="string", g="boolean", h="null"
)


def test_plain_types_keep_their_values() -> None:
    row = {"a": -1, "b": 2**40, "c": 0.5, "d": 0.1, "e": b"\0", "f": "é", "g": True, "h": None}
    assert read(PLAIN, row) == [row]


rows = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**31), 2**31 - 1),
        "b": st.integers(-(2**63), 2**63 - 1),
        "c": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "e": st.binary(max_size=5),
        "f": st.text(max_size=5),
        "g": st.booleans(),
        "h": st.none(),
    }
)


@given(st.lists(rows, max_size=5))
@settings(deadline=None, max_examples=50)
def test_any_values_are_kept(many: list[dict[str, Any]]) -> None:
    assert read(PLAIN, *many) == many


def test_record_is_named_in_full() -> None:
    assert parsed(PLAIN).record_name == "shop.Order"


@pytest.mark.parametrize(
    ("kind", "logical", "value", "stored"),
    [
        ("int", "date", date(2026, 1, 2), date(2026, 1, 2)),
        ("int", "time-millis", time(0, 0, 1, 5_000), 1_005_000),
        ("long", "time-micros", time(0, 0, 1, 5), 1_000_005),
        ("long", "timestamp-millis", *[datetime(2026, 1, 2, 3, tzinfo=UTC)] * 2),
        ("long", "timestamp-micros", *[datetime(2026, 1, 2, 3, 4, 5, 6, UTC)] * 2),
        ("long", "local-timestamp-millis", datetime(1970, 1, 1, 0, 0, 1), 1_000),
        ("string", "uuid", UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ("string", "of-my-own", "x", "x"),
    ],
)
def test_logical_types_have_a_column(kind: str, logical: str, value: Any, stored: Any) -> None:
    assert read(record(a={"type": kind, "logicalType": logical}), {"a": value}) == [{"a": stored}]


def test_decimals_of_bytes_and_of_fixed_are_kept() -> None:
    number = {"logicalType": "decimal", "precision": 10, "scale": 2}
    schema = record(
        a={"type": "bytes", **number}, b={"type": "fixed", "name": "F", "size": 5, **number}
    )
    row = {"a": Decimal("-1.25"), "b": Decimal("99999999.99")}
    assert read(schema, row) == [row]
    assert parsed(schema).schema.field("a").type == pa.decimal128(10, 2)


def test_nested_types_keep_their_values() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    schema = record(
        first=line,
        lines={"type": "array", "items": "Line"},
        named={"type": "map", "values": ["null", "long"]},
        color={"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
        code={"type": "fixed", "name": "Code", "size": 2},
    )
    row = {"first": {"n": 1}, "lines": [{"n": 2}, {"n": 3}], "color": "BLUE", "code": b"ab"}
    assert read(schema, {**row, "named": {"a": 1, "b": None}}) == [
        {**row, "named": [("a", 1), ("b", None)]}
    ]


def test_union_with_null_is_a_column_that_may_be_null() -> None:
    schema = record(a=["null", "string"], b=["int", "null"])
    assert read(schema, {"a": "x", "b": None}, {"a": None, "b": 3}) == [
        {"a": "x", "b": None},
        {"a": None, "b": 3},
    ]


def test_type_of_a_reference_is_found() -> None:
    item = {"type": "record", "name": "other.Item", "fields": [{"name": "n", "type": "int"}]}
    made = parsed(record(item="other.Item"), item)
    [row] = made.decode(pa.array([b"\x0a"], pa.binary())).columns.to_pylist()
    assert row == {"item": {"n": 5}}


TEXT = record(a="string", b="int")


def test_records_that_do_not_fit_are_found_and_only_those() -> None:
    good = written(TEXT, {"a": "ok", "b": 1})
    payloads = {
        0: good,
        1: good[:-1],
        2: good + b"\0",
        3: b"",
        4: b"\x02\xff\x02",
        5: b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        6: b"\x01",
        7: b"\x02a" + b"\xff" * 20,
        8: b"\x02a" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        9: good,
    }
    result = parsed(TEXT).decode(pa.array(list(payloads.values()), pa.binary()))
    assert sorted(result.bad) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert result.bad[2] == "ValueError: 1 bytes after the record"
    assert result.columns.to_pylist() == [{"a": "ok", "b": 1}] * 2


def test_decimal_beyond_its_precision_is_a_bad_record() -> None:
    schema = record(a={"type": "bytes", "logicalType": "decimal", "precision": 2})
    result = parsed(schema).decode(pa.array([b"\x02\x63", b"\x04\x03\xe8"], pa.binary()))
    assert result.columns.to_pylist() == [{"a": Decimal(99)}]
    assert list(result.bad) == [1]


def test_moments_beyond_the_calendar_are_bad_records() -> None:
    schema = record(a={"type": "long", "logicalType": "timestamp-micros"})
    endless = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    result = parsed(schema).decode(pa.array([b"\x00", endless], pa.binary()))
    assert list(result.bad) == [1]


@pytest.mark.parametrize(
    "schema", ["string", {"type": "array", "items": "int"}, ["null", "int"], []]
)
def test_schema_that_is_no_record_is_refused(schema: Any) -> None:
    assert "no record" in refusal(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        5,
        None,
        record(a="nothing"),
        record(a={"type": "bytes", "logicalType": "decimal"}),
        record(a={"type": "bytes", "logicalType": "decimal", "precision": 60}),
    ],
    ids=str,
)
def test_schema_that_is_none_is_refused(schema: Any) -> None:
    assert "not an Avro schema" in refusal(schema)


@pytest.mark.parametrize("text", ["", "nonsense", "[" * 100_000, '{"type": "record"'])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(RefusedSchema, match="not an Avro schema"):
        AvroDecoder.parse(SchemaText("AVRO", text))


def test_union_of_several_types_is_refused() -> None:
    assert "union" in refusal(record(a=["int", "string"]))
    assert "union" in refusal(record(a=["null", "int", "string"]))


def test_schema_that_refers_to_itself_or_nests_too_deep_is_refused() -> None:
    assert "refers to itself" in refusal(record(a=["null", "shop.Order"]))
    deep: Any = "int"
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    assert "nests deeper" in refusal(record(a=deep))


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "E", "fields": []},
        {"type": "fixed", "name": "F", "size": 0},
    ],
    ids=["null", "record", "fixed"],
)
def test_array_of_what_takes_no_bytes_is_refused(items: Any) -> None:
    assert refusal(record(a={"type": "array", "items": items}))


def test_two_fields_of_one_name_are_refused() -> None:
    schema = record(a="int")
    assert "two fields of one name" in refusal({**schema, "fields": schema["fields"] * 2})


def test_field_names_become_safe_columns() -> None:
    topic, twin, odd = parsed(record(_topic="int", _Topic="int", **{"a b": "int"})).schema.names
    assert topic.startswith("_topic__")
    assert twin.startswith("_Topic__")
    assert odd.startswith("a_b__")
