"""What each Avro type becomes, as data: for the reference page, and a test holds it true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AvroOutcome:
    """One Avro type, the column it becomes, and what to know about it."""

    avro: str
    column: str
    note: str
    example: Any
    """A schema of that type, in Avro's JSON."""


def _logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def _fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def _record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


_NODE = _record("Node", id="long", children={"type": "array", "items": "Node"})

AVRO_OUTCOMES = (
    AvroOutcome("null", "string", "always null", "null"),
    AvroOutcome("boolean", "boolean", "", "boolean"),
    AvroOutcome("int", "int", "", "int"),
    AvroOutcome("long", "long", "", "long"),
    AvroOutcome("float", "float", "", "float"),
    AvroOutcome("double", "double", "", "double"),
    AvroOutcome("bytes", "binary", "", "bytes"),
    AvroOutcome("string", "string", "", "string"),
    AvroOutcome("fixed", "binary", "", _fixed(4)),
    AvroOutcome(
        "enum",
        "string",
        "the symbol",
        {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
    ),
    AvroOutcome(
        "array", "array<int>", "an array of nulls is refused", {"type": "array", "items": "int"}
    ),
    AvroOutcome(
        "map",
        "map<string,int>",
        "a record that has a key twice is bad",
        {"type": "map", "values": "int"},
    ),
    AvroOutcome("record", "struct<n:int>", "", ["null", _record("Item", n="int")]),
    AvroOutcome("record without fields", "boolean", "whether it is there", ["null", _record("E")]),
    AvroOutcome(
        "field that leads back into its own record",
        "struct<id:long,children:string>",
        "the field is JSON text: records and maps as objects, bytes in base64, decimals as text, "
        "NaN and Infinity as text; a value that nests deeper than 100 is bad",
        ["null", _NODE],
    ),
    AvroOutcome("union of null and one type", "int", "the type, nullable", ["null", "int"]),
    AvroOutcome("union of one type", "int", "the type", ["int"]),
    AvroOutcome(
        "union of several types",
        "struct<int:int,string:string,Item:struct<n:int>>",
        "a field for each but null, named after the type; one of them has the value. A branch "
        "more is a field more, wherever it stands",
        ["null", "int", "string", _record("shop.Item", n="int")],
    ),
    AvroOutcome(
        "decimal of at most 38 digits",
        "decimal(9,2)",
        "a record with a number of more digits is bad",
        _logical("bytes", "decimal", precision=9, scale=2),
    ),
    AvroOutcome(
        "decimal of 39 to 1000 digits",
        "string",
        "all digits as text; of even more digits: binary",
        _logical("bytes", "decimal", precision=39, scale=2),
    ),
    AvroOutcome("date", "date", "", _logical("int", "date")),
    AvroOutcome("time-millis", "long", "microseconds", _logical("int", "time-millis")),
    AvroOutcome("time-micros", "long", "microseconds", _logical("long", "time-micros")),
    AvroOutcome("timestamp-millis", "timestamp", "", _logical("long", "timestamp-millis")),
    AvroOutcome("timestamp-micros", "timestamp", "", _logical("long", "timestamp-micros")),
    AvroOutcome(
        "timestamp-nanos",
        "long",
        "nanoseconds, because Delta's timestamps end at microseconds",
        _logical("long", "timestamp-nanos"),
    ),
    AvroOutcome(
        "local-timestamp-millis",
        "timestamp_ntz",
        "",
        _logical("long", "local-timestamp-millis"),
    ),
    AvroOutcome(
        "local-timestamp-micros",
        "timestamp_ntz",
        "",
        _logical("long", "local-timestamp-micros"),
    ),
    AvroOutcome(
        "local-timestamp-nanos", "long", "nanoseconds", _logical("long", "local-timestamp-nanos")
    ),
    AvroOutcome("uuid of string", "string", "as it was written", _logical("string", "uuid")),
    AvroOutcome(
        "uuid of fixed", "string", "with dashes, small letters", _fixed(16, logicalType="uuid")
    ),
    AvroOutcome(
        "duration",
        "struct<months:long,days:long,millis:long>",
        "",
        _fixed(12, logicalType="duration"),
    ),
    AvroOutcome(
        "any other logical type, or one in a wrong place",
        "long",
        "the plain type, as Avro's specification asks",
        _logical("long", "date"),
    ),
    AvroOutcome("schema that is no record", "string", "the only column, called `value`", "string"),
)
