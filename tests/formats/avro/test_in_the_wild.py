"""Schemas from practice: a Debezium change, a cloud event, records with registry references."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from headgate.schema.fit import type_name
from tests.formats.avro.writing import parsed, record, written

_DATA = [
    "bytes",
    "null",
    "boolean",
    {
        "type": "map",
        "values": [
            "null",
            "boolean",
            {
                "type": "record",
                "name": "CloudEventData",
                "fields": [
                    {
                        "name": "value",
                        "type": {
                            "type": "map",
                            "values": [
                                "null",
                                "boolean",
                                {"type": "map", "values": "CloudEventData"},
                                {"type": "array", "items": "CloudEventData"},
                                "double",
                                "string",
                            ],
                        },
                    }
                ],
            },
            "double",
            "string",
        ],
    },
    {"type": "array", "items": "CloudEventData"},
    "double",
    "string",
]
CLOUD_EVENT = {
    "namespace": "io.cloudevents",
    "type": "record",
    "name": "CloudEvent",
    "version": "1.0",
    "doc": "Avro Event Format for CloudEvents",
    "fields": [
        {
            "name": "attribute",
            "type": {"type": "map", "values": ["null", "boolean", "int", "string", "bytes"]},
        },
        {"name": "data", "type": _DATA},
    ],
}


def test_cloud_event_is_decoded() -> None:
    decoder = parsed(CLOUD_EVENT)
    assert decoder.record_name == "io.cloudevents.CloudEvent"
    inner = "CloudEventData:struct<value:string>"
    assert type_name(decoder.schema.field("data").type) == (
        f"struct<bytes:binary,boolean:boolean,map:map<string,struct<boolean:boolean,{inner},"
        "double:double,string:string>>,array:array<struct<value:string>>,double:double,"
        "string:string>"
    )
    nested = {"value": {"deep": {"x": {"value": {"n": 1.5}}}}}
    event = {
        "attribute": {"id": "1", "sequence": 5, "final": True},
        "data": {"order": ("io.cloudevents.CloudEventData", nested), "note": "é"},
    }
    payload = written(CLOUD_EVENT, event)
    [row] = decoder.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert [key for key, _ in row["attribute"]] == ["id", "sequence", "final"]
    assert row["attribute"][1][1] == {"boolean": None, "int": 5, "string": None, "bytes": None}
    (_, order), (_, note) = row["data"]["map"]
    assert json.loads(order["CloudEventData"]["value"]) == {
        "deep": {"map": {"x": {"value": {"n": {"double": 1.5}}}}}
    }
    assert note["string"] == "é"


def _change(key: str) -> dict[str, Any]:
    source = record(
        "Source",
        version="string",
        ts_ms="long",
        snapshot=[
            {
                "type": "string",
                "connect.name": "io.debezium.data.Enum",
                "connect.parameters": {"allowed": "true,last,false"},
                "connect.default": "false",
            },
            "null",
        ],
    )
    value = record(
        "Value",
        id={"type": "long", "connect.default": 0},
        total={
            "type": "bytes",
            "scale": 2,
            "precision": 10,
            "connect.name": "org.apache.kafka.connect.data.Decimal",
            "logicalType": "decimal",
        },
        placed=["null", {"type": "int", "connect.name": "io.debezium.time.Date"}],
    )
    change = record(
        "Envelope",
        before=["null", value],
        after=["null", "Value"],
        source={**source, "namespace": "io.debezium.connector.mysql"},
        op="string",
    )
    return {**change, "namespace": f"shop.{key}", "connect.name": f"shop.{key}.Envelope"}


def test_change_of_a_database_row_is_decoded() -> None:
    schema = _change("orders")
    decoder = parsed(schema)
    assert decoder.record_name == "shop.orders.Envelope"
    after = {"id": 7, "total": "12.50", "placed": None}
    payload = (
        b"\0"  # before
        b"\2" + b"\x0e" + b"\4\x04\xe2" + b"\0"  # after
        b"\x063.0" + b"\xd0\x0f" + b"\0\x0afalse"  # source
        b"\2c"  # op
    )
    [row] = decoder.decode(pa.array([payload], pa.binary())).columns.to_pylist()
    assert row["before"] is None
    assert {**row["after"], "total": str(row["after"]["total"])} == after
    assert row["source"] == {"version": "3.0", "ts_ms": 1_000, "snapshot": "false"}
    assert row["op"] == "c"


def test_types_of_a_registry_refer_to_each_other() -> None:
    money = record(
        "shop.common.Money",
        amount={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        currency={"type": "enum", "name": "Currency", "symbols": ["EUR", "JPY"]},
    )
    address = record("shop.people.Address", street="string", moved=["null", "Address"])
    order = record(
        "shop.orders.Placed",
        total="shop.common.Money",
        paid_in=["null", "shop.common.Currency"],
        to="shop.people.Address",
        also={"type": "array", "items": "shop.people.Address"},
    )
    decoder = parsed(order, money, address)
    named: dict[str, Any] = {}
    for one in (money, address):
        fastavro.parse_schema(one, named)
    stream = io.BytesIO()
    home = {"street": "Elm", "moved": {"street": "Oak", "moved": None}}
    total = {"amount": b"\1\x2c", "currency": "JPY"}
    row = {"total": total, "paid_in": "EUR", "to": home, "also": [home]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(order, named), row)
    result = decoder.decode(pa.array([stream.getvalue()], pa.binary()))
    [found] = result.columns.to_pylist()
    stored = {"street": "Elm", "moved": '{"street":"Oak","moved":null}'}
    assert str(found["total"]["amount"]) == "3.00"
    assert found["total"]["currency"] == "JPY"
    assert found == {**found, "paid_in": "EUR", "to": stored, "also": [stored]}
