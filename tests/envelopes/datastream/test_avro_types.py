"""The types in real files, including Datastream's own."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.envelopes.datastream.writing import (
    AT,
    TOP,
    avro,
    block,
    change,
    first_metadata,
    header,
    logical,
    nullable,
    only,
    payload_bytes,
    record,
    rows,
    schema,
)

pytestmark = pytest.mark.usefixtures("either_way")

UTC_MICROS = pa.timestamp("us", "UTC")
VARCHAR = record("varchar", value="string", length="int")


@pytest.mark.parametrize(
    ("kind", "value", "column", "expected"),
    [
        (logical("bytes", "decimal", precision=10, scale=2), Decimal("-7.25"), None, None),
        (logical("long", "timestamp-micros"), AT, UTC_MICROS, None),
        (logical("long", "time-interval-micros"), -3_600_000_000, pa.int64(), None),
        (logical("string", "json"), '{"a":1}', pa.string(), None),
        (logical("string", "varchar"), "text", pa.string(), None),
        (logical("string", "number"), "18446744073709551615", pa.string(), None),
        (logical("int", "date"), date(2024, 2, 29), pa.date32(), None),
        (logical("long", "moon-phase"), 5, pa.int64(), None),
        ("bytes", b"\xde\xad", pa.binary(), None),
        ("float", 0.5, pa.float32(), None),
        (VARCHAR, {"value": "Rome", "length": 9}, pa.string(), "Rome"),
    ],
)
def test_type_becomes_a_column(kind: Any, value: Any, column: Any, expected: Any) -> None:
    for writer_schema in (kind, nullable(kind)):
        changes = only(avro(schema({"c": writer_schema}), [change({"c": value})] * 3))
        found = changes.payload["c"]
        assert found.to_pylist() == [value if expected is None else expected] * 3
        assert column is None or found.type == column
    nulls = rows(avro(schema({"c": nullable(kind)}), [change({"c": None})] * 3))
    assert nulls == [{"c": None}] * 3


def test_varchar_that_is_defined_once_and_used_again() -> None:
    writer_schema = schema(
        {
            "street": nullable(VARCHAR),
            "city": nullable("varchar"),
            "code": "varchar",
        }
    )
    row = {
        "street": None,
        "city": {"value": "Roma", "length": 30},
        "code": {"value": "00989", "length": 12},
    }
    changes = only(avro(writer_schema, [change(row)]))
    assert changes.payload.to_pylist() == [{"street": None, "city": "Roma", "code": "00989"}]


@pytest.mark.parametrize("kind", [logical("long", "timestamp-micros"), "long"])
def test_timestamptz_is_a_timestamp_and_an_offset(kind: Any) -> None:
    timestamp = datetime(2020, 10, 13, 14, 30, 0, 56483, tzinfo=UTC)
    micros = 1_602_599_400_056_483
    zoned = record("timestampTz", timestamp=kind, offset=logical("int", "time-millis"))
    plain = record("timestampTz", timestamp="long", offset="int")
    row = {"at": {"timestamp": micros, "offset": 3_600_000}}
    content = payload_bytes(
        schema({"at": nullable(plain)}), change(row), change({"at": None}), change(row)
    )
    found = only(header(schema({"at": nullable(zoned)})) + block(content, 3)).payload
    assert found.schema.field("at").type == UTC_MICROS
    assert found["at"].to_pylist() == [timestamp, None, timestamp]
    assert found["at_offset"].to_pylist() == [3_600_000_000, None, 3_600_000_000]


def test_timestamptz_may_have_milliseconds() -> None:
    zoned = record("timestampTz", timestamp=logical("long", "timestamp-millis"), offset="int")
    row = {"at": {"timestamp": AT, "offset": 0}}
    assert rows(avro(schema({"at": zoned}), [change(row)])) == [{"at": AT, "at_offset": 0}]


def test_logical_type_on_the_field_counts() -> None:
    payload: dict[str, Any] = record("payload")
    payload["fields"] = [
        {"name": "at", "type": "long", "logicalType": "timestamp-micros"},
        {"name": "maybe", "type": ["null", "long"], "logicalType": "timestamp-millis"},
        {"name": "day", "type": {"type": "int"}, "logicalType": "date"},
        {"name": "price", "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"name": "own", "type": logical("int", "date"), "logicalType": "time-millis"},
        {"name": "odd", "type": "long", "logicalType": "time-millis"},
    ]
    writer_schema = schema(
        payload, top={**TOP, "read_timestamp": "long", "source_timestamp": "long"}
    )
    for one in writer_schema["fields"][1:3]:
        one["logicalType"] = "timestamp-micros"
    micros = int(AT.timestamp() * 1_000_000)
    row = {
        "at": micros,
        "maybe": micros // 1000,
        "day": 3,
        "price": b"\x01\x00",
        "own": 3,
        "odd": 7,
    }
    plain = schema(
        {
            "at": "long",
            "maybe": nullable("long"),
            "day": "int",
            "price": "bytes",
            "own": "int",
            "odd": "long",
        },
        top={**TOP, "read_timestamp": "long", "source_timestamp": "long"},
    )
    one = change(row, read_timestamp=micros, source_timestamp=micros)
    content = header(writer_schema) + block(payload_bytes(plain, one), 1)
    assert rows(content) == [
        {
            "at": AT,
            "maybe": AT,
            "day": date(1970, 1, 4),
            "price": Decimal("2.56"),
            "own": date(1970, 1, 4),
            "odd": 7,
        }
    ]
    assert first_metadata(content)["_source_timestamp"] == AT


def test_recursive_postgresql_arrays_are_json() -> None:
    name = "multidimensionalArray_tags"
    endless = record(
        name,
        nestedArray=nullable({"type": "array", "items": name}),
        elementValue=nullable("string"),
    )
    leaf = {"nestedArray": None, "elementValue": "a"}
    row = {"id": 1, "tags": {"nestedArray": [leaf, leaf], "elementValue": None}}
    writer_schema = schema({"id": "int", "tags": nullable(endless)})
    (found,) = rows(avro(writer_schema, [change(row)]))
    assert found["id"] == 1
    assert found["tags"] == {
        "nestedArray": '[{"nestedArray":null,"elementValue":"a"},'
        '{"nestedArray":null,"elementValue":"a"}]',
        "elementValue": None,
    }


def test_row_without_columns_is_kept() -> None:
    changes = only(avro(schema(record("payload")), [change({}), change({})]))
    assert (changes.payload.num_rows, changes.payload.num_columns) == (2, 0)


def test_other_record_named_varchar_stays_a_record() -> None:
    writer_schema = schema(
        {"v": record("varchar", text="string"), "t": record("timestampTz", at="long")}
    )
    row = {"v": {"text": "x"}, "t": {"at": 1}}
    assert rows(avro(writer_schema, [change(row)])) == [row]
