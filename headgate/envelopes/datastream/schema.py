"""The writer schema of an Avro change file, prepared for reading its changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from headgate.envelopes.datastream.changes import RESERVED_COLUMN_NAMES, UnreadableFile
from headgate.formats.avro.batch_reader import BlockReader
from headgate.formats.avro.blocks import RecordBoundaries
from headgate.formats.avro.columns import NULL, cell_count, record_columns, root_record
from headgate.formats.avro.decoder import AvroDecoder
from headgate.formats.avro.schema import AvroSchema, parse_schema
from headgate.formats.avro.types import LogicalType, Primitive, Record, RecordField, Type, Union
from headgate.formats.decoder import only_length
from headgate.formats.storable import storable_array, storable_fields
from headgate.registry.registry import RefusedSchema, SchemaText

_TIMESTAMP_MICROS = Primitive("long", LogicalType("timestamp-micros"))
_LOGICAL_TYPE_KEYS = ("logicalType", "precision", "scale")


@dataclass(frozen=True)
class ChangeSchema:
    """The readers of one writer schema."""

    avro: AvroSchema
    record: Record
    blocks: BlockReader | None
    payload: PayloadColumns
    cells: int
    """Minimum cells per record."""
    has_field_logical_types: bool
    """Whether logical types were moved from fields to their types."""

    @cached_property
    def boundaries(self) -> RecordBoundaries:
        return RecordBoundaries(self.avro)

    @cached_property
    def decoder(self) -> AvroDecoder:
        """The decoder of records that cannot be read as a whole block."""
        return AvroDecoder.of(self.avro)


@lru_cache(maxsize=512)
def change_schema(text: bytes, as_written: bool = False) -> ChangeSchema:
    """Parse the schema of a file; raise UnreadableFile if its records are not changes.

    Some writers put a logical type on the field instead of its type. It is moved to the type
    unless `as_written`, under which it is ignored, as Avro's specification asks.
    """
    try:
        written = json.loads(text)
        definition = written if as_written else _move_logical_types(written)
        schema = parse_schema(SchemaText("AVRO", json.dumps(definition)))
        record = root_record(schema)
        payload = _payload_record(record)
        return ChangeSchema(
            avro=schema,
            record=record,
            blocks=BlockReader.of(record),
            payload=PayloadColumns.of(payload),
            cells=cell_count(record),
            has_field_logical_types=definition != written,
        )
    except (RefusedSchema, ValueError, RecursionError) as error:
        raise UnreadableFile(f"cannot use the schema: {error}"[:500]) from None


def _payload_record(record: Record) -> Record:
    """Return the type of the payload; refuse records that cannot name a table or have a row."""
    records = {field.name: _record_of(field.type) for field in record.fields}
    source, payload = records.get("source_metadata"), records.get("payload")
    if source is None or not any(field.name == "table" for field in source.fields):
        raise UnreadableFile("the schema has no `source_metadata` with a `table`")
    if payload is None:
        raise UnreadableFile("the schema has no `payload` record")
    return payload


def _record_of(avro_type: Type) -> Record | None:
    """Return a type that is a record or a nullable record."""
    match avro_type:
        case Record():
            return avro_type
        case Union(branches):
            others = [branch for branch in branches if branch != NULL]
            if len(others) == 1 and isinstance(others[0], Record):
                return others[0]
    return None


@dataclass(frozen=True)
class PayloadColumns:
    """Converts payloads of one schema to the columns of their table."""

    schema: pa.Schema
    paths: tuple[tuple[int, ...], ...]
    """The field of the payload that each column comes from, or the field of that field."""

    @classmethod
    def of(cls, payload: Record) -> PayloadColumns:
        fields, paths = [], []
        for index, payload_field in enumerate(payload.fields):
            for field, path in _flattened(payload_field):
                fields.append(field)
                paths.append((index, *path))
        columns = record_columns(Record(payload.name, tuple(fields), payload.min_size))
        return cls(pa.schema(storable_fields(columns, RESERVED_COLUMN_NAMES)), tuple(paths))

    def batch(self, payloads: pa.StructArray) -> pa.RecordBatch:
        """Return the columns of payloads, none of which may be null."""
        if not self.paths:
            return only_length(len(payloads))
        arrays = []
        for path, field in zip(self.paths, self.schema, strict=True):
            array = payloads.field(path[0])
            for index in path[1:]:
                array = array.flatten()[index]
            arrays.append(storable_array(array, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _flattened(field: RecordField) -> list[tuple[RecordField, tuple[int, ...]]]:
    """Return the columns of a field: Datastream wraps some types into records."""
    record = _record_of(field.type)
    if record is not None:
        parts = {part.name: (index, part.type) for index, part in enumerate(record.fields)}
        nullable = isinstance(field.type, Union)
        match record.name.rpartition(".")[2].lower():
            case "varchar" if "value" in parts:
                index, value = parts["value"]
                return [(RecordField(field.name, _with_null(value, nullable)), (index,))]
            case "timestamptz" if {"timestamp", "offset"} <= parts.keys():
                (index, timestamp), (offset_index, offset) = parts["timestamp"], parts["offset"]
                if timestamp == Primitive("long"):
                    timestamp = _TIMESTAMP_MICROS
                offset_field = RecordField(f"{field.name}_offset", _with_null(offset, nullable))
                return [
                    (RecordField(field.name, _with_null(timestamp, nullable)), (index,)),
                    (offset_field, (offset_index,)),
                ]
    return [(field, ())]


def _with_null(avro_type: Type, nullable: bool) -> Type:
    if not nullable:
        return avro_type
    branches = avro_type.branches if isinstance(avro_type, Union) else (avro_type,)
    return Union((NULL, *(branch for branch in branches if branch != NULL)))


def _move_logical_types(definition: Any) -> Any:
    """Return the schema with logical types on types instead of fields."""
    match definition:
        case list():
            return [_move_logical_types(item) for item in definition]
        case dict():
            moved = {key: _move_logical_types(value) for key, value in definition.items()}
            if isinstance(moved.get("fields"), list):
                moved["fields"] = [_move_in_field(field) for field in moved["fields"]]
            return moved
        case _:
            return definition


def _move_in_field(field: Any) -> Any:
    if not isinstance(field, dict) or "logicalType" not in field:
        return field
    logical = {key: field[key] for key in _LOGICAL_TYPE_KEYS if key in field}
    return {**field, "type": _with_logical_type(field.get("type"), logical)}


def _with_logical_type(definition: Any, logical: dict[str, Any]) -> Any:
    match definition:
        case str() if definition != "null":
            return {"type": definition, **logical}
        case list():
            return [_with_logical_type(branch, logical) for branch in definition]
        case dict() if "logicalType" not in definition:
            return {**definition, **logical}
        case _:
            return definition
