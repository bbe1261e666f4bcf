"""The Avro schema of change files: the same around every table's own columns."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import Any

from headgate.simulate.shop.change import Column

_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_SOURCE_METADATA = {
    "type": "record",
    "name": "source_metadata",
    "fields": [
        {"name": "table", "type": "string"},
        {"name": "database", "type": "string"},
        {"name": "primary_keys", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "log_file", "type": ["null", "string"]},
        {"name": "log_position", "type": ["null", "long"]},
        {"name": "change_type", "type": ["null", "string"]},
        {"name": "is_deleted", "type": ["null", "boolean"]},
    ],
}


@lru_cache(maxsize=1_000)
def datastream_schema(object_name: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    """Every column may be null: a database's own rules end at its log."""
    payload = [{"name": each.name, "type": ["null", _type(each)]} for each in columns]
    return {
        "type": "record",
        "name": re.sub(r"\W", "_", object_name, flags=re.ASCII),
        "fields": [
            {"name": "uuid", "type": "string"},
            {"name": "read_timestamp", "type": _MILLIS},
            {"name": "source_timestamp", "type": _MILLIS},
            {"name": "object", "type": "string"},
            {"name": "read_method", "type": "string"},
            {"name": "stream_name", "type": "string"},
            {"name": "schema_key", "type": "string"},
            {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
            {"name": "source_metadata", "type": _SOURCE_METADATA},
            {
                "name": "payload",
                "type": {"type": "record", "name": "payload", "fields": payload},
            },
        ],
    }


@lru_cache(maxsize=1_000)
def schema_key(object_name: str, columns: tuple[Column, ...]) -> str:
    """Names a schema in every record and in the name of every file."""
    text = json.dumps(datastream_schema(object_name, columns), sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _type(column: Column) -> str | dict[str, object]:
    match column.kind:
        case "int" | "boolean" | "double":
            return column.kind
        case "bigint":
            return "long"
        case "text":
            return "string"
        case "varchar":
            return {"type": "string", "logicalType": "varchar", "length": column.length}
        case "json":
            return {"type": "string", "logicalType": "json"}
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "timestamp":
            return {"type": "long", "logicalType": "timestamp-micros"}
        case "decimal":
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": column.precision,
                "scale": column.scale or 0,
            }
