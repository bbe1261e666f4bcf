"""What the schema of an Avro file says of the changes in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headgate.envelopes.datastream.columns import LOG_COLUMN_NAMES
from headgate.envelopes.datastream.opened import UnreadableFile
from headgate.formats.avro.blocks import BlockReader, RecordEnds
from headgate.formats.avro.columns import NULL, record_columns, root_record
from headgate.formats.avro.decoder import AvroDecoder
from headgate.formats.avro.read_bytes import places
from headgate.formats.avro.schema import parse_schema
from headgate.formats.avro.types import Field, Logical, Primitive, Record, Type, Union
from headgate.formats.decoder import only_length
from headgate.formats.storable import storable_array, storable_fields
from headgate.registry.registry import RefusedSchema, SchemaText

_MICROS = Primitive("long", Logical("timestamp-micros"))


@dataclass(frozen=True)
class PayloadColumns:
    """Takes the payloads of one schema apart."""

    schema: pa.Schema
    paths: tuple[tuple[int, ...], ...]
    """Which field of the payload each column is, or which field of that field."""

    @classmethod
    def of(cls, payload: Record) -> PayloadColumns:
        fields, paths = [], []
        for at, one in enumerate(payload.fields):
            for field, path in _columns(one):
                fields.append(field)
                paths.append((at, *path))
        columns = record_columns(Record(payload.name, tuple(fields), payload.fewest_bytes))
        return cls(pa.schema(storable_fields(columns, LOG_COLUMN_NAMES)), tuple(paths))

    def batch(self, payloads: pa.StructArray) -> pa.RecordBatch:
        """The columns of payloads of which none is null."""
        if not self.paths:
            return only_length(len(payloads))
        arrays = []
        for path, field in zip(self.paths, self.schema, strict=True):
            array = payloads.field(path[0])
            for at in path[1:]:
                array = array.flatten()[at]
            arrays.append(storable_array(array, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def record_inside(kind: Type) -> Record | None:
    """The record that a type is, or that it is when it is not null."""
    match kind:
        case Record():
            return kind
        case Union(branches):
            others = [one for one in branches if one != NULL]
            if len(others) == 1 and isinstance(others[0], Record):
                return others[0]
    return None


def _columns(field: Field) -> list[tuple[Field, tuple[int, ...]]]:
    record = record_inside(field.type)
    if record is not None:
        parts = {one.name: (at, one.type) for at, one in enumerate(record.fields)}
        nullable = isinstance(field.type, Union)
        match record.name.rpartition(".")[2].lower():
            case "varchar" if "value" in parts:
                at, kind = parts["value"]
                return [(Field(field.name, _as_nullable(kind, nullable)), (at,))]
            case "timestamptz" if {"timestamp", "offset"} <= parts.keys():
                (at, kind), (offset_at, offset) = parts["timestamp"], parts["offset"]
                moment = _MICROS if kind == Primitive("long") else kind
                return [
                    (Field(field.name, _as_nullable(moment, nullable)), (at,)),
                    (Field(f"{field.name}_offset", _as_nullable(offset, nullable)), (offset_at,)),
                ]
    return [(field, ())]


def _as_nullable(kind: Type, nullable: bool) -> Type:
    if not nullable:
        return kind
    branches = kind.branches if isinstance(kind, Union) else (kind,)
    return Union((NULL, *(one for one in branches if one != NULL)))


_MEANING = ("logicalType", "precision", "scale")


@dataclass(frozen=True)
class ChangeSchema:
    """How records of one schema are read and taken apart."""

    record: Record
    blocks: BlockReader | None
    ends: RecordEnds
    decoder: AvroDecoder
    """For records that cannot be read as a whole block."""
    payload: PayloadColumns
    cells: int
    """So many values has a record in memory, be it as short as can be."""
    fields_mean: bool
    """Whether the logical types of some values stand on their fields."""


@lru_cache(maxsize=512)
def change_schema(text: bytes, as_written: bool = False) -> ChangeSchema:
    """The schema of a file; UnreadableFile if it is none of changes.

    As it is written, a logical type on a field means nothing: so Avro has it.
    """
    try:
        written = json.loads(text)
        said = written if as_written else _with_meaning_in_types(written)
        schema = parse_schema(SchemaText("AVRO", json.dumps(said)))
        record = root_record(schema)
        payload = _payload(record)
        return ChangeSchema(
            record=record,
            blocks=BlockReader.of(record),
            ends=RecordEnds(schema),
            decoder=AvroDecoder.of(schema),
            payload=PayloadColumns.of(payload),
            cells=places(record),
            fields_mean=said != written,
        )
    except (RefusedSchema, ValueError, RecursionError) as error:
        raise UnreadableFile(f"its schema cannot be used: {error}"[:500]) from None


def _payload(record: Record) -> Record:
    """A file whose records cannot have a table and a row is something else."""
    parts = {one.name: record_inside(one.type) for one in record.fields}
    source, payload = parts.get("source_metadata"), parts.get("payload")
    if source is None or not any(one.name == "table" for one in source.fields):
        raise UnreadableFile("its records have no `source_metadata` with a `table`")
    if payload is None:
        raise UnreadableFile("its records have no `payload` that is a record")
    return payload


def _with_meaning_in_types(said: Any) -> Any:
    """The schema with each logical type on its type, where some writers put it on the field."""
    match said:
        case list():
            return [_with_meaning_in_types(one) for one in said]
        case dict():
            moved = {key: _with_meaning_in_types(value) for key, value in said.items()}
            if isinstance(moved.get("fields"), list):
                moved["fields"] = [_field(one) for one in moved["fields"]]
            return moved
        case _:
            return said


def _field(said: Any) -> Any:
    if not isinstance(said, dict) or "logicalType" not in said:
        return said
    meaning = {key: said[key] for key in _MEANING if key in said}
    return {**said, "type": _with_meaning(said.get("type"), meaning)}


def _with_meaning(kind: Any, meaning: dict[str, Any]) -> Any:
    match kind:
        case str() if kind != "null":
            return {"type": kind, **meaning}
        case list():
            return [_with_meaning(one, meaning) for one in kind]
        case dict() if "logicalType" not in kind:
            return {**kind, **meaning}
        case _:
            return kind
