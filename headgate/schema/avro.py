"""Avro: a registry's schema text, payloads decoded by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from headgate.schema.decoder import Decoded
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.schema.registry import RefusedSchema, SchemaText
from headgate.schema.storable import storable_array, storable_fields

_DEEPEST_NESTING = 64

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}

_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes the records of one writer's schema."""

    record_name: str
    writer: Any
    arrow: pa.DataType
    schema: pa.Schema

    @classmethod
    def parse(cls, text: SchemaText) -> AvroDecoder:
        try:
            named: dict[str, Any] = {}
            for _, reference in text.references:
                fastavro.parse_schema(_readable(json.loads(reference)), named)
            writer = fastavro.parse_schema(_readable(json.loads(text.text)), named)
            if not isinstance(writer, dict) or writer.get("type") != "record":
                raise RefusedSchema("the schema is no record, so that its values have no columns")
            arrow = _arrow(writer, named, 0)
        except (
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
            fastavro.schema.SchemaParseException,
        ) as error:
            raise RefusedSchema(f"not an Avro schema: {error}"[:500]) from None
        columns = pa.schema(storable_fields(list(arrow), ORIGIN_COLUMNS))
        return cls(str(writer["name"]), writer, arrow, columns)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        rows: dict[int, Any] = {}
        bad: dict[int, str] = {}
        for position, payload in enumerate(payloads.to_pylist()):
            try:
                rows[position] = self._row(payload)
            except Exception as error:  # whatever hostile bytes do inside the reader
                bad[position] = f"{type(error).__name__}: {error}"[:500]
        decoded = self._array(rows, bad)
        arrays = [
            storable_array(decoded.field(index), field.type)
            for index, field in enumerate(self.schema)
        ]
        return Decoded(pa.RecordBatch.from_arrays(arrays, schema=self.schema), bad)

    def _array(self, rows: dict[int, Any], bad: dict[int, str]) -> pa.StructArray:
        """The rows in Arrow; a value that its own type cannot hold makes its record a bad one."""
        try:
            return pa.array(list(rows.values()), self.arrow)
        except (pa.ArrowException, OverflowError):
            for position, row in rows.items():
                try:
                    pa.array([row], self.arrow)
                except (pa.ArrowException, OverflowError) as error:
                    bad[position] = f"{type(error).__name__}: {error}"[:500]
        return pa.array([row for at, row in rows.items() if at not in bad], self.arrow)

    def _row(self, payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        row = fastavro.schemaless_reader(stream, self.writer, None)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes after the record")
        return row


def _readable(schema: Any) -> Any:
    """Without logical types that fastavro would turn into what Arrow does not take."""
    if isinstance(schema, list):
        return [_readable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    read = {key: _readable(value) for key, value in schema.items()}
    if not _is_kept(read.get("type"), read.get("logicalType")):
        read.pop("logicalType", None)
    return read


def _is_kept(kind: Any, logical: Any) -> bool:
    return logical == "decimal" or (
        isinstance(kind, str) and isinstance(logical, str) and (kind, logical) in _LOGICAL
    )


def _arrow(schema: Any, named: Mapping[str, Any], depth: int) -> pa.DataType:
    if depth > _DEEPEST_NESTING:
        raise RefusedSchema(f"nests deeper than {_DEEPEST_NESTING} or refers to itself")
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        return _arrow(named[schema], named, depth + 1)
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise RefusedSchema("a union of several types is not decoded")
        return _arrow(branches[0], named, depth + 1)
    kind = schema["type"]
    if kind == "record":
        fields = schema["fields"]
        if len({field["name"] for field in fields}) < len(fields):
            raise RefusedSchema(f"record {schema['name']} has two fields of one name")
        return pa.struct(
            [pa.field(field["name"], _arrow(field["type"], named, depth + 1)) for field in fields]
        )
    if kind == "enum":
        return pa.string()
    if kind == "array":
        items = _arrow(schema["items"], named, depth + 1)
        if _takes_no_bytes(items):
            raise RefusedSchema("an array of what takes no bytes can be endless")
        return pa.list_(items)
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema["values"], named, depth + 1))
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind == "fixed":
        if not schema["size"]:
            raise RefusedSchema("a fixed without a byte")
        return pa.binary()
    return _LOGICAL.get((kind, logical)) or _arrow(kind, named, depth + 1)


def _takes_no_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or (
        pa.types.is_struct(kind) and all(_takes_no_bytes(field.type) for field in kind)
    )
