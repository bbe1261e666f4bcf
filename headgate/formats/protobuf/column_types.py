"""Which column each type of protobuf has: for people, and checked against the code by a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnType:
    """One line of the table; T is any type but a repeated one, K any that can be a map's key."""

    protobuf: str
    column: str
    note: str = ""


_CUT = "microseconds; what is smaller is cut off"
_JSON = (
    "protobuf's own JSON in text: names as in the .proto file, keys in alphabetical order, 64-bit "
    "numbers and moments in quotes"
)

COLUMN_TYPES = (
    ColumnType("double", "double", "NaN and infinities are kept"),
    ColumnType("float", "float", "NaN and infinities are kept"),
    ColumnType("int32", "int"),
    ColumnType("int64", "long"),
    ColumnType("uint32", "long", "Delta has no unsigned numbers"),
    ColumnType("uint64", "decimal(20,0)", "Delta has no unsigned numbers"),
    ColumnType("sint32", "int"),
    ColumnType("sint64", "long"),
    ColumnType("fixed32", "long", "Delta has no unsigned numbers"),
    ColumnType("fixed64", "decimal(20,0)", "Delta has no unsigned numbers"),
    ColumnType("sfixed32", "int"),
    ColumnType("sfixed64", "long"),
    ColumnType("bool", "boolean"),
    ColumnType(
        "string", "string", "a record with a string that is not UTF-8 is bad, in proto2 too"
    ),
    ColumnType("bytes", "binary"),
    ColumnType(
        "enum",
        "string",
        "the name of the value, the first one where several have its number; a number that an open "
        "enum (proto3) does not have is that number in text; a closed one (proto2) is as if the "
        "value had not been sent",
    ),
    ColumnType(
        "T",
        "T",
        "proto3 without `optional`: never null, but 0, false, empty or the enum's first value",
    ),
    ColumnType(
        "optional T",
        "T",
        "null where it is not in the payload; so are messages, fields in a oneof, and all that "
        "occurs once in proto2: a default of the schema is not filled in, and a required field "
        "that was left out is null too",
    ),
    ColumnType("oneof { T }", "T", "a column for each; at most one is not null, the last one sent"),
    ColumnType("repeated T", "array<T>", "empty, never null; packed or not, whatever is declared"),
    ColumnType("map<K, T>", "map<K,T>", "empty, never null; the last one sent of several of a key"),
    ColumnType("message", "struct<fields>", "parts that are sent one after the other are merged"),
    ColumnType(
        "group", "struct<fields>", "as a message; a schema with groups is decoded row by row"
    ),
    ColumnType("message without fields", "boolean", "whether it is there"),
    ColumnType(
        "message inside itself",
        "string",
        f"{_JSON}; columns go down to where a type stands in itself, at once or by way of others",
    ),
    ColumnType(
        "google.protobuf.Timestamp",
        "timestamp",
        f"{_CUT}; a record with a moment outside of the years 1 to 9999 is bad",
    ),
    ColumnType(
        "google.protobuf.Duration",
        "long",
        f"{_CUT}; a record with more than a long can hold (292,000 years) is bad",
    ),
    ColumnType("google.protobuf.DoubleValue", "double", "null where it is not in the payload"),
    ColumnType("google.protobuf.FloatValue", "float", "null where it is not in the payload"),
    ColumnType("google.protobuf.Int64Value", "long", "null where it is not in the payload"),
    ColumnType(
        "google.protobuf.UInt64Value", "decimal(20,0)", "null where it is not in the payload"
    ),
    ColumnType("google.protobuf.Int32Value", "int", "null where it is not in the payload"),
    ColumnType("google.protobuf.UInt32Value", "long", "null where it is not in the payload"),
    ColumnType("google.protobuf.BoolValue", "boolean", "null where it is not in the payload"),
    ColumnType("google.protobuf.StringValue", "string", "null where it is not in the payload"),
    ColumnType("google.protobuf.BytesValue", "binary", "null where it is not in the payload"),
    ColumnType(
        "google.protobuf.Struct",
        "string",
        f"{_JSON}; a record with NaN or an infinity in it is bad, for there is no JSON of those",
    ),
    ColumnType("google.protobuf.Value", "string", "as Struct; `null` where it is there and null"),
    ColumnType("google.protobuf.ListValue", "string", "as Struct"),
    ColumnType("google.protobuf.NullValue", "string", "an enum"),
    ColumnType("google.protobuf.FieldMask", "struct<paths:array<string>>"),
    ColumnType(
        "google.protobuf.Any",
        "struct<type_url:string,value:binary>",
        "what is inside is not decoded; within JSON text the value is in base64",
    ),
    ColumnType("google.protobuf.Empty", "boolean", "whether it is there"),
)
